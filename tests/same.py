"""Does changed code still find every artifact that older code made? ``python -m tests.same STORE [--except STEPS]``.

``python -m tests.same STORE --fresh`` makes a store with the older code: the demo, and further steps on its artifacts.
Without --fresh, the present code does the same on that store. The exit code is 1 if an artifact was not found or made
again (but for those of the steps after --except), an older one has other bytes, or `preview` shows something else. What
was made again is removed, so that the next comparison begins with the same store.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).parents[1]
CORPUS, TASK, PREVIEW = "data/corpus.jsonl.gz", "data/service-kinds", "data/preview.md"
MANIFEST, USED, RUN = "manifest.json", "used.json", "run.json"


class Made(NamedTuple):
    """An artifact's step, and the digest of its manifest and files. Read without the code that is to be judged."""

    step: str
    digest: str


def artifacts(store: Path) -> dict[str, Made]:
    """The finished artifacts of a store by their folders."""
    return {path.parent.relative_to(store).as_posix(): made(path) for path in sorted(store.glob(f"*/*/{MANIFEST}"))}


def made(manifest: Path) -> Made:
    digest = hashlib.sha256()
    for path in sorted(manifest.parent.rglob("*")):
        if path.is_file() and path.name not in (USED, RUN):
            digest.update(path.name.encode() + path.read_bytes())
    return Made(json.loads(manifest.read_bytes())["step"], digest.hexdigest())


def repeat(store: Path) -> str:
    """Run the demo and further steps, which find their artifacts or make them; what `preview` shows."""
    places = {"corpus_paths": store / CORPUS, "task_path": store / TASK, "store_root": store}
    changes = [part for name, place in places.items() for part in ("--set", f"{name}={place}")]
    run("pipelines.run", "local", "--params", "pipelines/params/demo.yaml", *changes)

    def of(step: str) -> list[str]:
        return [f"{store}/{folder}" for folder, one in artifacts(store).items() if one.step == step]

    task, tokenizer = of("load-task")[0], of("tokenizer")[0]
    run("research", "retrieval-study", *of("export"))
    run("research", "attention", *of("finetune"), "--task", task, "--examples", "20", "--device", "cpu")
    run("tlm.cli", "import-subset", f"{store}/{TASK}/train.jsonl", "--task", task)
    run("tlm.cli", "tokenize", of("import-subset")[0], tokenizer)
    run("tlm.cli", "mix", *of("evaluate")[:2])
    run("tlm.cli", "export-onnx", of("finetune")[0])
    return "".join(run("tlm.cli", "preview", uri, "--form", "markdown") for uri in (*of("retrieve"), *of("export")))


def run(module: str, *arguments: str) -> str:
    """What a command prints on standard output."""
    print(f"▸ {module} {arguments[0]}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=HOME, check=True, stdout=subprocess.PIPE, text=True).stdout


def by_step(found: Iterable[Made]) -> str:
    return ", ".join(f"{step} {count}" for step, count in sorted(Counter(one.step for one in found).items())) or "none"


def compare(store: Path, excepted: Collection[str]) -> int:
    """Print what was found, made again or changed; 1 if it should not have been."""
    before = artifacts(store)
    for note in store.glob(f"*/*/{USED}"):
        os.utime(note, (0, 0))  # a younger one shows that the artifact was found
    try:
        shown = repeat(store)
    finally:
        after = artifacts(store)
        for folder in after.keys() - before.keys():
            shutil.rmtree(store / folder)
    used = {str(note.parent.relative_to(store)) for note in store.glob(f"*/*/{USED}") if note.stat().st_mtime}
    found = [one for folder, one in before.items() if folder in used]
    lost = [one for folder, one in before.items() if folder not in used]
    again = [after[folder] for folder in after.keys() - before.keys()]
    changed = [one for folder, one in before.items() if after.get(folder) != one]
    otherwise = shown != (store / PREVIEW).read_text("utf-8")
    for name, those in {"found": found, "not found": lost, "made again": again, "changed": changed}.items():
        print(f"{name}: {by_step(those)}")
    print("preview: " + ("shows something else" if otherwise else "the same"))
    return int(bool(changed or otherwise or {one.step for one in (*lost, *again)} - set(excepted)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.same", description=__doc__)
    parser.add_argument("store", help="folder of the store, with the demo's data in it")
    parser.add_argument("--fresh", action="store_true", help="make the store")
    parser.add_argument("--except", default="", dest="excepted", metavar="STEPS", help="may be made again: a,b")
    given = parser.parse_args()
    store = Path(given.store).absolute()
    if given.fresh == (store / PREVIEW).exists():
        parser.error(f"{store} {'was made already' if given.fresh else 'has no preview.md: make it with --fresh'}")
    if not given.fresh:
        return compare(store, given.excepted.split(","))
    run("demo", str(store / "data"))  # into the store: a later demo may have another corpus
    (store / PREVIEW).write_text(repeat(store), "utf-8")
    print("made", by_step(artifacts(store).values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
