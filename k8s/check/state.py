"""Print the artifacts and files under a root as JSON: ``python -m k8s.check.state ROOT``."""

import json
import sys

from tlm.artifacts.artifact import MANIFEST, USED, Artifact
from tlm.artifacts.stores import open_store

Contents = dict[str, str]  # kind/key → content
Files = dict[str, tuple[int, float]]  # name → size, modification time


def contents(root: str) -> Contents:
    """The content of every finished artifact."""
    store = open_store(root)
    folders = [file.name.removesuffix(f"/{MANIFEST}") for file in store.list("") if file.name.endswith(f"/{MANIFEST}")]
    artifacts = [folder for folder in folders if folder.count("/") == 1]  # not a checkpoint in progress/key/step
    return {folder: Artifact.open(f"{root}/{folder}").content for folder in sorted(artifacts)}


def files(root: str) -> Files:
    """Every file with its size and modification time, except the records of when artifacts were used."""
    found = open_store(root).list("")
    return {file.name: (file.size, file.modified) for file in found if not file.name.endswith(f"/{USED}")}


if __name__ == "__main__":
    json.dump({"contents": contents(sys.argv[1]), "files": files(sys.argv[1])}, sys.stdout, indent=1, sort_keys=True)
