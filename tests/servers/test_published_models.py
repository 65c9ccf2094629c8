"""A published model on a real S3 server is the one on the disk."""

import boto3
import pytest

from tests.published import write_bert
from tests.toys_training import GLUE, TOPICS, task
from tests.unit.shallow.test_embeddings import with_dense
from tests.unit.shallow.test_shallow import task_of
from tlm.errors import InputError
from tlm.evaluation.score.baseline import baseline
from tlm.runs.plan import settings
from tlm.training.stages import load_model


def test_a_model_on_s3_is_that_on_the_disk(s3_root, tmp_path, monkeypatch):
    monkeypatch.setenv("TLM_CACHE", str(tmp_path / "cache"))
    folder, bucket, client = tmp_path / "tiny-bert", s3_root.split("/")[2], boto3.client("s3")
    write_bert(folder, [*GLUE, *(word for words in TOPICS.values() for word in words)])
    for path in folder.iterdir():
        client.put_object(Bucket=bucket, Key=f"models/tiny-bert/{path.name}", Body=path.read_bytes())
    client.put_object(Bucket=bucket, Key="models/tiny-bert/onnx/model.onnx", Body=b"not for us")
    there = load_model(f"s3://{bucket}/models/tiny-bert", task(tmp_path / "one"), preset="tiny")
    here = load_model(str(folder), task(tmp_path / "two"), preset="tiny")
    assert there.rpartition("/")[2] == here.rpartition("/")[2]
    assert not list((tmp_path / "cache").rglob("*.safetensors"))  # downloads are gone afterwards
    with pytest.raises(InputError, match="nothing: there is no model here"):
        load_model(f"s3://{bucket}/models/nothing", task(tmp_path / "one"), preset="tiny")
    settings("tiny", published=f"s3://{bucket}/models/tiny-bert")
    client.delete_object(Bucket=bucket, Key="models/tiny-bert/model.safetensors")
    with pytest.raises(InputError, match="models/tiny-bert has no weights"):
        settings("tiny", published=f"s3://{bucket}/models/tiny-bert")


def test_an_embedding_model_comes_with_its_folders(s3_root, tmp_path, monkeypatch):
    monkeypatch.setenv("TLM_CACHE", str(tmp_path / "cache"))
    folder, bucket, client = tmp_path / "tiny", s3_root.split("/")[2], boto3.client("s3")
    with_dense(folder)
    for path in (path for path in folder.rglob("*") if path.is_file()):
        client.put_object(Bucket=bucket, Key=f"embeddings/tiny/{path.relative_to(folder)}", Body=path.read_bytes())
    client.put_object(Bucket=bucket, Key="embeddings/tiny/2_Dense/pytorch_model.bin", Body=b"not for us")
    root, examples = str(tmp_path / "store"), task_of(tmp_path / "store", "marked")
    there = baseline(examples, features=f"s3://{bucket}/embeddings/tiny", root=root)
    assert there == baseline(examples, features=str(folder), root=root)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
