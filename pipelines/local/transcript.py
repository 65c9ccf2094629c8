"""What kfp.local prints, told to people: the steps' own lines on stderr, all of it in a log file."""

import re
import sys
from pathlib import Path
from typing import TextIO

_COLOUR = re.compile(r"\x1b\[\d+m")
_TASK = re.compile(
    r"[\d:.]+ - (?:INFO|ERROR) - (?:Executing task|Task) '(?P<name>[^']+)'(?: finished with status (?P<status>\w+))?$"
)
_ERROR = re.compile(r"tlm\.errors\.(?P<kind>\w+): (?P<sentence>.*)")
_EXECUTOR = re.compile(r"(\[KFP Executor|[\d:.]+ - (INFO|ERROR|WARNING) - )")
_NOISE = re.compile(
    r"[-\s]*$|[{}\[\]\"]|(Output|Streamed logs|Found image |/\S+: \w*Warning: |\w+='|\w+: (\w+\(|'|\d+$|\[)|\w+=\{)"
)


class Transcript:
    """A stand-in for stdout: every line goes to `log`, the story (steps, their lines, failures) to stderr.

    Of an error for people only its sentence is told, and `fault` keeps its class; other tracebacks are told whole.
    """

    def __init__(self, log: TextIO) -> None:
        self.log = log
        self.fault = ""
        self._rest = ""
        self._traceback: list[str] = []

    def write(self, text: str) -> int:
        """Take in a piece of output."""
        self.log.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._tell(_COLOUR.sub("", line).strip())
        return len(text)

    def flush(self) -> None:
        """Nothing is held back but an unfinished line."""
        self.log.flush()

    def isatty(self) -> bool:
        """It is no terminal."""
        return False

    def _tell(self, line: str) -> None:
        task, error = _TASK.match(line), _ERROR.match(line)
        if error:
            self.fault, self._traceback = error["kind"], []
            _say(f"    {error['sentence']}")
        elif line.startswith("Traceback") or (self._traceback and not task):
            self._traceback.append(line)
        elif task:
            for held in self._traceback:
                _say(f"    {held}")
            self._traceback = []
            said = {None: f"▸ {task['name']}", "FAILURE": f"✗ {task['name']} failed"}.get(task["status"])
            if said:
                _say(said)
        elif not _EXECUTOR.match(line) and not _NOISE.match(line):
            _say(f"    {line}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # one write: two steps at once do not share a line; kfp has its own `print`
    sys.stderr.flush()


def open_log(folder: Path, name: str) -> TextIO:
    """A fresh log file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"{name}.log").open("w", encoding="utf-8")
