"""Print how large the product is, room by room: ``python -m tests.house``. A test holds it to its limits.

Lines are lines of code, without blank lines, comments and docstrings, and all lines of the texts that code fills in.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

HOME = Path(__file__).parents[1]
PRODUCT = ("tlm", "pipelines", "components")
MOST_LINES, MOST_FILES = 20_111, 164  # to be lowered, never raised without a reason in the commit
FILLED_IN = ("*.css", "card.toml", "manifest.yaml", "trainjob.yaml")
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines(path: Path) -> int:
    """Count the lines of code in a file of Python, or the lines of another file that are not blank."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return sum(1 for line in text.splitlines() if line.strip())
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for token in tokens if token.type not in SILENT for line in range(token.start[0], token.end[0] + 1)}
    return len(code - docstrings(text))


def docstrings(text: str) -> set[int]:
    """The lines that docstrings take."""
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, places) and node.body]
    found = (
        one
        for one in first
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
    )
    return {line for one in found for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}


def rooms() -> tuple[Counter[str], Counter[str]]:
    """Count lines and files of Python by folder."""
    size: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for part in PRODUCT:
        for path in sorted((HOME / part).rglob("*")):
            if path.suffix == ".py" or any(path.match(pattern) for pattern in FILLED_IN):
                room = path.parent.relative_to(HOME).as_posix()
                size[room] += lines(path)
                files[room] += path.suffix == ".py"
    return size, files


def main() -> None:
    """Print the table."""
    size, files = rooms()
    for room in sorted(size):
        print(f"{room:28} {files[room]:4} files {size[room]:6,} lines")
    print(f"{'product':28} {files.total():4} files {size.total():6,} lines")


if __name__ == "__main__":
    main()
