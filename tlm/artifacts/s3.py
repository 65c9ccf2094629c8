"""A store in an S3 bucket, by boto3's default chain of credentials and ``AWS_ENDPOINT_URL_S3``."""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ResponseStreamingError,
)
from botocore.exceptions import ConnectionError as NoConnection
from urllib3.exceptions import HTTPError

from tlm.artifacts.digest import value_sha256
from tlm.artifacts.endpoints import check_bucket, check_url
from tlm.artifacts.scratch import cache_folder
from tlm.artifacts.store import Stored
from tlm.errors import InputError, Interrupted
from tlm.progress import say

T = TypeVar("T")

CONFLICT_TRIES = 8
BROKEN = (HTTPError, IncompleteReadError, ResponseStreamingError)  # in the middle of an answer
PAUSES = (0, 0.5, 1, 2, 4, 8, 16, 16, 16)  # seconds; botocore's own end after ten, and are refused to whom fails often
PASSING = (408, 429)
BUCKET = re.compile(r"[A-Za-z0-9._-]+|arn:[A-Za-z0-9._:-]+")
ABSENT = ("NoSuchKey", "404")


class S3Store:
    """Objects under ``s3://bucket/prefix``; creation is conditional (``If-None-Match: *``)."""

    def __init__(self, root: str) -> None:
        self.bucket, _, prefix = root.removeprefix("s3://").strip("/").partition("/")
        if not BUCKET.fullmatch(self.bucket):
            raise InputError(f"root '{root}' names no bucket; give s3://bucket or s3://bucket/prefix")
        check_bucket(self.bucket, root)
        self.root = f"s3://{self.bucket}/{prefix}".rstrip("/")
        self.prefix = f"{prefix}/" if prefix else ""
        self.cache = cache_folder() / value_sha256(self.root)[:16]
        self.client = _client(self.root)
        self.answered = False  # until then a failure is a setting at fault, later it is an interruption

    def read(self, name: str) -> bytes | None:
        with self._said(f"reading {name}"):
            try:
                return self._patiently(lambda: self._read(name))
            except ClientError as error:
                if _code(error) not in ABSENT:
                    raise
                return None

    def _read(self, name: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read())

    def add(self, name: str, source: Path) -> None:
        with self._said(f"writing {name}"):
            self._patiently(lambda: self._upload(name, source))

    def _upload(self, name: str, source: Path) -> None:
        with source.open("rb") as file:
            self.client.upload_fileobj(file, self.bucket, self.prefix + name)

    def write(self, name: str, data: bytes) -> None:
        with self._said(f"writing {name}"):
            self._patiently(lambda: self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data))

    def create(self, name: str, data: bytes) -> bool:
        with self._said(f"creating {name}"):
            for attempt in range(CONFLICT_TRIES):
                try:
                    self._patiently(lambda: self._put_new(name, data))
                    return True
                except ClientError as error:
                    if _code(error) in ("PreconditionFailed", "412"):
                        return self._put_over_marker(name, data)
                    if _code(error) not in ("ConditionalRequestConflict", "409") or attempt == CONFLICT_TRIES - 1:
                        raise
                    time.sleep(0.1 * 2**attempt)
        return False

    def _put_new(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data, IfNoneMatch="*")

    def _put_over_marker(self, name: str, data: bytes) -> bool:
        """Where versions are kept, some servers (not Amazon's) take the mark that a deletion left for an object."""
        if self.read(name) is not None:
            return False
        self.write(name, data)
        return True

    def local(self, name: str) -> Path:
        if {"", ".", ".."} & set(name.split("/")):  # legal as a key, but it would lead out of the cache
            raise InputError(f"{self.root}/{name}: no path on a disk can have such parts; rename the object")
        path = self.cache / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
            os.close(handle)
            try:
                with self._said(f"reading {name}"):
                    self._patiently(lambda: self._download(name, part, path))
            finally:
                Path(part).unlink(missing_ok=True)
        return path

    def _download(self, name: str, part: str, path: Path) -> None:
        try:
            self.client.download_file(self.bucket, self.prefix + name, part)
        except ClientError as error:
            if _code(error) not in ABSENT:
                raise
        else:
            Path(part).replace(path)

    def forget(self, name: str) -> None:
        (self.cache / name).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[Stored]:
        with self._said(f"listing {prefix}"):
            following: dict[str, str] | None = {}
            while following is not None:
                page = self._patiently(partial(self._page, prefix, following))
                for item in page.get("Contents", []):
                    name = item["Key"].removeprefix(self.prefix)
                    yield Stored(name, item["Size"], item["LastModified"].timestamp())
                token = page.get("NextContinuationToken")
                following = {"ContinuationToken": token} if token else None

    def _page(self, prefix: str, following: dict[str, str]) -> dict[str, Any]:
        page: dict[str, Any] = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix + prefix, **following)
        return page

    def delete(self, name: str) -> None:
        with self._said(f"removing {name}"):
            self._patiently(lambda: self.client.delete_object(Bucket=self.bucket, Key=self.prefix + name))

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        with self._said("listing unfinished uploads"):
            pages = self.client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix):
                for upload in page.get("Uploads", []):
                    if upload["Initiated"].timestamp() < before:
                        if delete:
                            self._abort(upload)
                        yield upload["Key"].removeprefix(self.prefix)

    def _abort(self, upload: dict[str, Any]) -> None:
        self.client.abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def scratch(self) -> Path:
        return self.cache / ".scratch"

    def _patiently(self, call: Callable[[], T]) -> T:
        """The call's result, tried again for a minute while a server that has answered before is busy or gone."""
        for seconds in PAUSES:
            try:
                return call()
            except Exception as error:
                if not (_passes(error) and (self.answered or isinstance(error, BROKEN))):
                    raise
            if seconds > 4:
                say(f"{self.root} is busy or gone; waiting to try again")
            time.sleep(seconds)
        return call()

    @contextmanager
    def _said(self, doing: str) -> Iterator[None]:
        """Turn what boto3 raises into one sentence for people."""
        try:
            yield
            self.answered = True
        except ClientError as error:
            self.answered = True
            raise _explained(error, self.root, doing) from None
        except NoCredentialsError:
            raise InputError(
                f"{self.root}: no credentials found while {doing}; set AWS_ACCESS_KEY_ID or a role"
            ) from None
        except (BotoCoreError, HTTPError, boto3.exceptions.Boto3Error) as error:
            if self.answered:
                raise Interrupted(f"{self.root}: failed while {doing}: {error}; repeat to go on") from None
            raise InputError(
                f"{self.root}: not reachable while {doing}: {error}; start it, or check AWS_ENDPOINT_URL_S3"
            ) from None


def _explained(error: ClientError, root: str, doing: str) -> InputError | Interrupted:
    code = _code(error)
    status = _status(error)
    if code in ("NoSuchBucket", "404"):
        return InputError(f"{root}: the bucket does not exist ({doing}); make it first, or check the root's spelling")
    if code == "RequestTimeTooSkewed":
        return InputError(f"{root}: refused with {code} while {doing}; set the clock of this machine, then repeat")
    if 400 <= status < 500 and status not in (409, *PASSING):  # those pass
        return InputError(f"{root}: refused with {code} while {doing}; check the credentials and the bucket's policy")
    return Interrupted(f"{root}: answered {status} {code} while {doing}; repeat to go on")


def _passes(error: Exception) -> bool:
    """Whether it may go well the next time: a connection that broke, a server that is busy or gone."""
    if isinstance(error, ClientError):
        lost = _code(error) == "NoSuchUpload"  # it ended, but the answer that said so was lost
        return lost or _status(error) >= 500 or _status(error) in PASSING
    return isinstance(error, (*BROKEN, HTTPClientError, NoConnection, boto3.exceptions.RetriesExceededError))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _client(root: str) -> Any:
    checksums: dict[str, Any] = {}
    if os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        # other servers than Amazon's may not know the newer default checksums; we verify sha256 ourselves
        checksums = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    try:
        client = boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}, **checksums))
    except (BotoCoreError, ValueError) as error:
        raise InputError(f"{root}: the settings for S3 do not fit: {error}; check the AWS_ variables") from None
    endpoint = str(client.meta.endpoint_url)
    if "@" in endpoint:
        raise InputError(f"{root}: AWS_ENDPOINT_URL_S3 has a password in it; give keys by AWS_ACCESS_KEY_ID or a role")
    check_url(endpoint, "AWS_ENDPOINT_URL_S3")
    if checksums:
        client.meta.events.register_first("needs-retry.s3", _stay)
    return client


def _stay(response: tuple[Any, Any] | None, **_: Any) -> None:
    """Follow no other server than Amazon's elsewhere: botocore asks it for the bucket's region, endlessly."""
    if response is not None and response[0].status_code in (301, 302, 303, 307, 308):
        there = response[0].headers.get("Location", "nowhere")
        raise InputError(
            f"the S3 server sends us elsewhere ({response[0].status_code}, {there}); if it is there, say so in "
            "AWS_ENDPOINT_URL_S3"
        )
