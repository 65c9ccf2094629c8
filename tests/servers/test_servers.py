"""The servers that other tests stand on are real and answer as the real ones do."""

import json
import urllib.request

import boto3
import pytest
from botocore.exceptions import ClientError


def test_elasticsearch_answers_with_its_version(elasticsearch_url):
    with urllib.request.urlopen(f"{elasticsearch_url}/_nodes") as answer:
        (node,) = json.load(answer)["nodes"].values()
    assert node["version"].startswith("9.")


def test_s3_refuses_to_overwrite_on_condition(s3_root):
    bucket = s3_root.split("/")[2]
    client = boto3.client("s3")
    client.put_object(Bucket=bucket, Key="once", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="once", Body=b"2", IfNoneMatch="*")


def test_each_test_has_a_fresh_bucket(s3_root):
    bucket = s3_root.split("/")[2]
    assert boto3.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"] == 0
