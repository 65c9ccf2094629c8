"""The kinds of artifacts, and which files of a store belong to them; a store may hold files of others as well."""

import re
from typing import Literal, TypeAlias, get_args

ArtifactKind: TypeAlias = Literal[
    "checkpoint", "corpus", "corpus-bucket", "corpus-part", "corpus-plan", "corpus-shards", "hits", "index", "metrics",
    "model", "report", "soft-labels", "study", "subset", "task", "tokenizer", "tokens",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(ArtifactKind)
_OURS = re.compile(rf"((?:{'|'.join(KINDS)})/[0-9a-f]{{24}}|progress/[0-9a-f]{{24}}/step-[0-9]+)/")


def folder_of(name: str) -> str:
    """Return the folder of the artifact or snapshot that a file of a store belongs to; "" if it is not ours.

    Args:
        name: Path of the file below the root, such as ``model/0123…/manifest.json``.
    """
    found = _OURS.match(name)
    return found[1] if found else ""
