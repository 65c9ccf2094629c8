"""Docstrings of the installed packages and of the standard library: general technical prose beside the services'."""

import re
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

# triple-quoted strings that begin a line; parsing 16,000 files takes minutes, this takes ten seconds
DOCSTRING = re.compile(r'^[ \t]*[rRuU]?(?:"""(.*?)"""|\'\'\'(.*?)\'\'\')', re.DOTALL | re.MULTILINE)
STANDARD_LIBRARY = "python"
# not part of what is locked, and our own code would make the corpus change with every commit
LEFT_OUT = ("pip", "setuptools", "wheel", "tlm-kubeflow")


def packages() -> list[tuple[str, list[Path]]]:
    """(name, Python files) of every installed package by name, then of the standard library."""
    found = {_name(package): package for package in distributions()}
    listed = [(name, sorted(_files(found[name]))) for name in sorted(found) if name not in LEFT_OUT]
    return [*listed, (STANDARD_LIBRARY, sorted(_standard_library()))]


def docstrings(files: Iterable[Path]) -> Iterator[str]:
    """The docstrings of Python files, each on one line, in the order of the files. Unreadable files hold none."""
    for file in files:
        try:
            source = file.read_text(encoding="utf-8", errors="ignore")
        except OSError:
            continue
        for match in DOCSTRING.finditer(source):
            yield " ".join((match[1] or match[2] or "").split())


def _name(package: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", package.metadata["Name"] or "").lower()


def _files(package: Distribution) -> Iterator[Path]:
    return (Path(str(file.locate())) for file in package.files or () if file.suffix == ".py")


def _standard_library() -> Iterator[Path]:
    folder = Path(sysconfig.get_path("stdlib"))
    for file in folder.rglob("*.py"):
        if not {"site-packages", "dist-packages"} & set(file.relative_to(folder).parts):
            yield file
