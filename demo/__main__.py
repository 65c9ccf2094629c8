"""Write the corpus and a task of the demo: ``python -m demo FOLDER [--task api-errors]``.

``FOLDER/corpus.jsonl.gz`` (id, text, source) and ``FOLDER/<task>/{train,dev,test}.jsonl`` (id, text, label, service)
are ordinary input of `load-corpus` and `load-task`. They are made of packages in the versions of ``requirements.txt``,
which are downloaded once, and are the same bytes everywhere.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

from demo import errors, kinds
from demo.docstrings import docstrings
from demo.example import SPLITS, Example
from demo.packages import wheels
from demo.services import DISCOVERED, MODEL, Service, descriptions, newest, read_service
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


def write(folder: Path, packages: list[Path] | None = None, task: str = kinds.NAME, every: int = 1) -> None:
    """Write corpus and task into `folder`. The test file of the task is written last: if it is there, all files are.

    Args:
        folder: Created if it does not exist.
        packages: Wheels; by default those of ``requirements.txt``.
        task: Name of the task.
        every: 8 takes every eighth service, and every eighth document of the corpus.
    """
    chosen = TASKS[task]
    with ExitStack() as stack:
        opened = [stack.enter_context(ZipFile(path)) for path in (wheels() if packages is None else packages)]
        models = [(wheel, *model) for wheel in opened for model in newest(wheel, MODEL).items()][::every]
        services = [read_service(*model) for model in track(models, "services", unit="read")]
        rows, left_out = chosen.examples(services)
        (folder / task).mkdir(parents=True, exist_ok=True)
        documents = corpus(services, rows, chain.from_iterable(map(other_texts, opened)), chosen.split_of)
        count = _write_jsonl(folder / "corpus.jsonl.gz", islice(documents, 0, None, every))
    for split in SPLITS:
        _write_jsonl(folder / task / f"{split}.jsonl", map(asdict, rows[split]))
    say(
        f"{folder}/corpus.jsonl.gz: {count['service']:,} texts of Amazon's web services, none of those of dev and test;"
    )
    say(f"  {count['google']:,} texts of Google's, and {count['package']:,} docstrings of Python packages")
    say(f"{folder}/{task}: {chosen.QUESTION} {len(chosen.labels())} labels, split by service")
    for split in SPLITS:
        found = Counter(row.label for row in rows[split])
        counts = ", ".join(f"{label} {found[label]}" for label in chosen.labels())
        say(f"  {split}: {len(rows[split]):,} texts of {len({row.service for row in rows[split]})} services ({counts})")
    say(f"  left out: {', '.join(f'{reason} {number:,}' for reason, number in left_out.items())}")


def other_texts(wheel: ZipFile) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield (source, texts) for each of Google's APIs in a package, then for its docstrings."""
    for name, file in newest(wheel, DISCOVERED).items():
        yield f"google:{name}", descriptions(wheel, file)
    yield f"package:{Path(str(wheel.filename)).name.partition('-')[0]}", docstrings(wheel)


def corpus(
    services: list[Service],
    rows: dict[str, list[Example]],
    others: Iterable[tuple[str, Iterable[str]]],
    split_of: Callable[[str], str],
) -> Iterator[dict[str, Any]]:
    """Yield the documents of the corpus: texts of the services in train, then of the others; each text once.

    All texts of a dev or test service are left out, even if a train service or a package has the same text.
    """
    seen = {row.text for split in ("dev", "test") for row in rows[split]}
    seen.update(text for service in services if split_of(service.name) != "train" for text in service.texts)
    documented = ((f"service:{own.name}", own.texts) for own in services if split_of(own.name) == "train")
    texts: Iterable[str]
    for source, texts in chain(documented, others):
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
