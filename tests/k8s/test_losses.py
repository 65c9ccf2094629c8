"""The comparison of losses in k8s/check/nodes.sh accepts what trained as one pod does, and refuses what did not."""

import sys

import pytest

from k8s.check import losses
from tests.toys import make, save

CURVE = {
    "step": [0, 1, 2, 3],
    "kind": ["internal", "external", "external", "internal"],
    "mlm": [5.0, 4.0, 3.0, 2.0],
    "ce": [1.5, None, None, 0.002],
    "tokens": [90, 120, 110, 95],
}


def trained(root, processes=1, key=0, **changes):
    """A checkpoint whose curve has other columns."""

    def write(draft):
        save(draft, "curve.parquet", {**CURVE, **changes})
        draft.run["processes"] = processes

    make("checkpoint", root, write, {"key": key})
    return str(root)


@pytest.fixture
def compared(monkeypatch, capsys):
    """The exit code of the comparison of two roots, and what it prints."""

    def run(*roots):
        monkeypatch.setattr(sys, "argv", ["losses", "compare", *roots])
        return losses.main(), capsys.readouterr().out

    return run


def test_equal_losses_are_accepted_up_to_rounding(tmp_path, compared):
    other = trained(tmp_path / "two", 2, mlm=[5.0, 4.0, 3.0001, 2.0], ce=[1.5, None, None, 0.0020001])
    code, said = compared(trained(tmp_path / "one"), other)
    assert code == 0, said
    assert "4 steps: largest relative difference 5.0e-05 (ce at step 3), tolerance 0.0001" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"mlm": [5.0, 4.001, 3.0, 2.0]},
        {"ce": [1.5, None, None, 0.0021]},
        {"ce": [1.5, None, 0.1, 0.002]},
        {"ce": [1.5, None, None, float("nan")]},
        {"mlm": [5.0, 4.0, float("inf"), 2.0]},
        {"kind": ["internal", "external", "internal", "internal"]},
        {"tokens": [90, 120, 110, 96]},
        {"processes": 1},
        {"key": 1},
    ],
    ids=str,
)
def test_other_losses_and_other_trainings_are_refused(tmp_path, compared, changes):
    code, said = compared(trained(tmp_path / "one"), trained(tmp_path / "two", **{"processes": 2, **changes}))
    assert code == 1, said
    assert said.count("\n") == 1


def test_curves_of_different_lengths_are_refused():
    shorter = {name: column[:3] for name, column in CURVE.items()}
    with pytest.raises(ValueError, match="not the same steps"):
        losses.largest(CURVE, shorter)


def test_a_root_without_a_checkpoint_is_refused(tmp_path, compared):
    code, said = compared(trained(tmp_path / "one"), str(tmp_path / "nothing"))
    assert (code, "has 0 checkpoints; expected one" in said) == (1, True)


def test_a_saved_state_is_seen(tmp_path):
    assert losses.snapshot(str(tmp_path)) == ""
    (tmp_path / "progress/0123/step-000000006").mkdir(parents=True)
    assert losses.snapshot(str(tmp_path)) == ""
    (tmp_path / "progress/0123/step-000000006/manifest.json").write_text("{}")
    assert losses.snapshot(str(tmp_path)) == "0123"
