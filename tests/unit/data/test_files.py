"""Paths: which files they mean, in which order, and what is said where they mean none."""

import re

import pytest

from tlm.data.reading.files import _readable, raw_files
from tlm.errors import InputError

LINES = b'{"text": "x"}\n'


def refused(path):
    with pytest.raises(InputError) as caught, raw_files([str(path)]):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_hub_data_sets_are_an_extra():
    try:
        import datasets  # noqa: F401
    except ImportError:
        assert refused("hf://owner/name:train").endswith("in a checkout, `pip install '.[hub]'`")
    else:
        assert "is not the address of a Hub data set" in refused("hf://a/b/c/d")


def test_folders_and_globs_give_each_file_once_in_the_order_of_their_paths(tmp_path, capsys):
    for name in ("b/2.jsonl", "b/10.csv", "a/z.txt", "_temporary/x.jsonl", "b/readme.md", "b/n.rst.gz", ".git/y.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"text\nx\n")
    with raw_files([f"{tmp_path}/b/*.jsonl", str(tmp_path), f"file://{tmp_path}/a/z.txt"]) as files:
        assert [file.where for file in files] == [f"{tmp_path}/{name}" for name in ("a/z.txt", "b/10.csv", "b/2.jsonl")]
        assert [file.name for file in files] == ["z.txt", "10.csv", "2.jsonl"]
    said = capsys.readouterr().err
    assert {"readme.md", "n.rst.gz"} == set(re.search("other extensions: (.*?);", said)[1].split(", "))
    assert f"; to read .md or .rst, give a pattern such as {tmp_path}/**/*.md" in said
    with raw_files([f"{tmp_path}/**/*.md"]) as (file,):
        assert (file.name, file.format) == ("readme.md", "txt")
    assert _readable("s3://bucket/", ["a.md", "b.txt", "c.md/d.md5.csv"]) == ["b.txt", "c.md/d.md5.csv"]
    assert capsys.readouterr().err.endswith("such as s3://bucket/**/*.md\n")


def test_a_path_may_be_written_in_any_way(tmp_path, monkeypatch):
    for name in ("data/x.jsonl", "data/.y.jsonl", "_under/z.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LINES)
    monkeypatch.chdir(tmp_path / "data")
    for path in (".", "./", "../data", "x.jsonl", "./x.jsonl", f"{tmp_path}/_under/"):
        with raw_files([path]) as files:
            assert [file.name for file in files] == ["z.jsonl" if "_under" in path else "x.jsonl"]
    with raw_files(["./x.jsonl", "x.jsonl"]) as files:
        assert len(files) == 1
