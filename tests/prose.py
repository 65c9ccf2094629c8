"""Find docstrings that only refer to another place (``See `X`.``), where a sentence should say what the code does.

``python -m tests.prose`` checks tlm, components and pipelines; `make lint` runs it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[1]
CHECKED = ("tlm", "components", "pipelines")

LEAD = re.compile(
    r"(please )?(see( also)?|as( in| for)?|like|(the )?same( as)?|ditto|compare|cf\.?|per|refer to|those of|that of|of|"
    r"(identical|similar|analogous|equal|equivalent) to|overrides?|implements?|inherited( from)?)\b\.?",
    re.IGNORECASE,
)
NAME = re.compile(r"`[^`]+`|\w*[._]\w[\w.]*(\(\))?|[A-Z]\w*[A-Z]\w*")  # `anything`, a.name, a_name, ClassName
FILLER = re.compile(
    r"\b(a|all|also|an|and|any|for|from|in|is|it|its|of|or|that|the|them|this|to|with|above|before|below|here|other|there|"
    r"base|class|docstring|function|interface|method|module|parent|protocol|superclass)\b",
    re.IGNORECASE,
)


def is_bare_reference(docstring: str) -> bool:
    """Whether each sentence is a word such as "see", and then nothing but names and words without a content."""
    sentences = re.split(r"(?<=\.)(?<!cf\.)(?<!Cf\.)\s+", " ".join(docstring.split()))
    return all(map(_refers, sentences))


def _refers(sentence: str) -> bool:
    lead = LEAD.match(sentence)
    if not lead:
        return False
    rest = NAME.sub("", sentence[lead.end() :])
    return not re.search(r"\w", FILLER.sub("", rest))


def bare_references(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each such docstring in the source of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and is_bare_reference(docstring):
                yield node.body[0].lineno, docstring


def main() -> int:
    """Print each such docstring with its place; return the exit code."""
    found = 0
    for path in sorted(path for folder in CHECKED for path in (HOME / folder).rglob("*.py")):
        for line, docstring in sorted(bare_references(path.read_text(encoding="utf-8"))):
            found += 1
            print(f"{path.relative_to(HOME)}:{line}: docstring only refers to another place: {docstring}")
    if found:
        print(f"{found} docstrings: say in a sentence what the code does")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
