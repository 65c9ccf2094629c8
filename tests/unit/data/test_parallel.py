"""Work in several processes: what one of them raises ends all of them, on a machine without any other program."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = """
import time
from tlm.data.parallel import each
from tlm.errors import InputError

def work(number):
    if number == 1:
        raise InputError("number 1 is wrong")
    time.sleep(1000 if number == 2 else 0.1)
    return number

each(work, range(4), "working", "numbers")
"""


def test_an_error_in_one_process_ends_all(tmp_path: Path) -> None:
    """The images have no pgrep, which joblib would take without psutil; one process is still at work."""
    script = tmp_path / "work.py"
    script.write_text(SCRIPT)
    nothing = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "LOKY_MAX_CPU_COUNT": "2"}
    done = subprocess.run([sys.executable, script], env=nothing, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "InputError: number 1 is wrong" in done.stderr
    assert "pgrep" not in done.stderr
