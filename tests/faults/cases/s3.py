"""Settings of an S3 server, and what is to come of them. Each case is given a `Storing`."""

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from tests.faults.storing import Storing, asked, large, storing, whole
from tests.making import make
from tests.servers.faulty import HALF, HANG_UP, Answer, Request
from tlm.cli.upkeep import gc
from tlm.errors import InputError

Case = Callable[[Storing], None]
UPLOADER = "from tests.faults.storing import large; from tests.making import make; make({!r}, large)"


def wrong_secret(ground: Storing) -> None:
    refused(ground, asked(AWS_SECRET_ACCESS_KEY="another"), r"refused with SignatureDoesNotMatch .*check the credent")


def unknown_key(ground: Storing) -> None:
    refused(ground, asked(AWS_ACCESS_KEY_ID="nobody"), r"refused with \w+ .*check the credentials")


def credentials_that_expire(ground: Storing) -> None:
    """When everything is there but the manifest."""
    refused(ground, ground.through(at_manifest("ExpiredToken", 400)), r"refused with ExpiredToken .*check the creden")


def clock_that_is_slow(ground: Storing) -> None:
    refused(ground, clock(-1), r"refused with RequestTimeTooSkewed .*; set the clock of this machine")


def clock_that_is_fast(ground: Storing) -> None:
    refused(ground, clock(1), r"refused with RequestTimeTooSkewed .*; set the clock of this machine")


def versitygw_that_is_read_only(ground: Storing) -> None:
    restart(ground, VGW_READ_ONLY="true")
    try:
        with pytest.raises(InputError, match=r"refused with AccessDenied .*check the credentials and the bucket's pol"):
            make("s3://faults/read-only", large)
    finally:
        restart(ground, VGW_READ_ONLY="false")
    ends(ground, "s3://faults/read-only")


def bucket_that_is_missing(ground: Storing) -> None:
    with pytest.raises(InputError, match=r"the bucket does not exist .*make it first"):
        make("s3://missing/root", large)
    ground.client.create_bucket(Bucket="missing")
    ends(ground, "s3://missing/root")


def versitygw_bucket_with_versions(ground: Storing) -> None:
    """This server loses objects then, unless it keeps versions and attributes in other ways."""
    del ground
    with storing(VGW_META_SIDECAR="", VGW_VERSIONING_DIR="{}/versions") as other:
        bucket_with_versions(other)


def bucket_with_versions(ground: Storing) -> None:
    """What was removed there can be made again."""
    ground.client.create_bucket(Bucket="versions")
    ground.client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    for _ in range(2):
        ends(ground, "s3://versions/root")
        gc(unused_days=0, delete=True, root="s3://versions/root")
        assert ground.manifests("s3://versions/root") == []


def answers_that_break_off(ground: Storing) -> None:
    """Nobody notices: those are asked for again."""
    halves: Counter[tuple[str, str]] = Counter()

    def half(request: Request) -> int | None:
        halves[request.method, request.path] += 1
        return HALF if halves[request.method, request.path] < 3 else None

    with ground.through(half):
        assert whole(make("s3://faults/halves"))
        assert whole(make("s3://faults/halves"))


def upload_that_fails(ground: Storing) -> None:
    """Nothing of it stays; nor is it seen."""

    def gone(request: Request) -> int | None:
        return 403 if "partNumber=3" in request.path else None

    with ground.through(gone), pytest.raises(InputError, match=r"refused with .* while writing"):
        make("s3://faults/upload", large)
    assert ground.uploads("s3://faults/upload") == []
    ends(ground, "s3://faults/upload")


def upload_that_is_killed(ground: Storing) -> None:
    """Its parts stay on the server, until `gc` removes them."""

    def kill(request: Request) -> int | None:
        if "partNumber=3" in request.path:
            os.killpg(uploader[0].pid, signal.SIGKILL)
            return HANG_UP
        return None

    uploader: list[subprocess.Popen[bytes]] = []
    with ground.through(kill):
        uploader.append(
            subprocess.Popen([sys.executable, "-c", UPLOADER.format("s3://faults/killed")], start_new_session=True)
        )
        assert uploader[0].wait(120) == -signal.SIGKILL
    assert len(ground.uploads("s3://faults/killed")) == 1
    gc(unused_days=1, delete=True, root="s3://faults/killed")
    assert len(ground.uploads("s3://faults/killed")) == 1  # it may belong to somebody at work
    gc(unused_days=0, delete=True, root="s3://faults/killed-not")
    assert len(ground.uploads("s3://faults/killed")) == 1  # another root's
    gc(unused_days=0, root="s3://faults/killed")
    assert len(ground.uploads("s3://faults/killed")) == 1  # a dry run
    gc(unused_days=0, delete=True, root="s3://faults/killed")
    assert ground.uploads("s3://faults/killed") == []
    ends(ground, "s3://faults/killed")


def completed_upload_whose_answer_is_lost(ground: Storing) -> None:
    """The client asks again, and the server knows no such upload any more."""
    lost: list[str] = []

    def lose(request: Request) -> Answer | int | None:
        if request.method == "POST" and "uploadId" in request.path:
            lost.append(request.path)
            return Answer(404, error("NoSuchUpload")) if len(lost) == 1 else None
        return None

    with ground.through(lose):
        ends(ground, "s3://faults/lost-answer")
    assert len(lost) == 2


def refused(ground: Storing, wrong: AbstractContextManager[None], sentence: str) -> None:
    """Said in one sentence, nothing is visible; once it is mended, the artifact is there."""
    root = f"s3://faults/refused-{uuid.uuid4()}"
    with wrong, pytest.raises(InputError, match=sentence) as said:
        make(root, large)
    assert str(said.value).isprintable()
    assert ground.manifests(root) == []
    ends(ground, root)


def ends(ground: Storing, root: str) -> None:
    """Repeated, it is made."""
    made = make(root, large)
    assert whole(made)
    assert ground.manifests(root) == [f"{made.folder_name}/manifest.json"]
    assert ground.uploads(root) == []


def at_manifest(code: str, status: int) -> Callable[[Request], Answer | None]:
    """The manifest, and nothing before it, is answered so."""
    return lambda request: Answer(status, error(code)) if is_manifest(request) else None


def is_manifest(request: Request) -> bool:
    """Whether it is put."""
    return request.method == "PUT" and request.path.endswith("manifest.json")


def error(code: str) -> bytes:
    """As S3 says it."""
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()


def clock(hours: int) -> AbstractContextManager[object]:
    """What botocore takes for the time is so many hours off."""
    return patch("botocore.auth.get_current_datetime", lambda *_, **__: datetime.now(UTC) + timedelta(hours=hours))


def restart(ground: Storing, **variables: str) -> None:
    """The server, with other settings."""
    ground.process.stop()
    ground.process.environment.update(variables)
    ground.process.start()


SHARED = (
    wrong_secret, unknown_key, credentials_that_expire, clock_that_is_slow, clock_that_is_fast,
    bucket_that_is_missing, answers_that_break_off, upload_that_fails, upload_that_is_killed,
    completed_upload_whose_answer_is_lost,
)  # fmt: skip
CASES: tuple[Case, ...] = (*SHARED, versitygw_that_is_read_only, versitygw_bucket_with_versions)
CASES_OF_ALL: tuple[Case, ...] = (*SHARED, bucket_with_versions)  # of any server, whatever its own settings are
