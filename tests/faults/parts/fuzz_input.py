"""The same properties on what atheris (coverage-guided) thinks of: ``python -m tests.faults.parts.fuzz_input readers``.

Ends after --seconds with libFuzzer's counts and code 0, or with a traceback, the input in a file, and code 77.
"""

import argparse
import contextlib
import gzip
import json
import sys
import tempfile
from pathlib import Path

import atheris

from tlm.data.reading import zstd

with atheris.instrument_imports(include=["tlm", "csv", "json"]):
    from tests.faults import properties
    from tlm.artifacts.artifact import Manifest, content_digest
    from tlm.artifacts.stores.store import signed_json

MANIFEST = Manifest(
    kind="corpus", key="0" * 24, content=content_digest([], {}), step="s", version=1, settings={}, inputs={},
    counts={}, details={}, files=[],
)  # fmt: skip
LINES = b'{"text": "a\\ud83d\\ude42", "n": [1, 2.5e3, null]}\n\n{"text": "b"}\n'
TABLE = b'text,n\n"a ""b"",\nc",1\nd,2\n'
TEXT = "The U.S.A.'s first state-of-the-art, 3.14 e\u0301 我 カナ 👩\u200d🏽 1\ufe0f\u20e3".encode()


def readers(data: bytes) -> None:
    """The first byte says what kind of file the others are."""
    if data:
        properties.reading(data[1:], properties.READABLE[data[0] % len(properties.READABLE)])


def manifests(data: bytes) -> None:
    """The bytes as they are; and a good manifest, the first byte of which says which field becomes the others."""
    properties.manifest(data)
    fields, signed = MANIFEST.model_dump(), b""
    with contextlib.suppress(Exception):  # of our own attempt to change and sign it
        fields[sorted(fields)[data[0] % len(fields)]] = json.loads(data[1:])
        signed = signed_json(fields)
    properties.manifest(signed)


def queries(data: bytes) -> None:
    """UTF-8 where it is; lone surrogates elsewhere."""
    properties.querying(data.decode(errors="surrogateescape"))


def examples() -> dict[str, list[bytes]]:
    """What to begin with."""
    plain = {".csv": TABLE, ".tsv": TABLE.replace(b",", b"\t"), ".parquet": properties.parquet_of(["a", None])}
    packed = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}
    files = [
        bytes([number]) + packed[Path(ending).suffix if ending.count(".") > 1 else ""](
            plain.get(f".{ending.split('.')[1]}", LINES)
        )
        for number, ending in enumerate(properties.READABLE)
    ]  # fmt: skip
    entry = json.dumps([{"name": "a/b-0.parquet", "size": 1, "sha256": "0" * 64, "rows": 2}]).encode()
    fields = [bytes([number]) + entry for number in range(len(Manifest.model_fields))]
    return {"readers": files, "manifest": [MANIFEST.to_bytes(), *fields], "queries": [TEXT]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=examples())
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    target = {"readers": readers, "manifest": manifests, "queries": queries}[given.target]
    begin = tempfile.mkdtemp()
    for number, data in enumerate(examples()[given.target]):
        Path(begin, str(number)).write_bytes(data)
    options = {
        "max_total_time": given.seconds, "seed": given.seed, "timeout": 30, "rss_limit_mb": 4096, "max_len": 4096,
        "print_final_stats": 1, "artifact_prefix": f"{tempfile.gettempdir()}/fuzz-{given.target}-",
    }  # fmt: skip
    atheris.Setup([sys.argv[0], begin, *(f"-{name}={value}" for name, value in options.items())], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
