"""The command `debtags`: a task of several labels a text, made of Debian's package index, and a corpus beside it."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tlm.errors import InputError
from tlm.progress import say

FACETS = ("use", "works-with")  # what a program is for, and what it works with
KIND = "role::program"
UNFINISHED = "TODO"  # ends a tag that says that one is missing
LEAST = 50  # packages of a label

Stanza = dict[str, str]


def debtags(packages: str, descriptions: str, *, to: str) -> None:
    """Write the descriptions of Debian's programs with their tags of use, and those of packages without tags.

    ``task.jsonl`` has the fields text, label (a list), group (the source package) and id; ``corpus.jsonl`` has text and
    source. A label has at least 50 packages.

    Args:
        packages: The file Packages of a suite, not compressed.
        descriptions: Its file Translation-en, not compressed.
        to: Folder to write to.
    """
    texts = {_key(one): _text(one["Description-en"]) for one in stanzas(descriptions) if "Description-en" in one}
    found = [(one, texts[_key(one)], _tags(one)) for one in stanzas(packages) if _key(one) in texts]
    uses = Counter(tag for _, _, tags in found for tag in tags if _of_use(tag) and not tag.endswith(UNFINISHED))
    labels = {tag for tag, count in uses.items() if count >= LEAST}
    task = [
        {"text": text, "label": sorted(tags & labels), "group": _source(one), "id": one["Package"]}
        for one, text, tags in found
        if KIND in tags and any(map(_of_use, tags))
    ]
    corpus = [{"text": text, "source": _source(one)} for one, text, tags in found if not tags]
    if not task:
        raise InputError(f"{packages} and {descriptions} have no tagged program in common; give files of one suite")
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("task.jsonl", task), ("corpus.jsonl", corpus)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    say(f"debtags: {len(task):,} texts with {len(labels)} labels, and {len(corpus):,} texts beside them in {folder}")


def stanzas(path: str) -> Iterator[Stanza]:
    """The stanzas of a Debian control file, each as its fields; continued lines are joined by line ends."""
    try:
        blocks = Path(path).read_text(encoding="utf-8").split("\n\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; give a file of apt's lists, not compressed") from None
    for block in blocks:
        fields: Stanza = {}
        name = ""
        for line in block.splitlines():
            if line[:1].isspace():
                fields[name] += f"\n{line.strip()}"
            else:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields:
            yield fields


def _key(one: Stanza) -> tuple[str, str]:
    return one.get("Package", ""), one.get("Description-md5", "")


def _text(description: str) -> str:
    """A description as a text: its first line is a sentence, and a line with a dot ends a paragraph."""
    first, *rest = description.splitlines()
    return " ".join([f"{first}.", *(line for line in rest if line != ".")])


def _tags(one: Stanza) -> set[str]:
    return {tag.strip() for tag in one.get("Tag", "").replace("\n", " ").split(",") if tag.strip()}


def _of_use(tag: str) -> bool:
    return tag.partition("::")[0] in FACETS


def _source(one: Stanza) -> str:
    return one.get("Source", one["Package"]).partition(" ")[0]
