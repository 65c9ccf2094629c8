"""A store in an S3 bucket. boto3 finds the credentials, and the server in ``AWS_ENDPOINT_URL_S3``."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from tlm.artifacts.stores.local import cache_folder, scratch_folder
from tlm.artifacts.stores.store import Ranges, Stored, check_bucket, check_url, folder_of, tls_cure
from tlm.errors import InputError, Interrupted, TlmError, in_pod
from tlm.progress import say

T = TypeVar("T")

# Seconds between our own retries. Those of botocore are not enough: they end within half a minute, and a client that
# has failed often has used up their quota.
PAUSES = (0, 0.5, 1, 2, 4, 8, 16, 16, 16)
# The connection broke in the middle of an answer.
BROKEN = (HTTPError, exceptions.IncompleteReadError, exceptions.ResponseStreamingError)
PASSING = (408, 429)  # client errors by number, but a later try may succeed
BUCKET = re.compile(r"[A-Za-z0-9._-]+|arn:[A-Za-z0-9._:-]+")
RANGE = 16 << 20  # bytes of an object to read at once, if not all of it is wanted
EXISTS = ("PreconditionFailed", "412")
# What S3's answer to a successful request contains, and a page of a proxy ("please log in") does not.
PROOF = {
    **dict.fromkeys(("GetObject", "HeadObject", "PutObject", "UploadPart", "CompleteMultipartUpload"), "ETag"),
    **dict.fromkeys(("ListObjectsV2", "ListMultipartUploads"), "IsTruncated"),
}
# The request did not arrive whole or in time, or another one was in its way: neither data nor keys are at fault.
UNHEARD = ("RequestTimeout", "IncompleteBody", "BadDigest", "OperationAborted", "ConditionalRequestConflict", "409")


class S3Store:
    """Objects under ``s3://bucket/prefix``; creation is conditional (``If-None-Match: *``)."""

    def __init__(self, root: str) -> None:
        self.bucket, _, prefix = root.removeprefix("s3://").strip("/").partition("/")
        if not BUCKET.fullmatch(self.bucket):
            raise InputError(f"root '{root}' names no bucket; give s3://bucket or s3://bucket/prefix")
        if prefix and leads_out(prefix):  # some find such a file by its name, but do not list it
            raise InputError(f"root '{root}' has an empty part, '.' or '..', which servers read differently; remove it")
        check_bucket(self.bucket, root)
        self.root = f"s3://{self.bucket}/{prefix}".rstrip("/")
        self.prefix = f"{prefix}/" if prefix else ""
        self.cache = cache_folder() / hashlib.sha256(self.root.encode()).hexdigest()[:16]
        self.client = _client(self.root)
        self.answered = False  # before the first answer a failure means wrong settings, afterwards an interruption

    def read(self, name: str) -> bytes | None:
        return self._call(f"reading {name}", lambda: self._get(name))

    def add(self, name: str, source: Path) -> None:
        self._call(f"writing {name}", lambda: self._upload(name, source))

    def write(self, name: str, data: bytes) -> None:
        self._call(f"writing {name}", lambda: self._put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        return self._call(f"creating {name}", lambda: self._put_new(name, data))

    def local(self, name: str, size: int | None = None) -> Path:
        """Return the path of a local copy; without a digest to check it by, give its `size`, or a part may pass."""
        return self._cached(name, lambda part: self._call(f"reading {name}", lambda: self._download(name, part, size)))

    def local_ranges(self, name: str, size: int, ranges: Ranges) -> Path:
        """A local file of `size` bytes with these ranges of an object; the rest of it is a hole.

        Raises:
            InputError: the object is gone, or the store cannot be used.
            Interrupted: the server went away.
        """

        def fill(part: Path) -> None:
            with part.open("wb") as file:
                file.truncate(size)
                for start, stop in ranges:
                    for first in range(start, stop, RANGE):
                        read = partial(self._get_range, name, first, min(first + RANGE, stop))
                        file.seek(first)
                        file.write(self._call(f"reading {name}", read))

        return self._cached(f"{name}.{ranges[0][0]}-{ranges[0][1]}", fill)

    def forget(self, name: str) -> None:
        if not leads_out(name):
            (self.cache / name).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[Stored]:
        for item in self._items(f"listing {prefix}".strip(), "list_objects_v2", "Contents", prefix):
            yield Stored(item["Key"].removeprefix(self.prefix), item["Size"], item["LastModified"].timestamp())

    def delete(self, name: str) -> None:
        self._call(f"removing {name}", lambda: self.client.delete_object(Bucket=self.bucket, Key=self.prefix + name))
        self.forget(name)  # else the cache of a machine grows for ever, and keeps what `tlm gc --remove` forgets

    def abandoned(self, before: float, delete: bool) -> Iterator[str]:
        for upload in self._items("listing unfinished uploads", "list_multipart_uploads", "Uploads", ""):
            name = upload["Key"].removeprefix(self.prefix)
            if upload["Initiated"].timestamp() < before and folder_of(name):
                if delete:
                    which = {"Bucket": self.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                    self._call("removing an upload", partial(self.client.abort_multipart_upload, **which))
                yield name

    def scratch(self) -> Path:
        return self.cache / ".scratch"

    def _cached(self, name: str, fill: Callable[[Path], None]) -> Path:
        """A local copy, whole or not at all; `fill` writes it if it is not there, or nothing if there is no object."""
        if leads_out(name):
            raise InputError(f"{self.root}/{name}: no path on a disk can have such parts; rename the object")
        path = self.cache / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with scratch_folder(self.scratch(), "download") as folder:  # swept later, if this process is killed
                part = folder / "part"
                fill(part)
                if part.exists():
                    part.replace(path)
        return path

    # ---- single requests, which raise what boto3 raises

    def _get(self, name: str) -> bytes | None:
        try:
            return bytes(self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read())
        except ClientError as error:
            if not _is_absent(error):
                raise
            return None

    def _get_range(self, name: str, start: int, stop: int) -> bytes:
        where = {"Bucket": self.bucket, "Key": self.prefix + name, "Range": f"bytes={start}-{stop - 1}"}
        found = bytes(self.client.get_object(**where)["Body"].read())
        _check_size(len(found), stop - start)
        return found

    def _upload(self, name: str, source: Path) -> None:
        with source.open("rb") as file:
            self.client.upload_fileobj(file, self.bucket, self.prefix + name)

    def _put(self, name: str, data: bytes, **conditions: str) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data, **conditions)

    def _put_new(self, name: str, data: bytes) -> bool:
        try:
            self._put(name, data, IfNoneMatch="*")
        except ClientError as error:
            if _code(error) not in EXISTS:
                raise
            # In a bucket with versioning, some servers (not Amazon's) take a delete marker for an object.
            if self._get(name) is not None:
                return False
            self._put(name, data)
        return True

    def _download(self, name: str, part: Path, size: int | None) -> None:
        try:
            self.client.download_file(self.bucket, self.prefix + name, str(part))
            _check_size(part.stat().st_size, size)
        except ClientError as error:
            if not _is_absent(error):
                raise

    def _items(self, doing: str, operation: str, key: str, prefix: str) -> Iterator[dict[str, Any]]:
        pages = self.client.get_paginator(operation).paginate(Bucket=self.bucket, Prefix=self.prefix + prefix)
        yield from self._call(doing, lambda: [item for page in pages for item in page.get(key, [])])

    # ---- retries and errors

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        """Return the result of `call`. A server that has answered before gets a minute to come back.

        Raises:
            InputError: the bucket, the credentials or the server's address is wrong.
            Interrupted: the server answered before, but does not any more.
        """
        pauses = iter(PAUSES)
        while True:
            try:
                result = call()
                self.answered = True
                return result
            except (BotoCoreError, ClientError, HTTPError, boto3.exceptions.Boto3Error) as error:
                pause = next(pauses, None)
                if pause is None or not self._may_pass(error):
                    raise self._explained(error, doing) from None
                if pause > 4:
                    say(f"{self.root} is busy or gone; waiting to try again")
                time.sleep(pause)

    def _may_pass(self, error: Exception) -> bool:
        """Whether the next try may succeed."""
        if isinstance(error, BROKEN):
            return True
        if isinstance(error, ClientError):
            code, status = _code(error), _status(error)
            # NoSuchUpload: the upload was completed, but the answer that said so was lost. 404: see `_is_absent`.
            passing = code in ("NoSuchUpload", "404") or status >= 500 or status in PASSING
            return code in UNHEARD or (self.answered and passing)
        lost = (exceptions.HTTPClientError, exceptions.ConnectionError, boto3.exceptions.RetriesExceededError)
        silent = (exceptions.ConnectTimeoutError, exceptions.ReadTimeoutError)  # boto3 has waited for minutes
        return self.answered and isinstance(error, lost) and not isinstance(error, silent)

    def _explained(self, error: Exception, doing: str) -> TlmError:
        """Turn an error of boto3 into one of ours, in one sentence."""
        if isinstance(error, exceptions.NoCredentialsError):
            in_cluster = "make the Secret tlm-s3 with keys, or give the service account a role"
            cure = in_cluster if in_pod() else "set AWS_ACCESS_KEY_ID or a role"
            return InputError(f"{self.root}: no credentials found while {doing}; {cure}")
        if not isinstance(error, ClientError):
            if self.answered:
                return Interrupted(f"{self.root}: failed while {doing}: {error}; repeat to resume")
            setting = "AWS_ENDPOINT_URL_S3" + " (in the ConfigMap tlm)" * in_pod()
            cure = tls_cure(str(error), f"start it, or check {setting}")
            return InputError(f"{self.root}: not reachable while {doing}: {error}; {cure}")
        self.answered = True
        code, status = _code(error), _status(error)
        if code in ("NoSuchBucket", "404"):
            return InputError(
                f"{self.root}: the bucket does not exist ({doing}); make it first, or check the spelling of the root "
                "and of the server's address"
            )
        if 400 <= status < 500 and status not in (409, *PASSING) and code not in UNHEARD:
            advice = f"check the credentials{' (the Secret tlm-s3)' * in_pod()} and the bucket's policy"
            if code == "RequestTimeTooSkewed":
                advice = "set the clock of this machine, then repeat"
            return InputError(f"{self.root}: refused with {code} while {doing}; {advice}")
        return Interrupted(f"{self.root}: answered {status} {code} while {doing}; repeat to resume")


def leads_out(key: str) -> bool:
    """Whether a key has an empty part, "." or "..": legal on S3, but as a path it may lead out of the cache."""
    return not {"", ".", ".."}.isdisjoint(key.split("/"))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    """The code of S3; of an answer that has none, the status."""
    return str(error.response.get("Error", {}).get("Code") or _status(error))


def _is_absent(error: ClientError) -> bool:
    """Whether there is no such object. A 404 without a code is of a proxy, but the answer to HEAD never has one."""
    return _code(error) == "NoSuchKey" or (_code(error) == "404" and error.operation_name == "HeadObject")


def _client(root: str) -> Any:
    for name, value in os.environ.items():
        if name.startswith("AWS_") and re.search(r"[\r\n]", value):  # which http.client would show, and refuse
            raise InputError(f"{root}: {name} has a line end in it, perhaps from the file of a Secret; remove it")
    checksums: dict[str, Any] = {}
    password = "AWS_ENDPOINT_URL_S3 has a password in it; give keys by AWS_ACCESS_KEY_ID or a role"
    if os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        # other servers than Amazon's may not know the newer default checksums; we verify sha256 ourselves
        checksums = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    try:
        client = boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}, **checksums))
    except (BotoCoreError, ValueError) as error:
        wrong = password if "@" in str(error) else f"the settings for S3 do not fit: {error}; check the AWS_ variables"
        raise InputError(f"{root}: {wrong}") from None
    endpoint = str(client.meta.endpoint_url)  # of the environment, or of boto3's own files
    if "@" in endpoint:
        raise InputError(f"{root}: {password}")
    check_url(endpoint, "AWS_ENDPOINT_URL_S3")
    client.meta.events.register("after-call.s3", _check_answer)
    if checksums:
        client.meta.events.register_first("needs-retry.s3", _refuse_redirect)
    return client


class _NotS3(exceptions.HTTPClientError):  # type: ignore[misc]
    fmt = "the answer to {operation} has no {field}, so it is not that of an S3 server"


def _check_size(found: int, expected: int | None) -> None:
    if expected not in (None, found):
        raise exceptions.IncompleteReadError(actual_bytes=found, expected_bytes=expected)


def _check_answer(http_response: Any, parsed: dict[str, Any], model: Any, **_: Any) -> None:
    """Raise _NotS3 if a success is not an answer of an S3 server."""
    field = PROOF.get(model.name)
    if field and field not in parsed and http_response.status_code < 300:
        raise _NotS3(operation=model.name, field=field)


def _refuse_redirect(response: tuple[Any, Any] | None, **_: Any) -> None:
    """Refuse redirects of servers other than Amazon's: botocore would ask them for the bucket's region, endlessly."""
    if response is not None and response[0].status_code in (301, 302, 303, 307, 308):
        target = response[0].headers.get("Location", "nowhere")
        raise InputError(
            f"the S3 server redirects to {target} ({response[0].status_code}); if that is the server to use, set "
            "AWS_ENDPOINT_URL_S3 to it"
        )
