"""Raw data on a real S3 server are the same data as on the disk."""

import json

import boto3
import pytest

from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.corpus.plan import cut, sliced
from tlm.data.reading.files import raw_files
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.predict.files import predict_command
from tlm.evaluation.score.baseline import baseline


@pytest.fixture
def bucket(s3_root, tmp_path):
    """A bucket with two corpus files and a task below raw/, which lie in a folder of the same name too."""
    name = s3_root.split("/")[2]
    client = boto3.client("s3")
    files = {
        "corpus/a.jsonl": [{"text": f"text {number}"} for number in range(50)],
        "corpus/b.jsonl": [{"text": f"text {number}"} for number in range(25, 75)],
        "corpus/_SUCCESS": [],
        "corpus/_temporary/c.jsonl": [{"text": "half written"}],
        "plants/train.jsonl": [{"text": "oak", "label": "tree"}, {"text": "fig", "label": "fruit"}],
        "plants/dev.jsonl": [{"text": "elm", "label": "tree"}],
        "plants/test.jsonl": [{"text": "fir", "label": "tree"}],
    }
    for key, rows in files.items():
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path = tmp_path / "raw" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        client.put_object(Bucket=name, Key=f"raw/{key}", Body=data)
    return name


def content(uri):
    return Artifact.open(uri).content


@pytest.mark.parametrize("inside", ["corpus", "corpus/", "corpus/*.jsonl", "corpus/[ab].jsonl"])
def test_a_corpus_on_s3_is_that_on_the_disk(bucket, tmp_path, inside):
    there = load_corpus([f"s3://{bucket}/raw/{inside}"], root=str(tmp_path / "one"))
    here = load_corpus([str(tmp_path / "raw" / "corpus")], root=str(tmp_path / "two"))
    assert content(there) == content(here)
    assert Artifact.open(there).counts["duplicates"] == 25


def test_one_object_is_one_file(bucket, tmp_path):
    uri = load_corpus([f"s3://{bucket}/raw/corpus/a.jsonl"], root=str(tmp_path / "one"))
    assert Artifact.open(uri).counts["read"] == 50


def test_a_task_on_s3_is_that_on_the_disk(bucket, tmp_path):
    there = load_task(f"s3://{bucket}/raw/plants/", root=str(tmp_path / "one"))
    here = load_task(str(tmp_path / "raw" / "plants"), root=str(tmp_path / "two"))
    assert content(there) == content(here)


def test_texts_on_s3_are_predicted_again_and_again(bucket, tmp_path):
    metrics = baseline(load_task(str(tmp_path / "raw" / "plants"), root=str(tmp_path / "one")))
    to, found = tmp_path / "answers.jsonl", []
    for place in (f"s3://{bucket}", str(tmp_path), f"s3://{bucket}"):  # from the second time on, there are answers
        predict_command(metrics, source=f"{place}/raw/plants/test.jsonl", to=str(to), device="cpu")
        found.append(to.read_text())
    assert json.loads(found[0])["text"] == "fir"
    assert found == found[:1] * 3


def test_answers_may_be_written_to_s3_and_in_a_folder_none_twice(bucket, tmp_path):
    metrics = baseline(load_task(str(tmp_path / "raw" / "plants"), root=str(tmp_path / "one")))
    plants, client = f"s3://{bucket}/raw/plants", boto3.client("s3")

    def written():
        listed = client.list_objects_v2(Bucket=bucket, Prefix="labels/")["Contents"]
        return {one["Key"].removeprefix("labels/"): one["LastModified"] for one in listed}

    predict_command(metrics, source=f"{plants}/test.jsonl", to=f"s3://{bucket}/labels/one.jsonl")
    predict_command(metrics, source=f"{plants}/t*.jsonl", to=f"s3://{bucket}/labels/")
    first = written()
    assert first.keys() == {"one.jsonl", "_predict.json", "test.jsonl.jsonl", "train.jsonl.jsonl"}
    alone, within = (
        client.get_object(Bucket=bucket, Key=f"labels/{name}")["Body"].read() for name in sorted(first)[1:3]
    )
    assert alone == within
    assert json.loads(alone)["text"] == "fir"
    predict_command(metrics, source=plants, to=f"s3://{bucket}/labels/")
    assert written().items() - first.items() == {("dev.jsonl.jsonl", written()["dev.jsonl.jsonl"])}
    with pytest.raises(InputError, match="is a file that is read"):
        predict_command(metrics, source=f"{plants}/dev.jsonl", to=f"{plants}/dev.jsonl")


def test_downloads_are_gone_afterwards(bucket, tmp_path):
    load_corpus([f"s3://{bucket}/raw/corpus"], root=str(tmp_path / "one"))
    assert not [path for path in (tmp_path / "tlm-cache").rglob("*") if path.is_file()]


def test_the_result_may_lie_on_s3_too(bucket, tmp_path):
    there = load_corpus([f"s3://{bucket}/raw/corpus"], root=f"s3://{bucket}/artifacts")
    here = load_corpus([str(tmp_path / "raw" / "corpus")], root=str(tmp_path / "two"))
    assert content(there) == content(here)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://{bucket}/raw/nothing", "is neither an object nor a folder"),
        ("s3://{bucket}/raw/*.csv", "matches no object"),
        ("s3://{bucket}-missing/raw", "the bucket does not exist"),
    ],
)
def test_addresses_that_mean_nothing_are_refused_in_one_sentence(bucket, tmp_path, address, expected):
    with pytest.raises(InputError, match=expected):
        load_corpus([address.format(bucket=bucket)], root=str(tmp_path / "one"))


def test_of_a_large_object_only_a_piece_is_downloaded(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    lines = "".join(json.dumps({"text": f"text {number} " + "word " * 200}) + "\n" for number in range(4000))
    (tmp_path / "raw" / "large.jsonl").write_text(lines)
    address = f"s3://{bucket}/raw/large.jsonl"
    boto3.client("s3").put_object(Bucket=bucket, Key="raw/large.jsonl", Body=lines.encode())
    with raw_files([address]) as (file,):
        found = sliced([file], {0: cut(file, 1 << 20)})
        file.drop()
        assert len(found) == 4
        assert all(piece.digest() == piece.piece.digest for piece in found)
        taken = [piece.path.stat() for piece in found]
        assert {one.st_size for one in taken} == {len(lines)}
        assert max(one.st_blocks * 512 for one in taken) < 1.5 * 2**20
    monkeypatch.setattr("tlm.data.corpus.load.SMALLEST", 1 << 20)
    there = load_corpus([address], root=f"s3://{bucket}/artifacts")
    monkeypatch.undo()
    assert content(there) == content(load_corpus([str(tmp_path / "raw" / "large.jsonl")], root=str(tmp_path / "two")))
