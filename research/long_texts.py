"""The command `long-texts`: a task of long texts, made of the Linux kernel's documentation as Debian packages it."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tlm.errors import InputError
from tlm.progress import say

LEAST_WORDS, LEAST_TEXTS = 150, 60  # of a text, and of a label
NOT_A_TOPIC = ("translations",)
# The first heading: a line of text, then a line of one character of punctuation, repeated
_HEADING = re.compile(r"^\S.*\n([=\-~*#^\"])\1{2,}[ \t]*$", re.MULTILINE)


def long_texts(documentation: str, *, to: str) -> None:
    """Write the pages of a folder of reStructuredText with the folder that each is in as its label.

    ``task.jsonl`` has the fields text, label and id. A page begins behind its first heading, which often names the
    label. It has at least 150 words, and a label 60 pages.

    Args:
        documentation: The folder Documentation of Debian's package linux-doc, unpacked.
        to: Folder to write to.
    """
    found = [row for row in pages(Path(documentation)) if len(row["text"].split()) >= LEAST_WORDS]
    sizes = Counter(row["label"] for row in found)
    task = [row for row in found if sizes[row["label"]] >= LEAST_TEXTS]
    if not task:
        raise InputError(
            f"{documentation} has no folder with {LEAST_TEXTS} long pages in .rst or .rst.gz; "
            "give the folder Documentation of linux-doc"
        )
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.jsonl").write_text("".join(json.dumps(row) + "\n" for row in task), encoding="utf-8")
    labels = ", ".join(sorted({row["label"] for row in task}))
    say(f"long-texts: {len(task):,} texts with the labels {labels} in {folder}")


def pages(folder: Path) -> Iterator[dict[str, str]]:
    """The pages in the folders of `folder`, each with its label, in the order of their names."""
    for path in sorted([*folder.rglob("*.rst"), *folder.rglob("*.rst.gz")]):
        name = path.relative_to(folder)
        if len(name.parts) > 1 and name.parts[0] not in NOT_A_TOPIC:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")
            heading = _HEADING.search(text)
            yield {"text": text[heading.end() if heading else 0 :], "label": name.parts[0], "id": str(name)}
