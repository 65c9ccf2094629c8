"""Write the corpus and a task of the demo: ``python -m demo FOLDER [--task api-errors]``.

``FOLDER/corpus.jsonl.gz`` (id, text, source) and ``FOLDER/<task>/{train,dev,test}.jsonl`` (id, text, label, service)
are ordinary input of `load-corpus` and `load-task`. The same installed packages give the same bytes; nothing is
downloaded.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import IO, Any

from demo import errors, kinds
from demo.docstrings import docstrings, packages
from demo.example import SPLITS, Example
from demo.services import Service, model_files, read_service
from tlm.cli import main as cli
from tlm.progress import say, track

MIN_WORDS = 5
TASKS = {task.NAME: task for task in (kinds, errors)}


def main() -> None:
    """Write the files into the folder given on the command line."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Write the corpus and a task of the demo.")
    parser.add_argument("folder", type=Path, help="folder for corpus.jsonl.gz and the task's")
    parser.add_argument("--task", choices=TASKS, default=kinds.NAME, help="which task")
    given = parser.parse_args()
    write(given.folder, task=given.task)


def write(
    folder: Path,
    models: list[Path] | None = None,
    code: list[tuple[str, list[Path]]] | None = None,
    task: str = kinds.NAME,
) -> None:
    """Write corpus and task into `folder`. The test file of the task is written last: if it is there, all files are.

    Args:
        folder: Created if it does not exist.
        models: Service models; by default all that botocore has.
        code: (package, Python files); by default all installed packages.
        task: Name of the task.
    """
    chosen = TASKS[task]
    services = [read_service(path) for path in track(models or model_files(), "services", unit="read")]
    rows, left_out = chosen.examples(services)
    (folder / task).mkdir(parents=True, exist_ok=True)
    documents = corpus(services, rows, packages() if code is None else code, chosen.split_of)
    kinds = _write_jsonl(folder / "corpus.jsonl.gz", documents)
    for split in SPLITS:
        _write_jsonl(folder / task / f"{split}.jsonl", map(asdict, rows[split]))
    say(f"{folder}/corpus.jsonl.gz: {kinds['service']:,} documentation strings, {kinds['package']:,} docstrings")
    say("  from web services and Python packages; nothing from the services of dev and test")
    say(f"{folder}/{task}: {chosen.QUESTION} {len(chosen.labels())} labels, split by service")
    for split in SPLITS:
        count = len({row.service for row in rows[split]})
        found = Counter(row.label for row in rows[split])
        counts = ", ".join(f"{label} {found[label]}" for label in chosen.labels())
        say(f"  {split}: {len(rows[split]):,} texts of {count} services ({counts})")
    say(f"  left out: {', '.join(f'{reason} {count:,}' for reason, count in left_out.items())}")


def corpus(
    services: list[Service],
    rows: dict[str, list[Example]],
    code: list[tuple[str, list[Path]]],
    split_of: Callable[[str], str],
) -> Iterator[dict[str, Any]]:
    """Yield the documents of the corpus: texts of the services in train, then docstrings; each text once.

    All texts of a dev or test service are left out, even if a train service or a package has the same text.
    """
    seen = {row.text for split in ("dev", "test") for row in rows[split]}
    seen.update(text for service in services if split_of(service.name) != "train" for text in service.texts)
    documented = ((f"service:{own.name}", own.texts) for own in services if split_of(own.name) == "train")
    coded = ((f"package:{name}", docstrings(files)) for name, files in track(code, "packages", unit="read"))
    texts: Iterable[str]
    for source, texts in chain(documented, coded):
        number = 0
        for text in texts:
            if text not in seen and len(text.split()) >= MIN_WORDS:
                seen.add(text)
                yield {"id": f"{source}#{number}", "text": text, "source": source}
                number += 1


def _write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Write rows, all or none; return their number by kind of source ("service", "package", "")."""
    part = path.with_name(f".{path.name}.part")
    kinds: Counter[str] = Counter()
    with part.open("wb") as file, _packed(file) if path.suffix == ".gz" else nullcontext(file) as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            kinds[row.get("source", "").partition(":")[0]] += 1
    part.replace(path)
    return kinds


def _packed(file: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)  # without name and time: same bytes


if __name__ == "__main__":
    cli.main(main)
