"""Ways out of a root: names in manifests, links in folders, keys on an S3 server that is not honest."""

import http.server
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.faults.refusals import settings
from tests.making import make
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Progress
from tlm.artifacts.stores import open_store
from tlm.artifacts.stores.store import signed_json
from tlm.cli.upkeep import download, gc
from tlm.data.corpus.load import load_corpus
from tlm.errors import InputError
from tlm.training.input.located import model_folder

SECRET = b"a file of somebody else\n"
UPWARD = (
    "..", ".", "", "...", "a", "~", "a b", "c:", "%2e%2e", "..%2f", "\\..\\", "\n", "\0", "‥", "．．", "$HOME", "*",
)  # fmt: skip


def names(count: int, seed: int) -> list[str]:
    """`count` names that are none of an artifact's files."""
    chance = random.Random(seed)
    found = ["../secret", "/etc/passwd", "a/../../secret", "..", ".", "a//b", "./a", "a/", "/", "//host/x", "a\\..\\b"]
    while len(found) < count:
        name = "/".join(chance.choice(UPWARD) for _ in range(chance.randrange(1, 6)))
        if {"..", ".", ""} & set(name.split("/")) or not set(name) <= {*"abc./"}:
            found.append(name)
    return found[:count]


def manifests(root: str, chosen: list[str]) -> Iterator[str]:
    """Artifacts whose manifest, whole and with the right digests, names a file elsewhere; why one was read, or ''."""
    made = make(root)
    store, place = made.store, made.folder_name
    for number, name in enumerate(chosen):
        fields = made.manifest.model_dump()
        fields["files"][0]["name"], fields["key"] = name, f"{number:024x}"
        there = f"{place.split('/')[0]}/{fields['key']}"
        store.write(f"{there}/manifest.json", signed_json(fields))
        yield refused(lambda there=there: _read_all(f"{store.root}/{there}"), f"the name {name!r}")
        store.delete(f"{there}/manifest.json")


def _read_all(uri: str) -> None:
    artifact = Artifact.open(uri)
    for entry in artifact.entries():
        artifact.verified(entry)


def refused(trial: Callable[[], object], what: str) -> str:
    """'' if it is refused with a sentence, else what happened instead."""
    try:
        trial()
    except InputError:
        return ""
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    return f"{what} was taken"


PLACES = {
    "file": "hits/*/numbers-*", "folder": "hits/*/model-*", "artifact": "hits/*", "kind": "hits",
    "manifest": "hits/*/manifest.json", "progress": "progress", "absolute": "hits/*/more-*",
}  # fmt: skip


def links(folder: Path) -> Iterator[str]:
    """Links that lead out of a root, in every place of it, each read, written, fetched and removed through."""
    for place, pattern in PLACES.items():
        yield from _through(place, pattern, folder / place, folder / "outside" / place)


def _through(place: str, pattern: str, root: Path, target: Path) -> Iterator[str]:
    made, work = make(str(root)), Progress("0" * 24, str(root))
    work.save(1, lambda there: _write(there / "state"))
    (moved,) = root.glob(pattern)
    target.parent.mkdir(parents=True, exist_ok=True)
    moved.rename(target)
    moved.symlink_to(target if place == "absolute" else os.path.relpath(target, moved.parent))
    before = _state(target.parent)
    if place == "progress":
        yield refused(lambda: work.save(2, lambda there: _write(there / "state")), "writing through a link")
        yield refused(lambda: work.store.read(f"{work.kind}/step-000000001/manifest.json"), "reading through a link")
    else:
        yield refused(lambda: _read_all(made.uri), f"reading through a link for the {place}")
        yield refused(
            lambda: download(made.uri, str(root / "copy"), force=True), f"downloading through one for the {place}"
        )
    with suppress(InputError):
        gc(keep_runs=0, unused_days=0, delete=True, root=str(root))
    yield "" if _state(target.parent) == before else f"removing through a link for the {place} reached the other side"


def _write(path: Path) -> None:
    path.write_bytes(SECRET)


def _state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def dishonest_s3(objects: dict[str, bytes]) -> Iterator[str]:
    """A server that lists and gives these keys, whatever they are; its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            key = unquote(parts.path).split("/", 2)[2:]
            asked = parse_qs(parts.query)
            if "list-type" in asked:
                prefix = asked.get("prefix", [""])[0]
                found = "".join(
                    f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                    for name, data in objects.items() if name.startswith(prefix)
                )  # fmt: skip
                whole = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
                self.answer(200, whole.encode())
            elif key and key[0] in objects:
                self.answer(200, objects[key[0]])
            else:
                self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

        do_HEAD = do_GET

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/xml")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def keys(folder: Path, chosen: list[str]) -> Iterator[str]:
    """Objects whose keys would leave the folder that they are downloaded to: as corpus, as model, out of a store."""
    (folder / "inside").mkdir(parents=True)
    for key in (name for name in chosen if ".." in name.split("/") and "\0" not in name):
        depth = f"a/{key}".rstrip("/")
        objects = {f"{depth}/{name}": b'{"text": "x"}\n' for name in ("c.jsonl", "config.json", "model.safetensors")}
        with (
            dishonest_s3(objects) as url,
            settings(AWS_ENDPOINT_URL_S3=url, TLM_CACHE=str(folder / "inside" / "cache")),
        ):
            places = (
                lambda d=depth: load_corpus([f"s3://bucket/{d}/c.jsonl"], root=str(folder / "root")),
                lambda d=depth: model_folder(f"s3://bucket/{d}").__enter__(),
                lambda d=depth: open_store("s3://bucket").local(f"{d}/config.json"),
            )
            for place in places:
                yield refused(place, f"the key {depth!r}")
    strays = [path for path in folder.rglob("*") if path.is_file() and path.is_relative_to(folder / "root") is False]
    yield "" if not strays else f"written: {strays[:3]}"
