"""Paths and patterns mean the same files on the disk and on a real S3 server."""

import boto3
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tlm.artifacts.stores.s3 import S3Store
from tlm.artifacts.stores.store import Stored
from tlm.data.reading.files import raw_files
from tlm.errors import InputError

NAMES = (
    "a.jsonl", "b.csv", ".hidden.jsonl", "[x].jsonl", "x.jsonl", "a*.jsonl", "what?.jsonl", "_SUCCESS", "read.md",
    "deep/a.jsonl", "deep/er/a.jsonl", "deep/er/est/a.jsonl", "deep/er/est/b.csv", "deep/.git/a.jsonl",
    "deep/_temporary/a.jsonl", "deep/[er]/c.jsonl", "deep/e/c.jsonl", "deeper/a.jsonl", "only/notes.md", "one/a.jsonl",
    "two/a.jsonl.gz", "two/a.jsonl", "*/a.jsonl", "**/b.jsonl", "part-1.jsonl", "part-2.jsonl", "A.jsonl",
)  # fmt: skip
PART = st.sampled_from(
    [
        *("*", "**", "?.jsonl", "*.jsonl", "*.csv", "[ab].*", "[!a].jsonl", "[x].jsonl", "[[]x].jsonl", "a*.jsonl"),
        *("a.jsonl", "deep", "dee?", "deep*", "d*", "er", "[er]", "e*", ".*", ".git", "_*", "only", "two", "part-*"),
        *("part-", "what?.jsonl", "[", "[!", "x", "*.gz", "", "o*", "A.*", "est", "***", "**.jsonl", "[a-c].jsonl"),
    ]
)


@pytest.fixture
def trees(s3_root, tmp_path):
    """The same tree on the disk and on S3."""
    bucket = s3_root.split("/")[2]
    client = boto3.client("s3")
    for name in NAMES:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'{"text": "x"}\n')
        client.put_object(Bucket=bucket, Key=f"tree/{name}", Body=b'{"text": "x"}\n')
    return f"{tmp_path}/tree", f"s3://{bucket}/tree"


def meant(tree, path):
    """The files that a path below a tree means; None if it is refused."""
    try:
        with raw_files([f"{tree}/{path}"]) as files:
            return [file.where.removeprefix(tree) for file in files]
    except InputError:
        return None


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(PART, min_size=1, max_size=4))
@example(parts=["", "a*.jsonl"])  # a file of that name, behind two slashes
@example(parts=["", "deep", "", "er"])
@example(parts=[".", "deep", "*"])
def test_any_pattern_means_the_same_on_the_disk_and_on_s3(trees, parts):
    here, there = (meant(tree, "/".join(parts)) for tree in trees)
    assert here == there


@pytest.mark.parametrize("where", [0, 1], ids=["disk", "s3"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("deep/**/a.jsonl", ["deep/_temporary/a.jsonl", "deep/a.jsonl", "deep/er/a.jsonl", "deep/er/est/a.jsonl"]),
        ("**/b.csv", ["b.csv", "deep/er/est/b.csv"]),
        ("deep/*/*/*.csv", ["deep/er/est/b.csv"]),
        ("[x].jsonl", ["[x].jsonl"]),  # a file of that name goes before the pattern
        ("[x]*.jsonl", ["x.jsonl"]),
        ("a*.jsonl", ["a*.jsonl"]),
        ("a?.jsonl", ["a*.jsonl"]),
        ("what?.jsonl", ["what?.jsonl"]),
        ("deep/[er]", ["deep/[er]/c.jsonl"]),
        ("*/a.jsonl", ["*/a.jsonl"]),
        ("?.jsonl", ["A.jsonl", "a.jsonl", "x.jsonl"]),
        ("part-*", ["part-1.jsonl", "part-2.jsonl"]),
        ("d*", ["deep/[er]/c.jsonl", "deep/a.jsonl", "deep/e/c.jsonl", "deep/er/a.jsonl", "deep/er/est/a.jsonl",
                "deep/er/est/b.csv", "deeper/a.jsonl"]),
        ("deep/er/", ["deep/er/a.jsonl", "deep/er/est/a.jsonl", "deep/er/est/b.csv"]),
        ("/*.csv", ["b.csv"]),
        ("/[x].jsonl", ["[x].jsonl"]),
        ("deep//er", ["deep/er/a.jsonl", "deep/er/est/a.jsonl", "deep/er/est/b.csv"]),
        ("./deep/./a.jsonl", ["deep/a.jsonl"]),
        ("part-", None),
        ("nothing", None),
        ("only", None),
        ("*.parquet", None),
    ],
)  # fmt: skip
def test_what_paths_and_patterns_mean(trees, where, path, expected):
    found = meant(trees[where], path)
    assert found == (None if expected is None else sorted(f"/{name}" for name in expected))


def test_what_means_nothing_on_s3_is_refused_with_what_to_do(trees):
    with (
        pytest.raises(
            InputError, match=r"tree/part- is neither an object nor a folder; .*/tree/part-\* for all objects"
        ),
        raw_files([f"{trees[1]}/part-"]),
    ):
        pass


@pytest.mark.parametrize("path", ["/a.jsonl", "//a.jsonl", "/*", "*", ""])
def test_objects_behind_two_slashes_are_refused_not_replaced_by_others(trees, monkeypatch, path):
    """Such keys are legal on S3; the server here folds them."""
    keys = ["tree/a.jsonl", "tree//a.jsonl", "tree///a.jsonl"]
    monkeypatch.setattr(
        S3Store, "list", lambda store, prefix: (Stored(key, 14, 0.0) for key in keys if key.startswith(prefix))
    )
    with pytest.raises(InputError, match=r"empty, '\.' or '\.\.' parts"), raw_files([f"{trees[1]}/{path}"]):
        pass
