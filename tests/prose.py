"""Find docstrings that only refer to another place (``See `X`.``), and words that our texts do not use.

A docstring should say in a sentence what the code does; the code of `CHECKED` is searched for docstrings that do not.
The texts of `READ` (docstrings and other strings) and `PAGES` are searched for `WORDS`. `make lint` runs
``python -m tests.prose``.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

HOME = Path(__file__).parents[1]
CHECKED = ("tlm", "components", "pipelines")
READ = (*CHECKED, "research", "demo")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "research/README.md", "research/EVIDENCE.md")
RECORDS = ("ERRATA.md", "CHANGELOG.md", "LOG.md")  # pages that say what was, in the words of their time

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
WORDS = {  # and what to write instead
    r"fetch(ed|es|ing)?": "passages are retrieved, files downloaded",
    r"worth": "say what it gains or costs",
    r"told": "say who says it, or what it is",
    r"mend(s|ed|ing)?": "repair, correct or replace",
    r"those that": "name the things",
    r"of which": "begin another sentence",
    r"(is|are) shown to": "say what the measurement says",
    r"put(s|ting)? off": "reject, or postpone",
    r"let(s|ting)? in": "accept",
}
_WORDS = {
    re.compile(rf"(?<![-\w])(?:{word})(?![-\w])".replace(" ", r"\s+"), re.IGNORECASE): instead
    for word, instead in WORDS.items()
}
_CODE = re.compile(r"^```.*?^```|`[^`]+`", re.DOTALL | re.MULTILINE)


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


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string in the source of a module; a single word is a name, not a text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def wrong_words(text: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """Yield line and advice for each of the `WORDS` in a text that begins on line `first`. Code in it may have any."""
    words = _CODE.sub(lambda code: "\n" * code[0].count("\n") + "`", text)
    for word, instead in _WORDS.items():
        for found in word.finditer(words):
            yield first + words.count("\n", 0, found.start()), f"'{' '.join(found[0].split())}': {instead}"


def _files(folders: Iterable[str]) -> list[Path]:
    return sorted(path for folder in folders for path in (HOME / folder).rglob("*.py"))


def faults() -> Iterator[tuple[Path, int, str]]:
    """Yield file, line and advice for everything that is found."""
    for path in _files(CHECKED):
        for line, docstring in bare_references(path.read_text(encoding="utf-8")):
            yield path, line, f"docstring only refers to another place, say what the code does: {docstring}"
    for path in _files(READ):
        for first, text in texts(path.read_text(encoding="utf-8")):
            yield from ((path, line, advice) for line, advice in wrong_words(text, first))
    for path in (path for pattern in PAGES for path in HOME.glob(pattern) if path.name not in RECORDS):
        yield from ((path, line, advice) for line, advice in wrong_words(path.read_text(encoding="utf-8")))


def main() -> int:
    """Print all that is found with its place; return the exit code."""
    found = sorted(set(faults()))
    for path, line, advice in found:
        print(f"{path.relative_to(HOME)}:{line}: {advice}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
