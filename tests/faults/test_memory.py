"""Input of any size in bounded memory: a gigabyte in one line, one row, one value; bombs of all kinds."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.faults.making import parquet, squeezed

pytestmark = pytest.mark.slow

HOME = Path(__file__).parents[2]
MOST = 600  # MiB; the libraries alone take some 230, and a line of 64 MiB may be there thrice
MEGABYTE = b"x" * (1 << 20)
LONG_LINE = ": the line is longer than 64 MiB; expected one record per line"
LONG_ROW = ": the row that begins here is longer than 64 MiB; is a closing quote missing?"


def twins(path: Path) -> None:
    """100,000 rows with the same 20 MB as id: a dictionary of one entry; 2 TB when it is written out."""
    ids = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), ["y" * 20_000_000])
    texts = pa.array(["a", *[None] * 99_999], pa.string())
    path.write_bytes(parquet({"text": texts, "id": ids}, dictionary_pagesize_limit=1 << 28, compression="zstd"))


def quoted(path: Path) -> None:
    """A value of 60 MB in quotes, as spreadsheets write them."""
    path.write_bytes(b'text\tid\na\t"' + MEGABYTE * 60 + b'"\n' + b"\xff\n" * 11)


CASES = {
    "c.jsonl.gz": (squeezed([(b'{"text": "', 1), (MEGABYTE, 100), (b'"}\n', 1)], "gz"), f"c.jsonl.gz:1{LONG_LINE}"),
    "c.jsonl.zst": (squeezed([(b'{"text": "', 1), (MEGABYTE, 1024), (b'"}\n', 1)], "zst"), f"c.jsonl.zst:1{LONG_LINE}"),
    "c.csv.zst": (squeezed([(b"text\n", 1), (MEGABYTE, 1024)], "zst"), f"c.csv.zst:2{LONG_LINE}"),
    "c.tsv.zst": (squeezed([(b"text\n", 1), (MEGABYTE, 1024)], "zst"), f"c.tsv.zst:2{LONG_LINE}"),
    "c.txt.zst": (squeezed([(b"text\n", 1), (MEGABYTE, 1024)], "zst"), f"c.txt.zst:2{LONG_LINE}"),
    "one value of many lines.csv.zst": (
        squeezed([(b'text\n"', 1), (MEGABYTE + b"\n", 1024), (b'"\n', 1)], "zst"),
        f"lines.csv.zst:2{LONG_ROW}",
    ),
    "many values of two lines.csv.zst": (
        squeezed([(b"text\n", 1), (b'"a\nb%s",' % (b" " * 99) * 10_000, 100)], "zst"),
        f"lines.csv.zst:2{LONG_ROW}",
    ),
    "short lines.jsonl.zst": (
        squeezed([(b'{"text": "a"}\n', 1), (b" " * 65_535 + b"\n", 5000)], "zst"),
        "expands to more than 250 times its size",
    ),
    "id twins.parquet": (twins, "twins.parquet expands to more than 250 times its size"),
    "id quoted.tsv": (quoted, "11 of 12 rows cannot be used (11 invalid UTF-8)"),
}


CHILD = """
import sys
from tlm.cli import main as cli
from tlm.artifacts.spending import peak_memory
for name in sys.argv[1:]:
    sys.argv = ["tlm", "load-corpus", name, "--root", "root", *["--id-field", "id"] * ("id" in name)]
    try:
        cli.main()
    except SystemExit as end:
        print(end.code, peak_memory())
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, float, str]]:
    """By file: exit code, peak of memory until then in MiB, sentence. One process, as starting takes the most time."""
    folder = tmp_path_factory.mktemp("memory")
    for name, (write, _) in CASES.items():
        write(folder / name)
    # a fixed threshold, also for Arrow, so that what one file took goes back before the next is read
    system = {"MALLOC_MMAP_THRESHOLD_": "131072", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    environment = {**os.environ, "PYTHONPATH": str(HOME), **system}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *CASES], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    told = [line.split() for line in done.stdout.splitlines()]
    sentences = [line for line in done.stderr.splitlines() if line.startswith("tlm: ")]
    return {
        name: (int(code), int(peak) / 2**20, sentence)
        for name, (code, peak), sentence in zip(CASES, told, sentences, strict=True)
    }


@pytest.mark.parametrize("name", CASES)
def test_a_gigabyte_is_refused_in_bounded_memory(name, answers):
    code, peak, sentence = answers[name]
    assert CASES[name][1] in sentence
    assert code == 2
    assert peak < MOST
