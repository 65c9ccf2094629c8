"""The demo's data: read from small models and files, and from what botocore really carries."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from demo import kinds
from demo.__main__ import TASKS, corpus, write
from demo.docstrings import docstrings, packages
from demo.errors import MAX_WORDS, examples, label_of, labels, split_of, text_of
from demo.example import SPLITS
from demo.services import ApiError, Service, model_files, plain, read_service
from tlm.data.text import tokens
from tlm.errors import InputError

TRAIN, DEV, TEST = "acm", "s3", "sqs"  # services of each split

Rows = list[dict[str, str]]


def model(word: str, **errors: str) -> dict[str, object]:
    """A service model: documentation of the service, an operation and a member, and errors."""
    said = f"<p>Stores {word} objects, in <code>Bucket</code>s.</p><ul><li>One &amp; two</li><li>three</li></ul>"
    shapes: dict[str, object] = {
        "Input": {"type": "structure", "members": {"Key": {"documentation": f"<p>The {word} key of the object.</p>"}}}
    }
    shapes |= {name: {"exception": True, "documentation": f"<p>{text}</p>"} for name, text in errors.items()}
    return {
        "documentation": said,
        "operations": {"Put": {"documentation": f"Puts one {word} object."}},
        "shapes": shapes,
    }


def put(folder: Path, service: str, version: str, content: dict[str, object], packed: bool = False) -> Path:
    path = folder / service / version / ("service-2.json.gz" if packed else "service-2.json")
    path.parent.mkdir(parents=True)
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "data"
    put(folder, TRAIN, "2015-01-01", model("old"))
    common = "The request was denied by a common rule."
    put(
        folder,
        TRAIN,
        "2020-01-01",
        model("train", ThrottlingException=common, KeyNotFoundException="No key of that name."),
    )
    put(folder, DEV, "2020-01-01", model("dev", KeyExistsException="A key of that name is there."), packed=True)
    put(folder, TEST, "2020-01-01", model("test", ThrottlingException=common, BadException="Nobody knows what it is."))
    (folder / "endpoints.json").write_text("{}")
    return model_files(folder)


@pytest.fixture(scope="module")
def services() -> list[Service]:
    return [read_service(path) for path in model_files()]


def read(path: Path) -> Rows:
    data = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


def test_the_newest_version_of_each_service_is_read(models):
    assert [path.parts[-3:-1] for path in models] == [(TRAIN, "2020-01-01"), (DEV, "2020-01-01"), (TEST, "2020-01-01")]
    service = read_service(models[1])
    assert service.name == DEV
    assert service.texts == [
        "Stores dev objects, in Buckets. One & two three",
        "Puts one dev object.",
        "The dev key of the object.",
        "A key of that name is there.",
    ]
    assert service.errors == [ApiError("KeyExistsException", "A key of that name is there.")]


def test_plain_text():
    assert (
        plain('<p>See <a href="x">the <b>guide</b></a>.</p><p>Then  call</p>\n it<!-- <p>no</p> -->')
        == "See the guide. Then call it"
    )


def test_no_models(tmp_path):
    with pytest.raises(InputError, match="has no service models"):
        model_files(tmp_path)


def test_files_and_where_each_text_goes(models, tmp_path, capsys):
    code = tmp_path / "code.py"
    code.write_text(
        '"""Adds two numbers and\n   returns their sum."""\n\n'
        "def f():\n    r'''Puts one test object.'''\n    '''No.'''\n"
    )
    write(tmp_path / "out", models, [("adder", [code, tmp_path / "gone.py"])], task="api-errors")
    rows = read(tmp_path / "out" / "corpus.jsonl.gz")
    assert [(row["source"], row["text"]) for row in rows] == [
        ("service:acm", "Stores train objects, in Buckets. One & two three"),
        ("service:acm", "The train key of the object."),
        ("service:acm", "No key of that name."),
        ("package:adder", "Adds two numbers and returns their sum."),
    ]
    assert len({row["id"] for row in rows}) == 4
    task = {
        split: [(row["text"], row["label"]) for row in read(tmp_path / "out" / "api-errors" / f"{split}.jsonl")]
        for split in SPLITS
    }
    assert task == {
        "train": [("No key of that name.", "not found")],
        "dev": [("A key of that name is there.", "conflict")],
        "test": [("The request was denied by a common rule.", "over quota")],
    }
    assert "left out: no label 1, no text 0, labels differ 0, same text 1" in capsys.readouterr().err


def test_the_same_bytes_each_time(models, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, models, [], task="api-errors")
    files = ["corpus.jsonl.gz", *(f"api-errors/{split}.jsonl" for split in SPLITS)]
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("name", "status", "label"),
    [
        ("ResourceNotFoundException", None, "not found"),
        ("NoSuchBucket", None, "not found"),
        ("DBClusterNotFoundFault", 404, "not found"),
        ("UnknownResourceException", None, "not found"),
        ("PermissionAlreadyExistsException", None, "conflict"),
        ("ConditionalCheckFailedException", None, "conflict"),
        ("InvalidDBClusterStateFault", 400, "conflict"),
        ("ResourceInUseException", None, "conflict"),
        ("ValidationException", 400, "fix the request"),
        ("InvalidDeployedStateFilterException", None, "fix the request"),
        ("CommitMessageLengthExceededException", None, "fix the request"),
        ("RequestTooLargeException", 413, "fix the request"),
        ("AccessDeniedException", 403, "no access"),
        ("UnauthorizedException", None, "no access"),
        ("ThrottlingException", None, "over quota"),
        ("TooManyTagsException", 400, "over quota"),
        ("LimitExceededException", 409, "over quota"),
        ("ServiceQuotaExceededException", 402, "over quota"),
        ("InternalServerException", 500, "server fault"),
        ("InternalServerErrorException", None, "server fault"),
        ("ServiceUnavailableException", None, "server fault"),
        ("DescribeSlackWorkspacesException", 500, "server fault"),
        ("ClientException", 400, None),
        ("TagPolicyException", None, None),
    ],
)
def test_labels(name, status, label):
    assert label_of(ApiError(name, "", status)) == label


def test_a_fault_without_a_telling_name_is_the_servers():
    assert label_of(ApiError("NetworkFailureException", "", fault=True)) == "server fault"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("KeyMissingException: the key is not there.", "the key is not there."),
        ("The key is not there. HTTP Status Code: 404", "The key is not there."),
        ("The key is not there (HTTP status code 404).", "The key is not there"),
        ("404 response - The key is not there.", "The key is not there."),
        ("This error returns an HTTP 404 status code. Add the key.", "Add the key."),
        ("See KeyMissing in the guide, or OtherLimitExceededException.", "See in the guide, or ."),
        ("word " * 70, " ".join(["word"] * 60)),
    ],
)
def test_texts_do_not_name_the_error(said, text):
    assert text_of(ApiError("KeyMissingException", said)) == text


def test_a_text_with_two_labels_is_left_out():
    same = "Returns information about an error."
    rows, left_out = examples([Service(TRAIN, [], [ApiError("NotFound", same), ApiError("ThrottledException", same)])])
    assert not any(rows.values())
    assert left_out == {"no label": 0, "no text": 0, "same text": 0, "labels differ": 2}


def test_families_stay_together():
    assert split_of("bedrock") == split_of("bedrock-agent") == split_of("bedrock-runtime")


def test_the_real_task(services):
    rows, _ = examples(services)
    assert len(services) > 300
    assert {
        split: len(rows[split]) > least for split, least in zip(SPLITS, (2000, 400, 800), strict=True)
    } == dict.fromkeys(SPLITS, True)
    everything = [row for split in SPLITS for row in rows[split]]
    assert (
        len({" ".join(tokens(row.text)) for row in everything})
        == len(everything)
        == len({row.id for row in everything})
    )
    for split in SPLITS:
        found = Counter(row.label for row in rows[split])
        assert set(found) == set(labels())
        assert min(found.values()) >= 30
        assert {split_of(row.id.split("/")[0]) for row in rows[split]} == {split}
    assert all(3 <= len(row.text.split()) <= MAX_WORDS and "<" not in row.text[:1] for row in everything)
    assert not [row for row in everything if row.id.split("/")[1] in row.text.split()]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_real_corpus_holds_nothing_of_dev_and_test_services(task, services):
    rows, _ = task.examples(services)
    documents = list(corpus(services, rows, [], task.split_of))
    assert len(documents) > 80_000
    held_out = [service for service in services if task.split_of(service.name) != "train"]
    texts = {document["text"] for document in documents}
    assert not texts & {text for service in held_out for text in service.texts}
    assert not {document["source"] for document in documents} & {f"service:{service.name}" for service in held_out}
    assert len(texts) == len(documents)


def test_the_real_kinds_of_services(services):
    rows, left_out = kinds.examples(services)
    assert {split: len(own) for split, own in rows.items() if split != "test"} == {"train": 120, "dev": 120}
    assert len(rows["test"]) > 800
    for split, own in rows.items():
        found = Counter(row.label for row in own)
        assert set(found) == set(kinds.labels())
        assert min(found.values()) >= (50 if split == "test" else kinds.LABELLED)
        assert {kinds.split_of(row.service) for row in own} == {split}
        assert len({row.service for row in own if row.label == "media"}) >= 2
    everything = [row for own in rows.values() for row in own]
    words = {" ".join(tokens(row.text)) for row in everything}
    assert len(words) == len(everything) == len({row.id for row in everything})
    assert all(kinds.MIN_WORDS <= len(row.text.split()) <= kinds.MAX_WORDS for row in everything)
    assert left_out["more than needed"] > 0
    installed = {service.name for service in services}
    assert {row.service for row in everything} <= {name for names in kinds.kinds().values() for name in names}
    assert sum(name in installed for names in kinds.kinds().values() for name in names) > 90


def test_a_kind_has_services_in_each_split_and_families_stay_together():
    for names in kinds.kinds().values():
        assert {kinds.split_of(name) for name in names} == set(SPLITS)
    assert kinds.family("mediapackagev2") == kinds.family("mediapackage-vod") == "mediapackage"
    assert kinds.split_of("iot-jobs-data") == kinds.split_of("iot"), "its text would tell about a held-out family"
    assert kinds.split_of("nobody-knows-it") == "train"


def test_each_service_has_one_kind():
    names = [name for names in kinds.kinds().values() for name in names]
    assert len(names) == len(set(names))
    of_family = {}
    for kind, own in kinds.kinds().items():
        for name in own:
            assert of_family.setdefault(kinds.family(name), kind) == kind


def test_operations_become_rows(tmp_path):
    said = " ".join(f"word{number}" for number in range(70))
    operations = {"Put": {"documentation": f"<p>{said}</p>"}, "Get": {"documentation": "Too short."}, "Copy": {}}
    put(tmp_path, "kms", "2020-01-01", model("key") | {"operations": operations | {"Again": operations["Put"]}})
    rows, left_out = kinds.examples([read_service(path) for path in model_files(tmp_path)])
    (row,) = rows["dev"]
    assert (row.id, row.label, row.service) == ("kms/Put", "security", "kms")
    assert row.text == " ".join(said.split()[:60])
    assert left_out == {"no text": 2, "same text": 1, "more than needed": 0}


def test_installed_packages_are_found():
    found = dict(packages())
    assert list(found)[-1] == "python"
    assert "botocore" in found
    assert not {"pip", "tlm-kubeflow"} & set(found)
    assert any(
        "JavaScript Object Notation" in text
        for text in docstrings(f for f in found["python"] if f.parent.name == "json")
    )


def test_command_says_what_is_wrong(tmp_path):
    (tmp_path / "file").write_text("")
    code = "import demo.__main__ as demo; demo.model_files = lambda: []; demo.cli.main(demo.main)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert f"tlm: {tmp_path}/file/service-kinds: Not a directory" in run.stderr
    assert "Traceback" not in run.stderr
