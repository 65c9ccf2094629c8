"""Docstrings of the installed packages and the standard library: technical prose in addition to the services'."""

import re
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

# Triple-quoted strings at the start of a line; parsing 16,000 files would take minutes, this takes ten seconds.
DOCSTRING = re.compile(r'^[ \t]*[rRuU]?(?:"""(.*?)"""|\'\'\'(.*?)\'\'\')', re.DOTALL | re.MULTILINE)
STANDARD_LIBRARY = "python"
# These are not locked; and with our own code, the corpus would change with every commit.
UNSTABLE = ("pip", "setuptools", "wheel", "tlm-kubeflow")
# Packages that came later: without them, the corpus stays the one that the kept results of the demo are of.
LATER = (
    *("onnx", "onnx-ir", "onnxruntime", "onnxscript", "flatbuffers", "ml-dtypes"),
    *("prometheus-client", "starlette", "uvicorn"),
)
EXCLUDED = (*UNSTABLE, *LATER)


def packages() -> list[tuple[str, list[Path]]]:
    """List (name, Python files) of each installed package by name, then of the standard library."""
    found = {re.sub(r"[-_.]+", "-", package.metadata["Name"] or "").lower(): package for package in distributions()}
    listed = [
        (name, sorted(Path(str(file.locate())) for file in found[name].files or () if file.suffix == ".py"))
        for name in sorted(found)
        if name not in EXCLUDED
    ]
    library = Path(sysconfig.get_path("stdlib"))
    installed = {"site-packages", "dist-packages"}
    own = (path for path in library.rglob("*.py") if not installed & {*path.relative_to(library).parts})
    return [*listed, (STANDARD_LIBRARY, sorted(own))]


def docstrings(files: Iterable[Path]) -> Iterator[str]:
    """Yield the docstrings of Python files, each on one line, in the order of the files; skip unreadable files."""
    for file in files:
        try:
            source = file.read_text(encoding="utf-8", errors="ignore")
        except OSError:
            continue
        for match in DOCSTRING.finditer(source):
            yield " ".join((match[1] or match[2] or "").split())
