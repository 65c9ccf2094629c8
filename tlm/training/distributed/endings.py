"""How each of several processes ended, in a file, so that whoever started them can say it once for all."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tlm.errors import Cancelled, InputError, Interrupted, Terminated, TlmError

ENDINGS = "TLM_ENDINGS"  # names the folder of these files


class Lost(Interrupted):
    """Another process of the same training is gone; that one knows why."""


@dataclass(frozen=True)
class Ending:
    """The error that ended a process: when, its exit code and sentence, or the parts of an OSError.

    Attributes:
        lost: It only saw that another process is gone.
    """

    time: float
    lost: bool
    code: int
    text: str
    errno: int = 0
    path: str = ""

    @classmethod
    def of(cls, error: Exception) -> "Ending":
        """That of `error`."""
        lost = isinstance(error, Lost)
        if isinstance(error, TlmError):
            return cls(time.time(), lost, error.exit_code, str(error))
        if isinstance(error, OSError) and error.errno:
            return cls(time.time(), lost, 2, error.strerror or "", error.errno, str(error.filename or ""))
        return cls(time.time(), lost, 1, f"training failed with {type(error).__name__}: {error}; see the lines above")

    @classmethod
    def read(cls, path: Path) -> "Ending":
        """From its file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """To its file, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)

    def error(self) -> TlmError | OSError:
        """The error again."""
        if self.errno:
            return OSError(self.errno, self.text, self.path or None)
        kinds = {kind.exit_code: kind for kind in (TlmError, InputError, Interrupted, Terminated, Cancelled)}
        return kinds[self.code](self.text)
