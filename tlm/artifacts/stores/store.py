"""The interface of a store, the names and digests of its files, and the addresses that may be used.

``TLM_HTTP_HOSTS`` lists the hosts that may be used without TLS, separated by commas; this machine always may.
``TLM_BUCKETS`` lists the S3 buckets that may be used, separated by commas; if it is not set, all may.
"""

import hashlib
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args
from urllib.parse import urlsplit

from tlm.errors import InputError, reason

SIGNATURE = "sha256"
CHUNK = 1 << 20

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # bytes of a file: the first of each range, and the one after its last


def file_sha256(path: Path, ranges: Ranges | None = None) -> str:
    """Return the sha256 of a file, or of some of its bytes, in hex."""
    digest = hashlib.sha256()
    for chunk in chunks(path, ((0, path.stat().st_size),) if ranges is None else ranges):
        digest.update(chunk)
    return digest.hexdigest()


def chunks(path: Path, ranges: Ranges) -> Iterator[bytes]:
    """Read some bytes of a file, a MiB at a time."""
    with path.open("rb") as file:
        for start, stop in ranges:
            file.seek(start)
            while start < stop and (chunk := file.read(min(CHUNK, stop - start))):
                start += len(chunk)
                yield chunk


def value_sha256(value: Any) -> str:
    """Return the sha256, in hex, of a plain value (dict, list, str, number, None) in canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def signed_json(facts: dict[str, Any]) -> bytes:
    """Return `facts` as a line of canonical JSON, with their digest under ``sha256``."""
    return canonical_json({**facts, SIGNATURE: value_sha256(facts)}) + b"\n"


def signed_facts(data: bytes) -> dict[str, Any] | None:
    """Return the facts that `signed_json` wrote; None if they are not as they were written."""
    with suppress(ValueError, AttributeError, RecursionError):  # no JSON, no object, or nested too deeply
        facts: dict[str, Any] = json.loads(data)
        if facts.pop(SIGNATURE, None) == value_sha256(facts):
            return facts
    return None


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON with sorted keys, no spaces and no NaN, so that equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


@dataclass(frozen=True)
class Stored:
    """A file in a store.

    Attributes:
        name: Path below the root.
        size: Bytes.
        modified: Time of writing, in seconds since 1970.
    """

    name: str
    size: int
    modified: float


class Store(Protocol):
    """Files under a root. Their names are relative POSIX paths.

    Attributes:
        root: Address of the store, as `open_store` takes it.
    """

    root: str

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file, or None if there is none."""

    def add(self, name: str, source: Path) -> None:
        """Publish the local file `source` as `name`, atomically; the local file may be moved."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, atomically, and replace one of that name."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file, atomically, unless one of that name exists: then change nothing and return False."""

    def local(self, name: str) -> Path:
        """Return the path of the file on this machine, after a download if necessary; it may not exist."""

    def forget(self, name: str) -> None:
        """Remove a damaged download; a store in a local folder does nothing."""

    def list(self, prefix: str) -> Iterator[Stored]:
        """Yield all files whose names begin with `prefix`."""

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        """Yield the names of our uploads that began before that time (seconds since 1970) and never ended.

        With `delete` they are removed. Uploads of others (`folder_of`) are left alone.
        """

    def scratch(self) -> Path:
        """Return a folder on this machine to prepare files in; `add` is cheap from there."""


HTTP_HOSTS, BUCKETS = "TLM_HTTP_HOSTS", "TLM_BUCKETS"
# Link-local addresses, and other addresses of the metadata services of clouds, which hand out credentials.
_OF_CLOUDS = "100.100.100.200 168.63.129.16 fd00:42::42 fd00:c1::a9fe:a9fe fd00:ec2::/32 fd20:ce::/32"
FORBIDDEN = tuple(map(ip_network, f"169.254.0.0/16 fe80::/10 {_OF_CLOUDS}".split()))
_NAT64 = ip_network("64:ff9b::/96")


def trusting(authority: Path | None) -> ssl.SSLContext:
    """Settings of TLS that trust the certificates in a file, or else the usual ones, as lenient on every Python.

    From 3.13 on, Python refuses authorities without some extensions, which Elasticsearch, EKS and MicroK8s made.

    Raises InputError: the file holds no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:  # also those of ssl
        raise InputError(f"{authority} holds no certificate ({reason(error)}); expected PEM") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def tls_cure(said: str, otherwise: str) -> str:
    """What to do about an error of TLS: `otherwise`, which is about the authority, unless it says another cause."""
    if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER_FAILURE" in said:  # of newer OpenSSL
        return "what answers there has no TLS: give an http:// address"
    return "give a host that the certificate names" if "certificate is not valid for" in said else otherwise


def check_url(url: str, setting: str) -> None:
    """Raise InputError unless the server at `url`, from the environment variable `setting`, may be used."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower() if parts.scheme in ("http", "https") and parts.port != 0 else ""
    except ValueError:  # brackets without an address, a port that is no number
        host = ""
    spaced = re.search(r"\s", url)
    if spaced or not host:
        shown = url.rpartition("@")[2] if spaced or "://" not in url else url  # errors hide passwords of URLs only
        raise InputError(f"{setting} is '{shown}'; expected https://host:port")
    found = _addresses(host)
    if any(address in network for address in found for network in FORBIDDEN):
        raise InputError(f"{setting} is {url}, an address where clouds serve credentials; name another server")
    is_this_machine = bool(found) and all(address.is_loopback for address in found)
    if parts.scheme == "http" and not is_this_machine and host not in _listed(HTTP_HOSTS):
        raise InputError(
            f"{setting} is {url}: without TLS anybody on the network can read keys and data; give https://, or add "
            f"{host} to {HTTP_HOSTS} if you trust the network"
        )


def check_bucket(bucket: str, address: str) -> None:
    """Raise InputError if there is a list of buckets, and the bucket of `address` is not on it."""
    listed = _listed(BUCKETS)
    if listed and bucket not in listed:
        raise InputError(f"{address}: {BUCKETS} does not name the bucket '{bucket}'; add it, or use another")


def _listed(variable: str) -> set[str]:
    return {name.strip() for name in os.environ.get(variable, "").split(",")} - {""}


def _addresses(host: str) -> list[IPv4Address | IPv6Address]:
    """Return the addresses that this machine resolves `host` to; none if it is unknown."""
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return []
    return [_plain(ip_address(address)) for address in sorted(found)]


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address is mapped from, if it is."""
    if isinstance(address, IPv4Address):
        return address
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address.ipv4_mapped or address


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
