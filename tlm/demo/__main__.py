"""Write the demo's corpus and task: ``python -m tlm.demo FOLDER``.

``FOLDER/corpus.jsonl.gz`` (id, text, source) and ``FOLDER/api-errors/{train,dev,test}.jsonl`` (id, text, label)
are ordinary input of `load-corpus` and `load-task`. The same installed versions give the same bytes; nothing is
downloaded.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from tlm.demo.docstrings import docstrings, packages
from tlm.demo.services import Service, model_files, read_service
from tlm.demo.task import LABELS, SPLITS, Example, examples, split_of
from tlm.errors import TlmError
from tlm.progress import say, track

MIN_WORDS = 5


def main() -> int:
    """Write the files into the folder named on the command line; 0, or the exit code of the error that was said."""
    parser = argparse.ArgumentParser(prog="python -m tlm.demo", description="Write the demo's corpus and task.")
    parser.add_argument("folder", type=Path, help="where corpus.jsonl.gz and api-errors/ go")
    folder = parser.parse_args().folder
    try:
        write(folder)
    except TlmError as error:
        say(f"error: {error}")
        return error.exit_code
    except OSError as error:
        say(f"error: cannot write the demo's files to {folder}: {error.strerror or error}; give a folder with space")
        return 2
    return 0


def write(folder: Path, models: list[Path] | None = None, code: list[tuple[str, list[Path]]] | None = None) -> None:
    """Write corpus and task into `folder`; the task's test file comes last, so where it is, all is there.

    Args:
        folder: Made if it is not there.
        models: Service models; all that botocore has, if not given.
        code: (package, Python files); all that is installed, if not given.
    """
    services = [read_service(path) for path in track(models or model_files(), "services", unit="read")]
    rows, left_out = examples(services)
    (folder / "api-errors").mkdir(parents=True, exist_ok=True)
    sources = _write_jsonl(folder / "corpus.jsonl.gz", corpus(services, rows, packages() if code is None else code))
    for split in SPLITS:
        _write_jsonl(folder / "api-errors" / f"{split}.jsonl", (asdict(row) for row in rows[split]))
    _summary(folder, services, rows, left_out, sources)


def corpus(
    services: Iterable[Service], rows: dict[str, list[Example]], code: Iterable[tuple[str, list[Path]]]
) -> Iterator[dict[str, Any]]:
    """Corpus documents: what the services of the train split say, then docstrings; each text once.

    Every string of a dev or test service is left out, even where a train service or a package has the same.
    """
    services = list(services)
    seen = {row.text for split in ("dev", "test") for row in rows[split]}
    seen.update(text for service in services if split_of(service.name) != "train" for text in service.texts)
    sources = [(f"service:{service.name}", service.texts) for service in services if split_of(service.name) == "train"]
    for source, texts in sources:
        yield from _documents(source, texts, seen)
    for name, files in track(list(code), "packages", unit="read"):
        yield from _documents(f"package:{name}", docstrings(files), seen)


def _documents(source: str, texts: Iterable[str], seen: set[str]) -> Iterator[dict[str, Any]]:
    number = 0
    for text in texts:
        if text not in seen and len(text.split()) >= MIN_WORDS:
            seen.add(text)
            yield {"id": f"{source}#{number}", "text": text, "source": source}
            number += 1


def _write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Write rows, whole or not at all; how many there are by kind of source ("service", "package", "")."""
    part = path.with_name(f".{path.name}.part")
    kinds: Counter[str] = Counter()
    with part.open("wb") as file, _packed(file, path) as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            kinds[row.get("source", "").partition(":")[0]] += 1
    part.replace(path)
    return kinds


def _packed(file: IO[bytes], path: Path) -> IO[bytes]:
    if path.suffix != ".gz":
        return file
    return gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)  # type: ignore[return-value]  # no name, no time: same bytes


def _summary(
    folder: Path,
    services: list[Service],
    rows: dict[str, list[Example]],
    left_out: dict[str, int],
    sources: Counter[str],
) -> None:
    say(f"{folder}/corpus.jsonl.gz: {sources['service']:,} documentation strings, {sources['package']:,} docstrings")
    say("  what web services and Python packages say of themselves; nothing of the services of dev and test")
    say(f"{folder}/api-errors: which handling does an API error ask for? {len(LABELS)} labels, split by service")
    for split in SPLITS:
        names = {service.name for service in services if split_of(service.name) == split}
        labels = Counter(row.label for row in rows[split])
        counts = ", ".join(f"{label} {labels[label]}" for label in LABELS)
        say(f"  {split}: {len(rows[split]):,} texts of {len(names)} services ({counts})")
    say(f"  left out: {', '.join(f'{reason} {count:,}' for reason, count in left_out.items())}")


if __name__ == "__main__":
    sys.exit(main())
