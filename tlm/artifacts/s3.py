"""A store in an S3 bucket, by boto3's default chain of credentials and ``AWS_ENDPOINT_URL_S3``."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from tlm.artifacts.digest import value_sha256
from tlm.artifacts.store import Stored
from tlm.errors import InputError, Interrupted

CONFLICT_TRIES = 8
ABSENT = ("NoSuchKey", "404")


class S3Store:
    """Objects under ``s3://bucket/prefix``; creation is conditional (``If-None-Match: *``)."""

    def __init__(self, root: str) -> None:
        self.bucket, _, prefix = root.removeprefix("s3://").strip("/").partition("/")
        if not self.bucket:
            raise InputError(f"root '{root}' names no bucket; give s3://bucket or s3://bucket/prefix")
        self.root = f"s3://{self.bucket}/{prefix}".rstrip("/")
        self.prefix = f"{prefix}/" if prefix else ""
        self.cache = _cache_folder() / value_sha256(self.root)[:16]
        self.client = _client(self.root)
        self.answered = False  # until then a failure is a setting at fault, later it is an interruption

    def read(self, name: str) -> bytes | None:
        with self._said(f"reading {name}"):
            try:
                found = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)
                return bytes(found["Body"].read())
            except ClientError as error:
                if _code(error) not in ABSENT:
                    raise
                return None

    def add(self, name: str, source: Path) -> None:
        with self._said(f"writing {name}"), source.open("rb") as file:
            self.client.upload_fileobj(file, self.bucket, self.prefix + name)

    def write(self, name: str, data: bytes) -> None:
        with self._said(f"writing {name}"):
            self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data)

    def create(self, name: str, data: bytes) -> bool:
        with self._said(f"creating {name}"):
            for attempt in range(CONFLICT_TRIES):
                try:
                    self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data, IfNoneMatch="*")
                    return True
                except ClientError as error:
                    if _code(error) in ("PreconditionFailed", "412"):
                        return False
                    if _code(error) not in ("ConditionalRequestConflict", "409") or attempt == CONFLICT_TRIES - 1:
                        raise
                    time.sleep(0.1 * 2**attempt)
        return False

    def local(self, name: str) -> Path:
        path = self.cache / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
            os.close(handle)
            try:
                with self._said(f"reading {name}"):
                    self._download(name, part, path)
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
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
                for item in page.get("Contents", []):
                    name = item["Key"].removeprefix(self.prefix)
                    yield Stored(name, item["Size"], item["LastModified"].timestamp())

    def delete(self, name: str) -> None:
        with self._said(f"removing {name}"):
            self.client.delete_object(Bucket=self.bucket, Key=self.prefix + name)

    def scratch(self) -> Path:
        return self.cache / ".scratch"

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
        except (BotoCoreError, boto3.exceptions.Boto3Error) as error:
            if self.answered:
                raise Interrupted(f"{self.root}: failed while {doing}: {error}; repeat to go on") from None
            raise InputError(
                f"{self.root}: not reachable while {doing}: {error}; start it, or check AWS_ENDPOINT_URL_S3"
            ) from None


def _explained(error: ClientError, root: str, doing: str) -> InputError | Interrupted:
    code = _code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in ("NoSuchBucket", "404"):
        return InputError(f"{root}: the bucket does not exist ({doing}); make it first, or check the root's spelling")
    if 400 <= status < 500 and status not in (408, 409, 429):  # those pass
        return InputError(f"{root}: refused with {code} while {doing}; check the credentials and the bucket's policy")
    return Interrupted(f"{root}: answered {status} {code} while {doing}; repeat to go on")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _client(root: str) -> Any:
    checksums: dict[str, Any] = {}
    if os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        # other servers than Amazon's may not know the newer default checksums; we verify sha256 ourselves
        checksums = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    try:
        return boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}, **checksums))
    except (BotoCoreError, ValueError) as error:
        raise InputError(f"{root}: the settings for S3 do not fit: {error}; check the AWS_ variables") from None


def _cache_folder() -> Path:
    return Path(os.environ.get("TLM_CACHE") or Path(tempfile.gettempdir()) / f"tlm-cache-{os.getuid()}")
