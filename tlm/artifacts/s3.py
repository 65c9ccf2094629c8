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
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError

from tlm.artifacts.digest import value_sha256
from tlm.artifacts.store import Stored
from tlm.errors import InputError, Interrupted

CONFLICT_TRIES = 8


class S3Store:
    """Objects under ``s3://bucket/prefix``; creation is conditional (``If-None-Match: *``)."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.bucket, _, prefix = self.root.removeprefix("s3://").partition("/")
        if not self.bucket:
            raise InputError(f"root '{root}' names no bucket; give s3://bucket or s3://bucket/prefix")
        self.prefix = f"{prefix}/" if prefix else ""
        self.cache = _cache_folder() / value_sha256(self.root)[:16]
        self.client = _client()

    def read(self, name: str) -> bytes | None:
        with self._said(f"reading {name}"):
            try:
                found = self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)
                return bytes(found["Body"].read())
            except ClientError as error:
                if _code(error) in ("NoSuchKey", "404"):
                    return None
                raise

    def add(self, name: str, source: Path) -> None:
        with self._said(f"writing {name}"):
            self.client.upload_file(str(source), self.bucket, self.prefix + name)

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
                    self.client.download_file(self.bucket, self.prefix + name, part)
                Path(part).replace(path)
            finally:
                Path(part).unlink(missing_ok=True)
        return path

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
        except NoCredentialsError:
            raise InputError(
                f"{self.root}: no credentials found while {doing}; set AWS_ACCESS_KEY_ID or a role"
            ) from None
        except EndpointConnectionError as error:
            raise Interrupted(f"{self.root}: not reachable while {doing} ({error}); start it, then repeat") from None
        except ClientError as error:
            raise _explained(error, self.root, doing) from None
        except (BotoCoreError, boto3.exceptions.Boto3Error) as error:
            raise Interrupted(f"{self.root}: failed while {doing}: {error}; repeat to go on") from None


def _explained(error: ClientError, root: str, doing: str) -> InputError | Interrupted:
    code = _code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in ("NoSuchBucket", "404") or status == 404:
        return InputError(f"{root}: the bucket does not exist ({doing}); make it first, or check the root's spelling")
    if status in (401, 403):
        return InputError(f"{root}: refused with {code} while {doing}; check the credentials and the bucket's policy")
    return Interrupted(f"{root}: answered {status} {code} while {doing}; repeat to go on")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _client() -> Any:
    checksums: dict[str, Any] = {}
    if os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        # other servers than Amazon's may not know the newer default checksums; we verify sha256 ourselves
        checksums = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    return boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}, **checksums))


def _cache_folder() -> Path:
    return Path(os.environ.get("TLM_CACHE") or Path(tempfile.gettempdir()) / f"tlm-cache-{os.getuid()}")
