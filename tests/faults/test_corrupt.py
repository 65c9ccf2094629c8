"""Damaged files are found before they are used, and a full disk spoils nothing.

`make chaos PART=corrupt` tries more of each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import damage, full_disk
from tests.faults.parts import corrupt
from tests.faults.tally import tally
from tests.making import fill_folder, make
from tlm.artifacts.artifact import Artifact, Manifest
from tlm.artifacts.produce import Progress
from tlm.errors import Damaged

HARM = {"bit flip": damage.flip, "truncated file": damage.truncate, **corrupt.OTHERS}


def survived(outcomes: Iterator[str]) -> None:
    found = tally("short", outcomes)
    assert found["survived"] == found["tried"]
    assert int(found["tried"]) > 0


@pytest.mark.parametrize("what", HARM)
def test_damage_to_an_artifact_is_found(chain, chance, what):
    survived(corrupt.in_artifacts(chain, chance.sample(list(corrupt.READERS), 5), HARM[what], chance))


@pytest.mark.parametrize("what", HARM)
def test_training_goes_on_from_the_snapshot_before_a_damaged_one(chain, chance, what):
    survived(corrupt.in_snapshots(chain, chance.choice(["train", "finetune"]), 1, HARM[what], chance))


@pytest.mark.slow
def test_a_full_disk_is_said_and_spoils_nothing():
    if not full_disk.possible():
        pytest.skip("no small file system can be mounted here: needs unshare and user namespaces")
    for row in full_disk.rows({"load-corpus": 20, "index": 10, "tokenize": 3, "train": 80, full_disk.IN_PARTS: 400}):
        assert row["survived"] == row["tried"]
        assert int(row["tried"]) > 1


def test_every_bit_of_a_manifest_counts(tmp_path):
    """Also those that its content does not cover: settings, counts, rows, inputs."""
    data = (Path(make(f"{tmp_path}").uri) / "manifest.json").read_bytes()
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(Damaged, match="repeat its step"):
            Manifest.from_bytes(bytes(flipped), "here")


def test_every_bit_of_run_json_counts_and_it_is_left_out(tmp_path, capsys):
    made = make(f"{tmp_path}")
    path = Path(made.uri) / "run.json"
    data, facts = path.read_bytes(), made.run()
    assert facts["threads"] == 1
    assert "sha256" not in facts
    for place in range(0, len(data) * 8, 7):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert made.run() == {}
    assert "run.json is damaged, so the facts about the run (time, cost) are left out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["adapter_config.json", "deep/added_tokens.json"])
def test_a_folder_is_not_handed_out_with_a_foreign_file_in_it(tmp_path, name):
    made = make(f"{tmp_path}")
    folder = made.path("model")
    (folder / ".nfs0001").touch()  # a trace of the file system itself
    assert Artifact.open(made.uri).path("model") == folder
    (folder / name).write_text("{}")
    with pytest.raises(Damaged, match=rf"{name} does not belong to .*; remove it"):
        Artifact.open(made.uri).path("model")


def save(work: Progress, step: int) -> None:
    work.save(step, lambda folder: fill_folder(folder, f"step {step}"))


def test_a_damaged_snapshot_is_not_one_of_the_two_that_are_kept(tmp_path):
    for step in (1, 2):
        save(Progress("work", f"{tmp_path}"), step)
    (tmp_path / "progress/work/step-000000002/manifest.json").write_bytes(b"?")
    again = Progress("work", f"{tmp_path}")
    assert again.latest(tmp_path / "into") == 1
    save(again, 3)  # at another step than before, as it happens where minutes decide
    assert sorted(path.name for path in tmp_path.glob("progress/work/*")) == ["step-000000001", "step-000000003"]
