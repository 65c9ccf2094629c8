"""How each of several processes ended, in a file, so that the launcher can report it once."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tlm.errors import Cancelled, InputError, Interrupted, Terminated, TlmError

ENDINGS = "TLM_ENDINGS"  # names the folder of these files


class Lost(Interrupted):
    """Another process of the same training has ended; that process knows why."""


@dataclass(frozen=True)
class Ending:
    """The error that ended a process.

    Attributes:
        time: When, in seconds since the epoch.
        lost: Whether it only noticed that another process has ended.
        code: The exit code.
        text: The sentence for the user, or that of the OSError.
        errno: The number of an OSError; 0 for another error.
        path: The file of an OSError.
    """

    time: float
    lost: bool
    code: int
    text: str
    errno: int = 0
    path: str = ""

    @classmethod
    def of(cls, error: Exception) -> "Ending":
        """The ending that `error` means."""
        lost = isinstance(error, Lost)
        if isinstance(error, TlmError):
            return cls(time.time(), lost, error.exit_code, str(error))
        if isinstance(error, OSError) and error.errno:
            return cls(time.time(), lost, 2, error.strerror or "", error.errno, str(error.filename or ""))
        return cls(time.time(), lost, 1, f"training failed with {type(error).__name__}: {error}; see the lines above")

    @classmethod
    def read(cls, path: Path) -> "Ending":
        """Read an ending from its file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """Write it to its file, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)

    def error(self) -> TlmError | OSError:
        """The error to raise in the launcher."""
        if self.errno:
            return OSError(self.errno, self.text, self.path or None)
        kinds = {kind.exit_code: kind for kind in (TlmError, InputError, Interrupted, Terminated, Cancelled)}
        return kinds[self.code](self.text)
