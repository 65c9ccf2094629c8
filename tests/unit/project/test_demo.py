"""The demo's data: made of small packages, and of those that are pinned."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest

from demo import kinds
from demo.__main__ import TASKS, corpus, other_texts, write
from demo.docstrings import docstrings
from demo.errors import MAX_WORDS, MIN_WORDS, examples, label_of, split_of, text_of
from demo.example import SPLITS
from demo.packages import PINNED, wheels
from demo.services import DISCOVERED, MODEL, ApiError, Service, descriptions, newest, plain, read_service
from tlm.data.text import tokens

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


def packed(folder: Path, name: str, files: dict[str, str | dict[str, object]]) -> Path:
    """A wheel with these files; those that end in ``.gz`` are compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "WHEEL": "Wheel-Version: 1.0\n"}
    with ZipFile(path, "w") as wheel:
        for file, content in {**files, **{f"{name}-1.0.dist-info/{file}": text for file, text in info.items()}}.items():
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            wheel.writestr(file, gzip.compress(data) if file.endswith(".gz") else data)
    return path


@pytest.fixture
def packages(tmp_path: Path) -> list[Path]:
    """Amazon's services, one of Google's, and some code."""
    common = "The request was denied by a common rule."
    throttled, bad = {"ThrottlingException": common}, {"BadException": "Nobody knows what it is."}
    aws = {
        f"{TRAIN}/2015-01-01/service-2.json": model("old"),
        f"{TRAIN}/2020-01-01/service-2.json": model("train", **throttled, KeyNotFoundException="No key of that name."),
        f"{DEV}/2020-01-01/service-2.json.gz": model("dev", KeyExistsException="A key of that name is there."),
        f"{TEST}/2020-01-01/service-2.json": model("test", **throttled, **bad),
        "endpoints.json": "{}",
    }
    list_method = {"id": "search.sites.list", "description": "Lists the sites."}
    google = {
        "search.v1.json": {"description": "The first version."},
        "search.v2.json": {
            "description": "Searches sites,\nas a <b>user</b> does.",
            "resources": {"sites": {"resources": {"own": {"methods": {"list": list_method}}}}},
        },
        "index.json": {"description": "No service."},
    }
    adds = '"""Adds two numbers and\n   returns their sum."""\n\n'
    code = adds + "def f():\n    r'''Puts one test object.'''\n    '''No.'''\n"
    folder = tmp_path / "packages"
    return [
        packed(folder, "botocore", {f"botocore/data/{file}": content for file, content in aws.items()}),
        packed(folder, "client", {f"googleapiclient/discovery_cache/documents/{n}": c for n, c in google.items()}),
        packed(folder, "adder", {"adder/code.py": code, "adder/notes.txt": '"""Not of the code, but long enough."""'}),
    ]


def services_of(paths: list[Path]) -> list[Service]:
    return [read_service(wheel, *model) for wheel in map(ZipFile, paths) for model in newest(wheel, MODEL).items()]


@pytest.fixture(scope="module")
def services() -> list[Service]:
    """What the pinned packages have."""
    return services_of(wheels())


def read(path: Path) -> Rows:
    data = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


def test_the_newest_version_of_each_service_is_read(packages):
    train, dev, test = services_of(packages)
    assert (train.name, dev.name, test.name) == (TRAIN, DEV, TEST)
    assert dev.texts == [
        "Stores dev objects, in Buckets. One & two three",
        "Puts one dev object.",
        "The dev key of the object.",
        "A key of that name is there.",
    ]
    assert dev.errors == [ApiError("KeyExistsException", "A key of that name is there.")]
    assert "The train key of the object." in train.texts
    wheel = ZipFile(packages[1])
    ((name, file),) = newest(wheel, DISCOVERED).items()
    assert (name, descriptions(wheel, file)) == ("search", ["Searches sites, as a user does.", "Lists the sites."])


def test_plain_text():
    assert (
        plain('<p>See <a href="x">the <b>guide</b></a>.</p><p>Then  call</p>\n it<!-- <p>no</p> -->')
        == "See the guide. Then call it"
    )


def test_files_and_where_each_text_goes(packages, tmp_path, capsys):
    write(tmp_path / "out", packages, task="api-errors")
    rows = read(tmp_path / "out" / "corpus.jsonl.gz")
    assert [(row["source"], row["text"]) for row in rows] == [
        ("service:acm", "Stores train objects, in Buckets. One & two three"),
        ("service:acm", "The train key of the object."),
        ("service:acm", "No key of that name."),
        ("google:search", "Searches sites, as a user does."),
        ("package:adder", "Adds two numbers and returns their sum."),
    ]
    assert len({row["id"] for row in rows}) == 5
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


def test_the_same_bytes_each_time_and_everywhere(packages, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, packages, task="api-errors")
    files = ["corpus.jsonl.gz", *(f"api-errors/{split}.jsonl" for split in SPLITS)]
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)
    assert not list(tmp_path.rglob("*.part"))
    assert digest(tmp_path / "one", "api-errors") == "af42ad76aa23abfb64355b262093f47a1d23bb27d0c9bb5a2b1c6a7c8e49b53b"


def digest(folder: Path, task: str) -> str:
    """Of the texts, not of their compressed bytes: another zlib packs otherwise."""
    files = [folder / task / f"{split}.jsonl" for split in SPLITS]
    content = gzip.decompress((folder / "corpus.jsonl.gz").read_bytes()) + b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()


@pytest.mark.slow
def test_the_real_data_are_the_ones_that_are_recorded(tmp_path):
    write(tmp_path)
    assert f"# sha256 {digest(tmp_path, kinds.NAME)}\n" in PINNED.read_text("utf-8")


LABELLED = {
    "not found": "ResourceNotFoundException NoSuchBucket DBClusterNotFoundFault/404 UnknownResourceException",
    "conflict": "PermissionAlreadyExistsException ConditionalCheckFailedException InvalidDBClusterStateFault/400 "
    "ResourceInUseException",
    "fix the request": "ValidationException/400 InvalidDeployedStateFilterException RequestTooLargeException/413 "
    "CommitMessageLengthExceededException",
    "no access": "AccessDeniedException/403 UnauthorizedException",
    "over quota": "ThrottlingException TooManyTagsException/400 LimitExceededException/409 "
    "ServiceQuotaExceededException/402",
    "server fault": "InternalServerException/500 InternalServerErrorException ServiceUnavailableException "
    "DescribeSlackWorkspacesException/500",
    None: "ClientException/400 TagPolicyException",
}


@pytest.mark.parametrize(("label", "names"), LABELLED.items())
def test_labels(label, names):
    for name, _, status in (each.partition("/") for each in names.split()):
        assert label_of(ApiError(name, "", int(status) if status else None)) == label, name


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
    assert kinds.family("mediapackagev2") == kinds.family("mediapackage-vod") == "mediapackage"
    assert kinds.split_of("iot-jobs-data") == kinds.split_of("iot"), "its text would tell about a held-out family"
    assert kinds.split_of("nobody-knows-it") == "train"


def test_a_kind_has_services_in_each_split():
    for names in kinds.kinds().values():
        assert {kinds.split_of(name) for name in names} == set(SPLITS)


def test_each_service_has_one_kind():
    names = [name for names in kinds.kinds().values() for name in names]
    assert len(names) == len(set(names))
    of_family = {}
    for kind, own in kinds.kinds().items():
        for name in own:
            assert of_family.setdefault(kinds.family(name), kind) == kind


def test_operations_become_rows():
    long = " ".join(f"word{number}" for number in range(70))
    common = "Lists the tags of a resource. " * 5
    said = {"Put": long, "Get": "Too short.", "Copy": "", "Again": long, "Tags": common}
    of_others = [Service("s3", operations={"Tags": common}), Service("nobody-knows-it", operations={"Put": long})]
    rows, left_out = kinds.examples([Service("kms", operations=said), *of_others])
    ((row,),) = filter(None, rows.values())
    assert (row.id, row.label, row.service) == ("kms/Put", "security", "kms")
    assert row.text == " ".join(long.split()[:60])
    assert left_out == {"no text": 2, "labels differ": 2, "same text": 1, "more than needed": 0}


def test_train_has_some_texts_of_each_kind_and_of_many_services():
    names = [name for name in kinds.kinds()["security"] if kinds.split_of(name) == "train"]
    texts = {f"Do{number}": f"{number} " * 20 for number in range(30)}
    of_service = {name: {key: f"{name} {text}" for key, text in texts.items()} for name in names}
    rows, left_out = kinds.examples([Service(name, operations=own) for name, own in of_service.items()])
    assert len(rows["train"]) == kinds.LABELLED
    assert max(Counter(row.service for row in rows["train"]).values()) <= kinds.MOST_OF_SERVICE["train"]
    assert left_out["more than needed"] == 30 * len(names) - kinds.LABELLED


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_real_tasks_and_their_corpus(task, services):
    rows, _ = task.examples(services)
    everything = [row for own in rows.values() for row in own]
    words = {" ".join(tokens(row.text)) for row in everything}
    assert len(words) == len(everything) == len({row.id for row in everything})
    for split, own in rows.items():
        found = Counter(row.label for row in own)
        assert set(found) == set(task.labels())
        assert min(found.values()) >= 10
        assert {task.split_of(row.service) for row in own} == {split}
    others = [one for path in wheels() for one in other_texts(ZipFile(path))]
    documents = list(corpus(services, rows, others, task.split_of))
    held_out = [service for service in services if task.split_of(service.name) != "train"]
    texts = {document["text"] for document in documents}
    assert len(texts) == len(documents) > 200_000
    assert not texts & {text for service in held_out for text in service.texts}
    assert not {document["source"] for document in documents} & {f"service:{service.name}" for service in held_out}


@pytest.mark.slow
def test_the_real_errors(services):
    rows, _ = examples(services)
    everything = [row for own in rows.values() for row in own]
    assert [len(rows[split]) > least for split, least in zip(SPLITS, (2000, 400, 800), strict=True)] == [True] * 3
    assert all(MIN_WORDS <= len(row.text.split()) <= MAX_WORDS and "<" not in row.text[:1] for row in everything)
    assert not [row for row in everything if row.id.split("/")[1] in row.text.split()]


@pytest.mark.slow
def test_the_real_kinds_have_many_services_in_dev_and_test(services):
    rows, _ = kinds.examples(services)
    assert max(Counter(row.label for row in rows["train"]).values()) == kinds.LABELLED
    assert [len({row.service for row in rows[split]}) > least for split, least in (("dev", 50), ("test", 90))] == [
        True
    ] * 2
    assert all(kinds.MIN_WORDS <= len(row.text.split()) <= kinds.MAX_WORDS for own in rows.values() for row in own)
    assert {name for names in kinds.kinds().values() for name in names} <= {service.name for service in services}


# ---- the packages


def pinned(folder: Path, paths: list[Path]) -> Path:
    lines = [
        f"{path.name.split('-')[0]}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in paths
    ]
    file = folder / "pinned.txt"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_packages_are_downloaded_once_and_found_by_their_content(packages, tmp_path, monkeypatch, capsys):
    file, here = pinned(tmp_path, packages), tmp_path / "here"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages[0].parent))
    first = wheels(here, file)
    assert [path.name for path in first] == [path.name for path in packages]
    assert "downloading 3 packages" in capsys.readouterr().err
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert wheels(here, file) == first
    assert capsys.readouterr().err == ""
    first[0].write_bytes(b"cut off")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages[0].parent))
    assert wheels(here, file) == first
    assert first[0].read_bytes() == packages[0].read_bytes()


def test_without_packages_and_network_one_sentence_says_so(tmp_path):
    code = (
        "import demo.__main__ as demo; import demo.packages as packages; from pathlib import Path; "
        f"packages.wheels.__defaults__ = (Path({str(tmp_path)!r}), packages.PINNED); demo.cli.main(demo.main)"
    )
    environment = {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_INDEX": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert re.search(
        r"tlm: .* lacks \d of the \d packages of .*, and pip cannot download them \(ERROR: No matching .*\); repeat",
        run.stderr,
    )
    assert "Traceback" not in run.stderr


def test_each_pinned_package_has_one_file_for_all_platforms():
    text = PINNED.read_text("utf-8")
    names = re.findall(r"^([a-z0-9-]+)==[0-9.]+ ", text, re.MULTILINE)
    assert len(names) == len(re.findall("--hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)) > 2


def test_docstrings_of_a_package(packages):
    assert list(docstrings(ZipFile(packages[2]))) == [
        "Adds two numbers and returns their sum.",
        "Puts one test object.",
        "No.",
    ]


def test_command_says_what_is_wrong(packages, tmp_path):
    (tmp_path / "file").write_text("")
    code = "import demo.__main__ as demo; demo.wheels = lambda: []; demo.cli.main(demo.main)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert f"tlm: {tmp_path}/file/service-kinds: Not a directory" in run.stderr
    assert "Traceback" not in run.stderr
