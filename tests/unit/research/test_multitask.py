"""Stage 1 for several tasks: what is shared and what is not, whose turn it is, and what comes of it."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from research.multitask.plan import load_together
from research.multitask.train import train_multitask
from tests.toys import make_task
from tests.toys_multitask import other_task, together
from tests.toys_training import STEPS, TOPICS, checkpoint, rows, task
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.score.evaluate import evaluate
from tlm.settings.options import Compute, Fields, Problem
from tlm.training.model import build
from tlm.training.stages import finetune

HOME = Path(__file__).parents[3]


def curve(made: Artifact) -> dict[str, list]:
    return pq.read_table(made.path("curve.parquet")).to_pydict()


@pytest.mark.parametrize("changes", [(), ("model.dropout=0.1", "train.mask_internal=false")], ids=["plain", "dropout"])
def test_one_task_alone_has_the_losses_and_the_model_of_train(tmp_path, changes):
    single, multi = checkpoint(tmp_path, task(tmp_path), *changes), together(tmp_path, [task(tmp_path)], *changes)
    ours = curve(multi)
    assert set(ours.pop("task")) == {"toy", None}
    assert ours == curve(single)
    assert multi.details["cost"] == single.details["cost"]
    assert multi.details["parameters"] == single.details["parameters"]
    weights = [load_file(made.path("model") / build.WEIGHTS) for made in (single, multi)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("rho1", [0, 1, 2, "inf"])
def test_each_task_has_its_turn_and_the_counts_are_exact(tmp_path, rho1):
    made = together(tmp_path, [task(tmp_path), other_task(tmp_path), other_task(tmp_path, "regression", "third")],
                    f"train.rho1={rho1}", "train.steps=13")  # fmt: skip
    told = curve(made)
    turns = [name for name in told["task"] if name is not None]
    order = ["toy", "other", "third"]
    assert turns == [order[place % 3] for place in range(len(turns))]
    assert len(turns) == (0 if rho1 == "inf" else 13 // (rho1 + 1)) == made.details["cost"]["internal_steps"]
    assert {one["name"]: one["internal_steps"] for one in made.details["tasks"]} == {
        name: turns.count(name) for name in order
    }
    assert [kind == "internal" for kind in told["kind"]] == [name is not None for name in told["task"]]


def test_a_run_of_n_times_the_steps_gives_each_task_the_batches_of_its_own_run(tmp_path):
    made = together(tmp_path, [task(tmp_path), other_task(tmp_path)], f"train.steps={2 * STEPS}")
    alone = checkpoint(tmp_path, task(tmp_path))
    assert [one["internal_steps"] for one in made.details["tasks"]] == [alone.details["cost"]["internal_steps"]] * 2
    both, one = curve(made), curve(alone)
    theirs = [tokens for tokens, name in zip(both["tokens"], both["task"], strict=True) if name == "toy"]
    assert theirs == [tokens for tokens, kind in zip(one["tokens"], one["kind"], strict=True) if kind == "internal"]


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_encoder_is_shared_and_each_head_is_its_own(architecture):
    from research.multitask.joint import Heads, sharing
    from tlm.settings.presets import resolve
    from tlm.training.input.texts import Special

    model = resolve("tiny", [f"model.architecture={architecture}"]).model
    labels = {"a": ["x", "y"], "b": ["x", "y"], "c": None}
    configs = [
        build.with_task(build.make_config(model, 300, Special(0, 1, 2, 3, 4)), known, name)
        for name, known in labels.items()
    ]
    plain, alone = build.build(configs[0], 7), build.build(configs[0], 7)
    encoders = [alone, *sharing(alone, configs[1:], 7, torch.device("cpu"))]
    heads = encoders[0].body.head_names
    first, second, third = (dict(encoder.named_parameters()) for encoder in encoders)
    for name, parameter in first.items():
        is_head = name.removeprefix("body.").startswith(heads)
        assert (second[name] is parameter) != is_head
        if is_head and parameter.ndim > 1:
            assert not torch.equal(second[name], parameter)  # drawn anew, though of one seed and one shape
    assert third["body.classifier.weight"].shape[0] == 1
    whole = Heads(encoders)
    own = sum(p.numel() for e in encoders[1:] for n, p in e.body.named_parameters() if n.startswith(heads))
    assert sum(p.numel() for p in whole.parameters()) == sum(p.numel() for p in first.values()) + own
    assert set(whole.state_dict()) == {name for name, _ in whole.named_parameters()}  # each is saved once
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in encoders[0].state_dict().items())


def test_all_heads_learn_and_are_kept(tmp_path):
    tasks = [task(tmp_path), other_task(tmp_path), other_task(tmp_path, "regression", "third")]
    made = together(tmp_path, tasks)
    heads = load_file(made.path(build.HEADS))
    assert {name: heads[name].shape[0] for name in heads if name.endswith("classifier.weight")} == {
        "0.classifier.weight": 3, "1.classifier.weight": 2, "2.classifier.weight": 1,
    }  # fmt: skip
    before = together(tmp_path, tasks, "train.lr=1e-12")
    fresh = load_file(before.path(build.HEADS))
    assert all(not torch.allclose(heads[name], fresh[name], atol=1e-6) for name in heads if name.endswith("weight"))
    model = load_file(made.path("model") / build.WEIGHTS)
    assert torch.equal(model["classifier.weight"], heads["0.classifier.weight"])
    assert made.details["parameters"] == sum(value.numel() for value in model.values()) + sum(
        value.numel() for name, value in heads.items() if not name.startswith("0.")
    )


def test_all_heads_may_take_part_in_external_steps(tmp_path):
    """With the learning rate at nearly zero, what moves a head is weight decay alone; its share counts the steps."""
    tasks = [task(tmp_path), other_task(tmp_path)]
    almost_still = ["train.lr=1e-9", "train.weight_decay=1e7", "train.schedule=constant", "train.warmup_steps=0"]
    steps = ["train.rho1=2", "train.steps=12"]  # eight external steps, two internal ones for each task
    fresh = load_file(together(tmp_path, tasks, "train.lr=1e-12").path(build.HEADS))
    for head_steps, counts in (("internal", (2, 2)), ("all", (10, 10))):
        made = together(tmp_path, tasks, *almost_still, *steps, f"train.head_steps={head_steps}")
        heads = load_file(made.path(build.HEADS))
        for index, count in enumerate(counts):
            name = f"{index}.classifier.weight"
            shrunk = torch.log(heads[name] / fresh[name]).mean() / torch.log(torch.tensor(0.99))
            assert shrunk.item() == pytest.approx(count, abs=0.05), (head_steps, name)


def test_stage_2_begins_for_each_task_and_for_one_that_was_not_there(tmp_path):
    tasks = [task(tmp_path), other_task(tmp_path)]
    made = together(tmp_path, tasks)
    unseen = other_task(tmp_path, "regression", "unseen")
    for one in (*tasks, unseen):
        model = finetune(
            made.uri,
            one,
            preset="tiny",
            overrides=["finetune.steps=4"],
            compute=Compute(device="cpu"),
            root=str(tmp_path),
        )
        scored = Artifact.open(evaluate(model, one, device="cpu", root=str(tmp_path)))
        assert (scored.details["arm"], scored.details["stage"]) == ("multi-task", "stage 2")
        assert scored.details["mlm_loss"] > 0


def test_a_kept_head_is_that_of_the_task(tmp_path):
    """The rate of stage 2 is as good as nought: what comes out is what stage 1 left."""
    tasks = [task(tmp_path), other_task(tmp_path), other_task(tmp_path, "single", "third")]
    made = together(tmp_path, tasks)
    still = ["finetune.reset_head=false", "finetune.lr=1e-12", "finetune.steps=2", "finetune.dropout=0"]
    heads = load_file(made.path(build.HEADS))
    for place, one in enumerate(tasks):
        model = Artifact.open(
            finetune(made.uri, one, preset="tiny", overrides=still, compute=Compute(device="cpu"), root=str(tmp_path))
        )
        found = load_file(model.path("model") / build.WEIGHTS)["classifier.weight"]
        found *= model.details["chosen"]["temperature"]
        assert torch.allclose(found, heads[f"{place}.classifier.weight"], atol=1e-6)
    unseen = other_task(tmp_path, "single", "unseen")
    with pytest.raises(InputError, match="has no head for 'unseen' with these classes"):
        finetune(made.uri, unseen, preset="tiny", overrides=still, compute=Compute(device="cpu"), root=str(tmp_path))


def test_what_cannot_be_is_one_sentence(tmp_path):
    one, two = task(tmp_path), other_task(tmp_path)
    with pytest.raises(InputError, match="no task is given"):
        train_multitask([], tokenizer="", root=str(tmp_path))
    same = make_task(tmp_path, rows(train=9), "macro_f1", sorted(TOPICS))
    for wrong in ([one, two, one], [one, same]):
        with pytest.raises(InputError, match="are both called 'toy'; give each task once"):
            together(tmp_path, wrong)
    empty = make_task(tmp_path, rows(train=0), "macro_f1", sorted(TOPICS), "empty")
    with pytest.raises(InputError, match="has no train examples"):
        together(tmp_path, [one, empty])
    with pytest.raises(InputError, match="seed is -1; expected 0 or more"):
        together(tmp_path, [one, two], seed=-1)
    with pytest.raises(InputError, match="is one encoder for several tasks; run finetune"):
        evaluate(together(tmp_path, [one, two]).uri, one, device="cpu", root=str(tmp_path))


def test_interrupted_runs_go_on_and_end_bit_equal(tmp_path):
    command = [sys.executable, "-m", "tests.toys_multitask", str(tmp_path)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["calm"][0] == 0
    assert (found["killed"]["code"], found["stopped"]["code"]) == (-9, 143)
    for name, last in (("killed", 6), ("stopped", 8)):
        assert max(found[name]["snapshots"]) == f"step-{last:09d}"
        assert found[name]["again"] == found["calm"]
        assert found[name]["left"] == 0


def test_tasks_together_do_not_share_hits_by_the_classes_of_one() -> None:
    with pytest.raises(InputError, match=r"retrieve\.share=classes is for one task"):
        load_together([], ["retrieve.share=classes"], Fields(), Problem(), None)
