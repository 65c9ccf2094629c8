"""The command `debtags`: what it takes from Debian's package index."""

import json
from pathlib import Path

import pytest

from research import debtags as command
from research.debtags import debtags
from tlm.errors import InputError

PACKAGES = """\
Package: mutt
Source: mutt (1.0)
Description-md5: 1
Tag: role::program, use::editing, works-with::mail,
 works-with::TODO, implemented-in::c

Package: vim
Description-md5: 2
Tag: role::program, use::editing, works-with::text

Package: pico
Description-md5: 3
Tag: role::program, works-with::mail

Package: libmutt
Source: mutt
Description-md5: 4
Tag: role::shared-lib, works-with::mail

Package: plain
Description-md5: 5

Package: untranslated
Description-md5: 6
"""
DESCRIPTIONS = "".join(
    f"Package: {name}\nDescription-md5: {number}\nDescription-en: short {name}\n It is {name}.\n .\n A paragraph.\n\n"
    for number, name in enumerate(["mutt", "vim", "pico", "libmutt", "plain"], 1)
)


def rows(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_programs_are_the_task_and_packages_without_tags_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "LEAST", 2)
    (tmp_path / "Packages").write_text(PACKAGES)
    (tmp_path / "Translation-en").write_text(DESCRIPTIONS)
    debtags(str(tmp_path / "Packages"), str(tmp_path / "Translation-en"), to=str(tmp_path / "made"))
    assert rows(tmp_path / "made" / "task.jsonl") == [
        {"text": f"short {name}. It is {name}. A paragraph.", "label": labels, "group": group, "id": name}
        for name, labels, group in (
            ("mutt", ["use::editing", "works-with::mail"], "mutt"),
            ("vim", ["use::editing"], "vim"),
            ("pico", ["works-with::mail"], "pico"),
        )
    ]
    assert rows(tmp_path / "made" / "corpus.jsonl") == [
        {"text": "short plain. It is plain. A paragraph.", "source": "plain"}
    ]


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    (tmp_path / "Packages").write_text(PACKAGES)
    (tmp_path / "none").write_text("Package: other\nDescription-md5: 9\nDescription-en: x\n")
    with pytest.raises(InputError, match=r"have no tagged program in common; give files of one suite"):
        debtags(str(tmp_path / "Packages"), str(tmp_path / "none"), to=str(tmp_path / "made"))
    with pytest.raises(InputError, match=r"missing cannot be read: .*; give a file of apt's lists, not compressed"):
        debtags(str(tmp_path / "missing"), str(tmp_path / "none"), to=str(tmp_path / "made"))
