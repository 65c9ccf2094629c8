"""The plan of a corpus: its parts, and the pieces of large files, as a function of the files alone.

Pieces are lines of JSON, or row groups of parquet, that are read without the rest of the file.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from joblib import cpu_count

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Recipe
from tlm.artifacts.stores.store import ArtifactKind, Ranges, chunks, file_sha256, value_sha256
from tlm.data.parallel import in_threads
from tlm.data.passages import split
from tlm.data.reading.files import Piece, RawFile, check_downloads
from tlm.data.reading.readers import check
from tlm.data.reading.records import LONGEST_LINE, Record, name_of, text_of, too_long
from tlm.errors import InputError
from tlm.progress import track
from tlm.settings.options import Layout

STAGED = pa.schema([("id", "string"), ("text", "string"), ("source", "string")])
LICENSED = STAGED.append(pa.field("license", pa.string()))


def passages(layout: Layout, file: RawFile, row: Record) -> list[tuple[str, ...]]:
    """Return id, text and source of each passage of a row, as in the schema STAGED, or LICENSED. Raises BadRow.

    A licence that is missing, null or empty is "".
    """
    text = text_of(row.values, layout.text_field)
    document = name_of(row.values, layout.id_field, f"{file.name}:{row.line}")
    about = [name_of(row.values, layout.source_field, file.name)]
    if layout.license_field:
        about.append(name_of(row.values, layout.license_field) if row.values.get(layout.license_field) else "")
    parts = split(text, layout.words, layout.overlap)
    if len(parts) == 1:
        return [(document, text, *about)]
    return [(f"{document}#{number}", part, *about) for number, part in enumerate(parts, start=1)]


VERSION = 2
STEP = "load-corpus"
PART: Final = "corpus-part"
BUCKET: Final = "corpus-bucket"
SHARDS: Final = "corpus-shards"
SHARE = 64  # parts of a corpus that is neither small nor large
LARGEST = 1 << 30  # bytes of text in a part
EXPANDS = {"gz": 3, "zst": 4}  # text, compressed; the sizes of parts need no more than an estimate
PARQUET_EXPANDS = 2
BUCKET_BYTES = 1 << 30  # of text, whose digests are sorted at once: some 64 MB
BUCKETS = (16, 512)  # fewest and most


@dataclass(frozen=True)
class Plan:
    """The plan that all who load a corpus in parts share. They find each other's results by the key of the corpus.

    Attributes:
        paths: Addresses of the raw files.
        root: Store to write to.
        settings: Settings of the corpus, with the digests of the files.
        parts: For each part the number of its first file, and that of the file after its last one.
        buckets: How many groups the texts are sorted into by their digests, to find the repeated ones.
        pieces: The pieces of files that are too large for a part, by the number of the file. Each counts as a file.
        max_rejected: Unusable rows to set aside before the work stops, as `load_corpus` takes it.
    """

    paths: tuple[str, ...]
    root: str | None
    settings: dict[str, Any]
    parts: tuple[tuple[int, int], ...]
    buckets: int
    pieces: Mapping[int, Sequence[Piece]]
    max_rejected: int = 10

    @cached_property
    def corpus(self) -> Recipe:
        """The recipe of the corpus; it does not depend on the parts."""
        return Recipe("corpus", STEP, VERSION, self.settings)

    @cached_property
    def _digest(self) -> str:
        """The digest of all that results on the way depend on, which is long where there are many parts."""
        pieces = [[number, *found] for number, found in self.pieces.items()]
        return value_sha256([self.corpus.key, self.parts, self.buckets, pieces])

    @property
    def layout(self) -> Layout:
        """The settings of documents and passages."""
        return Layout(**{name: value for name, value in self.settings.items() if name != "files"})

    def files(self, raw: Sequence[RawFile], number: int) -> list[RawFile]:
        """The files of a part, or their pieces.

        Raises InputError: one is gone, or is not what it was when this plan was made.
        """
        named = self.settings["files"]
        if len(raw) < len(named):
            paths = ", ".join(self.paths)
            raise InputError(f"{paths} had {len(named):,} files and has {len(raw):,} now; start the run again")
        planned = {file.where: facts for file, facts in zip(raw, named, strict=False)}
        start, stop = self.parts[number]
        own = sliced(raw, self.pieces)[start:stop]
        check_downloads(own)
        for file in own:
            name, digest = planned[file.where]
            if (file.name, file.digest()) != (name, file.piece.digest if file.piece else digest):
                raise InputError(f"{file.where} has changed since its corpus was planned; start the run again")
        return own

    def recipe(self, kind: ArtifactKind, number: int) -> Recipe:
        """The recipe of a result on the way to the corpus: one of its parts, say."""
        return Recipe(kind, STEP, VERSION, {"plan": self._digest, "number": number})

    def numbers(self, kind: ArtifactKind) -> range:
        """The numbers of all results of a kind on the way to the corpus."""
        return range(self.buckets if kind == BUCKET else len(self.parts))

    def all(self, kind: ArtifactKind) -> Iterator[Artifact]:
        """The results of a kind, in order. Raises InputError: one is not there."""
        numbers = self.numbers(kind)
        return (_found(self.root, self.corpus.key, kind, number, self.recipe(kind, number).key) for number in numbers)


@lru_cache(maxsize=2048)  # each is needed for every bucket
def _found(root: str | None, corpus: str, kind: str, number: int, key: str) -> Artifact:
    """A finished result on the way to a corpus. Raises InputError if it is not there."""
    artifact = Artifact.find(home(root, ()), kind, key)
    if artifact is None:
        raise InputError(
            f"{kind} {number} of the corpus {corpus} is missing; start the run again, which finds finished parts"
        )
    return artifact


def make_plan(
    paths: Sequence[str], root: str | None, layout: Layout, files: Sequence[RawFile], size: int, max_rejected: int = 10
) -> Plan:
    """Check and hash the files, cut large ones, and plan parts of about `size` bytes of text, or of one file.

    Raises InputError: a file is unreadable or lacks a field; not enough disk space for downloads.
    """
    alone = len(parts_of(files, size)) == 1 and not any(_too_large(file, size) for file in files)
    if alone:  # whoever plans it also reads it
        check_downloads(files)
    buckets, most_buckets = BUCKETS
    while buckets < most_buckets and buckets * BUCKET_BYTES < sum(map(_text, files)):
        buckets *= 2
    checked = in_threads(partial(_named, layout=layout, size=size, keep=alone), files, cpu_count())
    named = list(track(checked, "checking", len(files), "files"))
    settings = {**layout.settings(), "files": [[name, digest] for name, digest, _ in named]}
    pieces = {number: of_file for number, (_, _, of_file) in enumerate(named) if of_file}
    parts = tuple(parts_of(sliced(files, pieces), size))
    return Plan(tuple(paths), root, settings, parts, buckets, pieces, max_rejected)


def _named(file: RawFile, layout: Layout, size: int, keep: bool) -> tuple[str, str, list[Piece]]:
    """Check a file; return its name, its digest, and its pieces if it is too large for a part."""
    check(file, layout.fields, layout.text_field)
    digest = file.digest()
    pieces = cut(file, file.size * size // _text(file)) if _too_large(file, size) else []
    file.check_unchanged()  # else the pieces, and so the corpus, would not be what the digest names
    if not keep:
        file.drop()
    return file.name, digest, pieces


def _too_large(file: RawFile, size: int) -> bool:
    return can_be_cut(file) and _text(file) > size


def sliced(files: Sequence[RawFile], pieces: Mapping[int, Sequence[Piece]]) -> list[RawFile]:
    """Return the files, with their pieces in the places of files that are cut."""
    found: list[RawFile] = []
    for place, file in enumerate(files):
        found += [_piece_of(file, piece) for piece in pieces.get(place, ())] or [file]
    return found


def _piece_of(file: RawFile, piece: Piece) -> RawFile:
    """A piece as a file of its own. Of a remote file, only the piece is downloaded."""
    locate = file.locate if file.locate_ranges is None else partial(file.locate_ranges, piece.ranges)
    return replace(file, piece=piece, size=sum(stop - start for start, stop in piece.ranges), locate=locate)


def part_size(files: Sequence[RawFile], least: int) -> int:
    """The size of parts in bytes: a 64th of all text, but at least `least` and at most a GiB."""
    return min(max(sum(map(_text, files)) // SHARE, least), LARGEST)


def parts_of(files: Sequence[RawFile], size: int) -> list[tuple[int, int]]:
    """The parts, in order. A data set on the Hub, whose size is not known, is a part of its own."""
    parts, first, filled = list[tuple[int, int]](), 0, 0.0
    for number, file in enumerate(files):
        own = float("inf") if file.locate is None else _text(file)
        if number > first and filled + own > size:
            parts.append((first, number))
            first, filled = number, 0.0
        filled += own
    return [*parts, (first, len(files))]


def _text(file: RawFile) -> int:
    """Estimate how much text a file has, in bytes."""
    return file.size * (PARQUET_EXPANDS if file.format == "parquet" else EXPANDS.get(file.compression, 1))


def can_be_cut(file: RawFile) -> bool:
    """Whether reading can begin anywhere in the file: not where it is compressed, or has values of several lines."""
    return file.format == "parquet" or (file.format == "jsonl" and not file.compression)


def cut(file: RawFile, size: int) -> list[Piece]:
    """Cut a file into pieces of about `size` bytes: of lines, or of row groups.

    Raises InputError: a line is too long.
    """
    return list(_groups(file, size) if file.format == "parquet" else _lines(file, size))


def _lines(file: RawFile, size: int) -> Iterator[Piece]:
    path, start, row = file.path, 0, 0
    end = path.stat().st_size  # not the size when it was listed: a log may have grown since
    with path.open("rb") as text:
        while start < end:
            text.seek(start + size - 1)
            longest = len(text.readline(LONGEST_LINE)) == LONGEST_LINE
            stop = min(text.tell(), end)
            ranges = ((start, stop),)
            digest, lines = hashlib.sha256(), 0
            for chunk in chunks(path, ranges):
                digest.update(chunk)
                lines += chunk.count(b"\n")
            if longest:
                raise too_long(file.where, row + lines + 1)
            yield Piece(start, stop, row, ranges, digest.hexdigest())
            start, row = stop, row + lines


def _groups(file: RawFile, size: int) -> Iterator[Piece]:
    path = file.path
    found = pq.read_metadata(path)
    groups = list(map(found.row_group, range(found.num_row_groups)))
    spans, rows = list(map(_span, groups)), [group.num_rows for group in groups]
    footer = (max((stop for _, stop in spans), default=0), path.stat().st_size)
    first = 0
    for last in range(1, len(spans) + 1):
        if last == len(spans) or sum(stop - start for start, stop in spans[first : last + 1]) > size:
            ranges: Ranges = (*spans[first:last], footer)
            yield Piece(first, last, sum(rows[:first]), ranges, file_sha256(path, ranges))
            first = last


def _span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """The bytes of a row group, whose columns stand one after the other."""
    columns = list(map(group.column, range(group.num_columns)))
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return min(starts), max(start + column.total_compressed_size for start, column in zip(starts, columns, strict=True))
