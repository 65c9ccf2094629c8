"""Docstrings of packages: technical prose in addition to the documentation of services."""

import re
from collections.abc import Iterator
from zipfile import ZipFile

# Triple-quoted strings at the start of a line: parsing the files would take ten times as long.
DOCSTRING = re.compile(r'^[ \t]*[rRuU]?(?:"""(.*?)"""|\'\'\'(.*?)\'\'\')', re.DOTALL | re.MULTILINE)


def docstrings(wheel: ZipFile) -> Iterator[str]:
    """Yield the docstrings of a package's Python files, each on one line, by file."""
    for name in sorted(wheel.namelist()):
        if name.endswith(".py"):
            for match in DOCSTRING.finditer(wheel.read(name).decode(errors="ignore")):
                yield " ".join((match[1] or match[2] or "").split())
