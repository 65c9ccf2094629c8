"""Show what matters of the output of kfp.local: the lines of the steps go to stderr, everything goes to a log."""

import re
import sys
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
    """A replacement for stdout: all lines go to `log`; names of steps, their own lines and failures go to stderr.

    Of one of our own errors only the message is shown, and `fault` keeps its class; other tracebacks are shown in full.
    """

    def __init__(self, log: TextIO) -> None:
        self.log = log
        self.fault = ""
        self._rest = ""
        self._traceback: list[str] = []

    def write(self, text: str) -> int:
        """Process a piece of output."""
        self.log.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._show(_COLOUR.sub("", line).strip())
        return len(text)

    def flush(self) -> None:
        """Flush the log; an unfinished line stays in memory."""
        self.log.flush()

    def isatty(self) -> bool:
        """Return False: this is no terminal."""
        return False

    def _show(self, line: str) -> None:
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
    sys.stderr.write(f"{line}\n")  # one write, so that lines of parallel steps do not mix; kfp replaces `print`
    sys.stderr.flush()
