"""The command `long-texts`: what it takes from the kernel's documentation."""

import gzip
import json
from pathlib import Path

import pytest

from research import long_texts as command
from research.long_texts import long_texts
from tlm.errors import InputError

PAGE = ".. SPDX\n\n{over}A page of net\n{under}\n\n1. First\n========\n\n{text}\n"


def test_a_page_begins_behind_its_heading_and_has_its_folder_as_label(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(command, "LEAST_TEXTS", 2)
    docs, words = tmp_path / "docs", "word " * 160
    for name, over in (("net/a.rst", ""), ("net/deep/b.rst.gz", "=============\n"), ("translations/c.rst", "")):
        page = PAGE.format(over=over, under="=" * 13, text=words)
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_bytes(gzip.compress(page.encode()) if name.endswith("gz") else page.encode())
    (docs / "translations" / "d.rst").write_text(words)
    (docs / "net" / "short.rst").write_text("word")
    (docs / "few").mkdir()
    (docs / "few" / "e.rst").write_text(words)
    (docs / "index.rst").write_text(words)
    long_texts(str(docs), to=str(tmp_path / "made"))
    rows = [json.loads(line) for line in (tmp_path / "made" / "task.jsonl").read_text().splitlines()]
    text = f"\n\n1. First\n========\n\n{words}\n"
    assert rows == [{"text": text, "label": "net", "id": name} for name in ("net/a.rst", "net/deep/b.rst.gz")]


def test_a_folder_without_pages_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no folder with 60 long pages in .rst or .rst.gz; give the folder Docu"):
        long_texts(str(tmp_path), to=str(tmp_path / "made"))
