"""Keys: a setting that cannot change a result is in no key, and every setting that can is in one.

That a setting is without effect is proved by training: both values, each in a store of its own, give the same content.
"""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.multitask.train import train_multitask
from tests.toys_training import SMALL, checkpoint, model, passages, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.index import build_index
from tlm.settings import presets
from tlm.settings.options import Compute
from tlm.settings.sections import SECTIONS
from tlm.training.stages import checkpoint_recipe, load_model, train_settings

TRAIN = {  # another value for every setting of stage 1
    "rho1": "3", "rho2": "5", "steps": "13", "external_batch": "5", "internal_batch": "5", "external_length": "17",
    "lr": "1e-3", "warmup_steps": "3", "schedule": "cosine", "weight_decay": "0.1", "betas": "0.8,0.9",
    "mask_share": "0.3", "internal_loss": "sum", "mask_internal": "false", "clip": "0.5", "accumulation": "2",
    "precision": "bf16", "embeddings": "random", "head_steps": "all", "epsilon": "1e-6", "masking": "words",
}  # fmt: skip
MODEL = {
    "architecture": "bert", "hidden": "16", "layers": "3", "heads": "4", "intermediate": "32", "max_length": "49",
    "positions": "64", "token_types": "1", "dropout": "0.1", "spans_first": "false", "cut": "head+tail",
}  # fmt: skip
FINETUNE = {
    "epochs": "7", "steps": "9", "batch": "5", "lr": "0.123", "warmup_share": "0.2", "schedule": "cosine",
    "weight_decay": "0.1", "betas": "0.8,0.9", "epsilon": "1e-6", "evaluations": "17", "reset_head": "false",
    "weights": "head", "dropout": "0.3", "clip": "0.5", "accumulation": "2", "precision": "bf16",
}  # fmt: skip
EXTERNAL = {"train.external_batch", "train.external_length", "train.head_steps"}
JOINT = {"train.internal_loss", "train.mask_internal"}
INTERNAL = {"train.internal_batch", "train.rho2", *JOINT}
OF_THE_FIRST_KEYS = {  # a setting that came later is in `LATER`, or left out by `for_key` of its section
    "train": "rho1 rho2 steps external_batch internal_batch external_length lr warmup_steps schedule weight_decay "
    "betas mask_share internal_loss mask_internal clip accumulation precision",
    "finetune": "epochs steps batch lr warmup_share schedule weight_decay betas evaluations reset_head dropout clip "
    "accumulation precision",
    "model": "architecture hidden layers heads intermediate max_length token_types dropout",
}
NO_TYPES = {"model.token_types"}  # modernbert, as tiny has it, has none

WITHOUT_EFFECT = [  # task-only?, what holds for both, one value and another
    (True, (), "train.rho1=1", "train.rho1=7"),
    (True, (), "train.external_batch=8", "train.external_batch=4"),
    (True, (), "train.external_length=48", "train.external_length=16"),
    (False, ("train.rho1=0",), "train.external_batch=8", "train.external_batch=4"),
    (False, ("train.rho1=0",), "train.external_length=48", "train.external_length=16"),
    (True, (), "train.head_steps=internal", "train.head_steps=all"),
    (False, ("train.rho1=0",), "train.head_steps=internal", "train.head_steps=all"),
    (False, (), "train.rho1=inf", "train.rho1=12"),  # twelve steps: no internal one either
    (False, ("train.rho1=inf",), "train.rho2=1", "train.rho2=inf"),
    (False, ("train.rho1=inf",), "train.internal_batch=8", "train.internal_batch=4"),
    (False, ("train.rho1=inf",), "train.internal_loss=sum", "train.internal_loss=normalised"),
    (False, ("train.rho1=inf",), "train.mask_internal=true", "train.mask_internal=false"),
    (False, ("train.rho2=inf",), "train.internal_loss=sum", "train.internal_loss=normalised"),
    (False, ("train.rho2=inf",), "train.mask_internal=true", "train.mask_internal=false"),
    (False, (), "model.token_types=1", "model.token_types=2"),
    (False, (), "model.positions=0", "model.positions=48"),
    (False, (), "retrieve.top_k=5", "retrieve.top_k=50"),
]


@pytest.fixture
def stores(tmp_path: Path) -> list[tuple[Path, str]]:
    """Two stores with the same task each, in which nothing is trained yet."""
    roots = [tmp_path / "one", tmp_path / "two"]
    return [(root, task(root)) for root in roots]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store for keys alone, with its task."""
    root = tmp_path_factory.mktemp("keys")
    return root, task(root)


@pytest.mark.parametrize(("alone", "common", "one", "other"), WITHOUT_EFFECT)
def test_what_has_no_effect_on_stage_1_is_not_in_its_key(stores, alone, common, one, other):
    first, second = (
        checkpoint(root, examples, *common, value, alone=alone)
        for (root, examples), value in zip(stores, (one, other), strict=True)
    )
    assert first.content == second.content
    assert first.manifest.key == second.manifest.key


def test_epochs_have_no_effect_where_steps_are_given(stores):
    first, second = (
        model(root, checkpoint(root, examples), examples, "finetune.steps=4", epochs)
        for (root, examples), epochs in zip(stores, ("finetune.epochs=1", "finetune.epochs=2"), strict=True)
    )
    assert first.content == second.content
    assert first.manifest.key == second.manifest.key
    root, examples = stores[0]
    assert model(root, checkpoint(root, examples), examples, "finetune.steps=5").manifest.key != first.manifest.key
    without = {model(root, checkpoint(root, examples), examples, f"finetune.epochs={number}").uri for number in (1, 2)}
    assert len(without) == 2, "they have, where no steps are given"


def _spelled_out(like: str) -> list[str]:
    """The overrides that make any preset what this one is."""
    wanted = presets.resolve(like).model_dump(include=set(SECTIONS))
    return [
        f"{section}.{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for section, values in wanted.items()
        for name, value in values.items()
        if name not in ("warmup_steps", "steps") or section == "finetune"
    ]


def test_the_name_of_a_preset_is_in_no_key_and_in_no_content(stores):
    """Pocket with all of tiny's values is tiny, down to the model's folder."""
    (root, examples), (other, again) = stores
    first = checkpoint(root, examples)
    same = [*_spelled_out("tiny"), *SMALL]
    second = checkpoint(other, again, *same, preset="pocket")
    assert (first.manifest.key, first.content) == (second.manifest.key, second.content)
    steps = "finetune.steps=4"
    ends = [model(root, first, examples, steps), model(other, second, again, *same, steps, preset="pocket")]
    assert (ends[0].manifest.key, ends[0].content) == (ends[1].manifest.key, ends[1].content)
    assert [end.run()["preset"] for end in (first, second, *ends)] == ["tiny", "pocket", "tiny", "pocket"]
    assert "train.lr=0.003" in second.run()["overrides"]


def test_several_tasks_together_have_no_preset_in_their_key_either(tmp_path):
    examples = task(tmp_path)
    words, root = tokenizer(tmp_path, examples), str(tmp_path)
    common = {"tokenizer": words, "compute": Compute("cpu"), "root": root}
    made = train_multitask([examples], preset="tiny", overrides=SMALL, **common)
    same = [*_spelled_out("tiny"), *SMALL]
    assert train_multitask([examples], preset="pocket", overrides=same, **common) == made


def test_a_published_model_is_the_same_by_any_preset(tmp_path):
    examples = task(tmp_path)
    folder = str(checkpoint(tmp_path, examples).path("model"))
    common, short = {"root": str(tmp_path)}, ["model.max_length=48", "train.external_length=48"]
    made = load_model(folder, examples, preset="tiny", **common)
    assert load_model(folder, examples, preset="demo", overrides=short, **common) == made
    assert load_model(folder, examples, preset="tiny", overrides=["model.dropout=0.1"], **common) != made


def test_settings_that_came_later_leave_earlier_keys_as_they_were(stores):
    root, examples = stores[0]
    start = checkpoint(root, examples, "train.embeddings=random")
    end = model(root, start, examples, "finetune.steps=4")
    for made, section in ((start, "train"), (end, "finetune")):
        assert not made.manifest.settings[section].keys() & {"embeddings", "head_steps", "epsilon"}
    other = model(root, start, examples, "finetune.steps=4", "finetune.epsilon=1e-6")
    assert other.manifest.settings["finetune"]["epsilon"] == 1e-6
    assert other.manifest.key != end.manifest.key


def test_a_new_setting_leaves_the_keys_of_finished_work_as_they_were():
    changes = ["train.embeddings=random", "model.architecture=bert", "model.spans_first=false"]
    preset = presets.resolve("tiny", changes)
    found = {"train": train_settings(preset.train, external=True), "finetune": preset.finetune.for_key()}
    found["model"] = preset.model.for_key()
    names = {section: " ".join(values) for section, values in found.items()}
    told = "a new setting changed keys, so finished work is made again: put it in LATER (tlm/settings/sections.py)"
    assert names == OF_THE_FIRST_KEYS, told


@pytest.mark.parametrize(
    ("alone", "common", "without"),
    [
        (False, (), NO_TYPES),
        (True, (), {"train.rho1", *EXTERNAL, *NO_TYPES}),
        (False, ("train.rho1=0",), {*EXTERNAL, *NO_TYPES}),
        (False, ("train.rho1=inf",), {*INTERNAL, *NO_TYPES}),
        (False, ("train.rho2=inf",), {*JOINT, *NO_TYPES}),
        (False, ("model.architecture=bert",), set()),
    ],
)
def test_every_other_setting_of_stage_1_is_in_the_key(store, alone, common, without):
    root, examples = store
    words, subset = tokenizer(root, examples), "" if alone else passages(root, "subset")

    def key(*overrides: str) -> str:
        settings = presets.resolve("tiny", [*SMALL, *common, *overrides])
        return checkpoint_recipe(examples, words, subset, settings, 0, str(root)).key

    changes = {f"train.{name}": value for name, value in TRAIN.items()}
    changes |= {f"model.{name}": value for name, value in MODEL.items()}
    names = {f"{part}.{name}" for part in ("train", "model") for name in SECTIONS[part].model_fields}
    assert changes.keys() == names, "give each new setting another value than its default in TRAIN or MODEL, above"
    if common == ("model.architecture=bert",):
        changes["model.architecture"] = "modernbert"
    unchanged = key()
    assert {name for name, value in changes.items() if key(f"{name}={value}") == unchanged} == without


def test_every_setting_is_read_by_some_code() -> None:
    """One that nothing reads would make the same work anew under another key."""
    code = Path(presets.__file__).parents[1].rglob("*.py")
    nodes = (node for path in code if path.name != "sections.py" for node in ast.walk(ast.parse(path.read_bytes())))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = [f"{part}.{name}" for part, section in SECTIONS.items() for name in section.model_fields]
    idle = [name for name in names if name.partition(".")[2] not in read]
    assert not idle, f"no code in tlm reads these settings; take them out, or give them an effect: {idle}"


def test_every_setting_of_stage_2_is_in_its_key_but_epochs_beside_steps() -> None:
    def key(*overrides: str) -> dict[str, object]:
        return presets.resolve("tiny", overrides).finetune.for_key()

    told = "give each new setting another value than that of tiny in FINETUNE, above"
    assert FINETUNE.keys() == SECTIONS["finetune"].model_fields.keys(), told
    assert [name for name, value in FINETUNE.items() if key(f"finetune.{name}={value}") == key()] == [], told
    assert key("finetune.steps=9", "finetune.epochs=2") == key("finetune.steps=9")


VALUES = st.fixed_dictionaries(
    {
        "train.rho1": st.sampled_from(["0", "1", "2", "inf"]),
        "train.rho2": st.sampled_from(["0", "1", "inf"]),
        "train.external_batch": st.sampled_from(["4", "8"]),
        "train.internal_batch": st.sampled_from(["4", "8"]),
        "train.internal_loss": st.sampled_from(["sum", "normalised"]),
    }
)


def _told_apart(values: dict[str, str]) -> tuple[str | None, ...]:
    """What stage 1 with a subset does with these values, by its definition (docs/method.md)."""
    external, internal = values["train.rho1"] != "0", values["train.rho1"] != "inf"
    joint = internal and values["train.rho2"] != "inf"
    return (
        values["train.rho1"],
        values["train.external_batch"] if external else None,
        values["train.internal_batch"] if internal else None,
        values["train.rho2"] if internal else None,
        values["train.internal_loss"] if joint else None,
    )


@settings(max_examples=60, deadline=None)
@given(one=VALUES, other=VALUES)
def test_keys_are_equal_where_the_work_is(store, one, other):
    root, examples = store
    words, subset = tokenizer(root, examples), passages(root, "subset")
    keys = [
        checkpoint_recipe(examples, words, subset, presets.resolve("tiny", [*SMALL, *own]), 0, str(root)).key
        for own in (map("=".join, values.items()) for values in (one, other))
    ]
    assert (keys[0] == keys[1]) == (_told_apart(one) == _told_apart(other))


def test_the_name_of_an_embedded_index_is_in_no_key(tmp_path):
    corpus, root = passages(tmp_path, "corpus"), str(tmp_path)
    made = build_index(corpus, name="mine", root=root)
    assert build_index(corpus, name="yours", root=root) == build_index(corpus, root=root) == made
    assert build_index(corpus, b=0.5, root=root) != made
    assert "name" not in Artifact.open(made).details
