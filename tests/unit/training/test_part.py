"""Stage 2 on a part of the weights: what stays bit-equal, what the optimizer knows, what LoRA's model is in the end."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForSequenceClassification

from tests.conftest import missing
from tests.toys_training import checkpoint, model, task
from tests.unit.training.test_encoder import (
    LABELS,
    attention_mask,
    evenly_masked_batch,
    inputs_of,
    library_config,
    made,
    types,
)
from tests.unit.training.test_foreign import made as foreign
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Recipe
from tlm.errors import InputError
from tlm.settings.options import Compute
from tlm.settings.presets import resolve
from tlm.settings.sections import OWN, Finetune
from tlm.training.checkpoint import Snapshots, State
from tlm.training.classification import NINTHS, RANK, merge, train_only
from tlm.training.device import to_device
from tlm.training.input.batches import BACKWARD, Batch
from tlm.training.loop import Plan, fit
from tlm.training.model.encoder import Body, Encoder
from tlm.training.model.losses import classification_loss

CPU = torch.device("cpu")
PARTS = ("head", "bias", "lora")
LOW = "parametrizations.weight.0"
FAST = ("finetune.lr=0.01", "finetune.epochs=2")


def moves(name: str, body: Body, part: str) -> bool:
    """Whether stage 2 may change these weights of a BERT."""
    projection = "attention" in name and name.endswith(("query.weight", "key.weight", "value.weight", "dense.weight"))
    return name.startswith(body.head_names) or {"head": False, "bias": name.endswith("bias"), "lora": projection}[part]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Artifact]:
    root = tmp_path_factory.mktemp("root")
    examples = task(root)
    return root, examples, checkpoint(root, examples, "model.architecture=bert")


@pytest.mark.parametrize("part", PARTS)
def test_the_model_is_plain_and_only_the_part_has_moved(start, part):
    root, examples, begun = start
    end = model(root, begun, examples, *FAST, f"finetune.weights={part}")
    old, new = (load_file(one.path("model") / "model.safetensors") for one in (begun, end))
    assert old.keys() == new.keys()
    body = made("bert").body
    for name, value in old.items():
        assert np.array_equal(value, new[name]) != moves(name, body, part), name
    matrices = [name for name in old if moves(name, body, part) and not name.startswith(body.head_names)]
    if part == "lora":
        assert len(matrices) == 4 * resolve("tiny").model.layers
        assert {np.linalg.matrix_rank(new[name] - old[name], tol=1e-4) for name in matrices} <= set(range(1, RANK + 1))
    library = AutoModelForSequenceClassification.from_pretrained(end.path("model"))
    assert library.num_parameters() == end.details["parameters"] == begun.details["parameters"]
    card = (end.path("model") / "README.md").read_text(encoding="utf-8")
    assert ("classification head and changes of low rank" in card) == (part == "lora")
    assert ("the classification head alone" in card) == (part == "head")


def trained(encoder: Encoder, part: str, steps: int = 3) -> State:
    """The state after some steps on one batch."""
    train_only(encoder.body, part, seed=0)
    state = State.fresh(encoder.body, resolve("tiny").finetune, steps)
    for _ in range(steps):
        classification_loss(encoder, inputs_of()).total.backward()
        state.optimizer.step(0.01)
    return state


@pytest.mark.parametrize("part", PARTS)
def test_the_optimizer_knows_only_what_is_trained(part):
    encoder = made("bert")
    state = trained(encoder, part)
    free = {name for name, one in encoder.body.named_parameters() if one.requires_grad}
    assert set(state.optimizer.moments) == free
    assert any("down" in name for name in free) == (part == "lora")


def test_the_seed_draws_what_lora_begins_with():
    begun = []
    for seed in (0, 0, 1):
        encoder = made("bert")
        train_only(encoder.body, "lora", seed)
        begun.append(torch.cat([one.flatten() for name, one in encoder.body.named_parameters() if "down" in name]))
    assert torch.equal(begun[0], begun[1])
    assert not torch.equal(begun[0], begun[2])


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "distilbert", "albert", "deberta-v2"])
def test_merging_changes_no_answer(architecture):
    encoder = made(architecture) if architecture in OWN else foreign(architecture)
    names = set(encoder.body.state_dict())
    trained(encoder, "lora")
    assert all(one.any() for name, one in encoder.body.named_parameters() if name.endswith(".up"))
    unmerged = logits(encoder)
    merge(encoder.body)
    assert torch.equal(logits(encoder), unmerged)
    assert set(encoder.body.state_dict()) == names


@torch.no_grad()
def logits(encoder: Encoder) -> Tensor:
    inputs = inputs_of()
    found = encoder.eval()(inputs, inputs.ids, tokens=False, classes=True)[1]
    assert found is not None
    return found


class Work:
    """Three rows a step, which depend on the step; it may die."""

    label = advice = "toy"

    def __init__(self, encoder: Encoder, dies_at: int) -> None:
        self.encoder, self.dies_at = encoder, dies_at

    def batch(self, step: int) -> Batch:
        if step == self.dies_at:
            raise KeyboardInterrupt
        return evenly_masked_batch()

    def losses(self, step, inputs):
        return classification_loss(self.encoder, inputs)

    def costs(self, step, batch):
        return 0, 0, 0

    def after(self, state):
        pass


@pytest.mark.parametrize("part", PARTS)
def test_an_interrupted_run_ends_bit_equal(tmp_path, part):
    settings = Finetune(batch=3, lr=0.01, dropout=0.1, weights=part)

    def run(name: str, dies_at: int = -1) -> dict[str, Tensor]:
        encoder = made("bert")
        train_only(encoder.body, part, seed=0)
        state = State.fresh(encoder.body, settings, 6)
        snapshots = Snapshots(Recipe("model", name, 1, {}), str(tmp_path), Compute(save_steps=2, save_minutes=0))
        try:
            fit(state, Work(encoder, dies_at), Plan(settings, 6, 1, 0.1, seed=0), snapshots, CPU)
        finally:
            snapshots.wait()
        return encoder.body.state_dict()

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("dying", dies_at=5)
    assert list(tmp_path.glob("progress/*/*000004"))
    again = run("dying")
    assert whole.keys() == again.keys()
    assert all(torch.equal(value, again[name]) for name, value in whole.items())


def test_an_encoder_without_biases_has_none_to_train(start):
    root, examples, _ = start
    with pytest.raises(
        InputError, match=r"finetune\.weights is bias, and this modernbert has nothing of that kind; set"
    ):
        model(root, checkpoint(root, examples), examples, "finetune.weights=bias")


def test_a_low_rate_is_warned_of(start, capsys):
    root, examples, begun = start
    model(root, begun, examples, "finetune.lr=1e-4", "finetune.epochs=1", "finetune.weights=head")
    assert "finetune.lr is 0.0001, low for finetune.weights=head" in capsys.readouterr().err


def test_keys_of_models_of_all_weights_stay():
    assert "train" not in resolve("tiny").finetune.for_key()
    assert resolve("tiny", ["finetune.weights=lora"]).finetune.for_key()["weights"] == "lora"


@pytest.mark.parametrize("part", ["all", *PARTS])
def test_the_cost_is_about_what_torch_counts(part):
    encoder, inputs = made("bert", LABELS, "model.layers=8"), to_device(evenly_masked_batch(), CPU)
    train_only(encoder.body, part, seed=0)
    counts = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        for backward in (False, True):
            with FlopCounterMode(display=False) as counter:
                loss = classification_loss(encoder, inputs).total
                if backward:
                    loss.backward()
            counts.append(counter.get_total_flops())
    forward, both = counts
    assert both / forward == pytest.approx(BACKWARD * NINTHS[part] / NINTHS["all"], rel=0.12)


def test_lora_is_that_of_peft():
    """The same function of the same matrices, and as many parameters."""
    if not find_spec("peft"):
        missing("peft is not installed: pip install -r research/benchmarks/requirements.txt")
    peft = import_module("peft")
    ours, inputs = made("bert"), inputs_of()
    library = AutoModelForSequenceClassification.from_config(library_config(ours))
    library.load_state_dict(ours.body.state_dict())
    config = peft.LoraConfig(r=RANK, target_modules=["query", "key", "value", "attention.output.dense"],
                             modules_to_save=["pooler", "classifier"])  # fmt: skip
    theirs = peft.get_peft_model(library, config).eval()
    trained(ours, "lora")
    own = {name: one.detach() for name, one in ours.body.named_parameters() if one.requires_grad}
    assert theirs.get_nb_trainable_parameters()[0] == sum(one.numel() for one in own.values())
    names = {".modules_to_save.default": "", "base_model.model.": "", ".lora_A.default.weight": f".{LOW}.down",
             ".lora_B.default.weight": f".{LOW}.up"}  # fmt: skip
    for name, one in theirs.named_parameters():
        if one.requires_grad:
            for their, our in names.items():
                name = name.replace(their, our)
            one.data.copy_(own.pop(name))
    assert not own
    found = theirs(inputs.ids, attention_mask=attention_mask(inputs), **types(inputs)).logits
    assert torch.allclose(found, logits(ours), atol=1e-5)
