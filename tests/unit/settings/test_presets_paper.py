"""The paper's presets: Table B.1, and what follows from it, as the paper prints them."""

import tomllib
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from research.paper.tables import our_name
from tests.toys import ragged
from tlm.runs.advise import FEW, GRID, MANY, advise, paper_top_k
from tlm.settings import presets
from tlm.settings.presets import paper_flops, paper_presets, published, stage1_cost, table_b1
from tlm.training.device import to_device
from tlm.training.input.batches import MASK, Masking, collate, generator
from tlm.training.input.texts import Special, Texts
from tlm.training.model import build
from tlm.training.model.encoder import GPU, OF_KIND, Tuning
from tlm.training.model.losses import internal_loss

TASKS = ("agnews", "hyperpartisan", "helpfulness", "imdb", "acl-arc", "scierc", "chemprot", "rct-20k")
SCALES = ("small", "medium", "large")

# Typed from the paper's Table B.1 a second time, row by row, for each task: K, rho1, rho2, steps in 1e5, batch, length.
TABLE = {
    "small": """
        50 1 100 1 256 128 | 5000 99 20 .5 256 128 | 50 1 100 1.5 256 128 | 500 19 100 1.5 256 512 |
        5000 999 100 1.5 256 128 | 5000 999 20 1.5 256 128 | 5000 999 20 1.5 256 128 | 50 3 20 1 256 128""",
    "medium": """
        50 3 100 3 256 128 | 5000 99 100 1 256 128 | 50 1 1000 3 256 128 | 500 99 100 3 256 512 |
        5000 999 20 3 256 128 | 5000 999 20 3 256 128 | 5000 999 100 3 256 128 | 50 3 100 3 256 128""",
    "large": """
        100 3 100 5 256 128 | 10000 499 20 3 512 128 | 100 7 100 5 512 128 | 1000 99 1000 5 512 512 |
        10000 1999 20 5 512 128 | 10000 1999 20 3 512 128 | 10000 1999 20 5 256 128 | 100 7 100 5 256 128""",
}


@pytest.mark.parametrize("scale", SCALES)
def test_table_b1(scale):
    assert tuple(table_b1()["tasks"]) == TASKS
    for task, text in zip(TASKS, TABLE[scale].split("|"), strict=True):
        preset = presets.resolve(f"{scale}-{task}")
        train = preset.train
        assert train.internal_batch == train.external_batch
        found = (preset.retrieve.top_k, train.rho1, train.rho2, train.steps / 1e5, train.internal_batch)
        assert (*found, preset.model.max_length) == tuple(map(float, text.split())), task
        short = scale == "small" or task != "imdb"
        assert train.external_length == (128 if short else 512)


@pytest.mark.parametrize(("scale", "flops"), [("small", 2.74e18), ("medium", 8.30e18), ("large", 7.59e19)])
def test_the_flops_of_table_2_follow(scale, flops):
    told = []
    for task in TASKS:
        facts = published(f"{scale}-{task}")
        tokens = stage1_cost(presets.resolve(f"{scale}-{task}")).padded_tokens
        told.append(paper_flops(round(facts.printed_parameters), tokens))
    mean = sum(told) / len(told)
    assert float(f"{mean:.2e}") == flops
    without_long_texts = sum(told) - told[3] + told[2]  # IMDB as Helpfulness, which has as many steps of 128 tokens
    if scale == "small":
        assert float(f"{without_long_texts / 8:.2e}") != flops


@pytest.mark.parametrize(("scale", "mean"), [("small", 0.9125), ("medium", 1.2125), ("large", 3.6375)])
def test_the_data_sizes_of_table_2_follow(scale, mean):
    assert sum(published(f"{scale}-{task}").subset_gb for task in TASKS) / 8 == pytest.approx(mean, abs=1e-9)


def test_batches_are_counted_as_training_draws_them():
    from tlm.training.input.batches import Interleaving

    for rho1 in (0, 1, 3, 7, "inf"):
        preset = presets.resolve("tiny", [f"train.rho1={rho1}", "train.steps=23"])
        mixture = Interleaving(preset.train.rho1)
        cost, internal = stage1_cost(preset), sum(mixture.is_internal(step) for step in range(23))
        assert (cost.external_batches, cost.internal_batches) == (23 - internal, internal), rho1


@pytest.mark.parametrize(("shape", "millions"), [("bert-base", 109.5), ("bert-large", 335.1), ("roberta-large", 355.4)])
def test_sizes_are_the_published_ones(shape, millions):
    """Counted on what is really built, and on what `transformers` makes of its own configuration."""
    import transformers

    facts = table_b1()["shapes"][shape]
    values = {**presets.resolve("small").model.model_dump(), **facts["model"]}
    model = type(presets.resolve("small").model).model_validate(values)
    config = build.with_task(
        build.make_config(model, facts["tokenizer"]["vocab_size"], Special(0, 1, 2, 3, 4)), ["a", "b"], "toy"
    )
    sizes = {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
    }
    theirs = {
        "bert-base": transformers.BertConfig(),
        "bert-large": transformers.BertConfig(**sizes),
        "roberta-large": transformers.RobertaConfig(
            vocab_size=50_265, max_position_embeddings=514, type_vocab_size=1, **sizes
        ),
    }[shape]
    with torch.device("meta"):
        body = build.build(config, 0).body
        reference = transformers.AutoModel.from_config(theirs)
    ours = sum(each.numel() for name, each in body.named_parameters() if not name.startswith("classifier."))
    assert ours == facts["parameters"] == sum(each.numel() for each in reference.parameters())
    assert round(ours / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("scale", "shape"), [("small", "bert-base"), ("medium", "bert-base"), ("large", "roberta-large")]
)
def test_each_scale_has_its_shape(scale, shape):
    facts = table_b1()["shapes"][shape]
    for task in TASKS:
        preset = presets.resolve(f"{scale}-{task}")
        assert preset.model.model_dump().items() >= facts["model"].items()
        assert preset.tokenizer.model_dump().items() >= facts["tokenizer"].items()
        assert published(preset.name).parameters == facts["parameters"]


def test_the_optimizer_is_the_authors_one_in_the_paper_s_presets_alone():
    """Their AdamW is transformers' (epsilon 1e-6), and it steps the head on external batches, too."""
    for name in presets.names():
        preset = presets.resolve(name)
        found = (preset.train.head_steps, preset.train.epsilon, preset.finetune.epsilon)
        assert found == (("all", 1e-6, 1e-6) if name in paper_presets() else ("internal", 1e-8, 1e-8)), name


def kept_for_backward(name: str, layers: int, rows: int, length: int) -> int:
    """Bytes that a GPU's forward pass of the joint loss keeps for the backward pass, without weights and dropout."""
    settings = presets.resolve(name, [f"model.layers={layers}", "model.dropout=0"])
    special, vocabulary = Special(0, 1, 2, 3, 4), settings.tokenizer.vocab_size
    model = build.build(build.with_task(build.make_config(settings.model, vocabulary, special), ["a", "b"], "toy"), 0)
    words = np.random.default_rng(0).integers(5, vocabulary, (rows, length)).tolist()
    texts = Texts(ragged(words), None, length, special)
    plain = collate(texts, np.arange(rows), np.zeros(rows, dtype=np.int64))
    batch = Masking(0.15, vocabulary, special)(plain, generator(0, MASK, 0))
    weights, kept = {one.untyped_storage().data_ptr() for one in model.parameters()}, {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in weights:
            kept[memory.data_ptr()] = memory  # held, so that no other tensor gets this place
        return tensor

    with (
        patch.dict(OF_KIND, cpu=Tuning(half_attention=GPU.half_attention)),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16),
    ):
        internal_loss(model, to_device(batch, torch.device("cpu")), 20.0, True, True)
    return sum(memory.nbytes() for memory in kept.values())


@pytest.mark.parametrize("scale", ["small", "large"])
def test_a_step_of_the_paper_s_presets_fits_on_one_gpu_of_80_gb(scale):
    """What it keeps may take 35 GB: masks of dropout, gradients, the optimizer and what is between need the rest."""
    (one, more), (two, most) = (
        [kept_for_backward(scale, layers, rows, 128) / 128 for rows in (2, 10)] for layers in (1, 2)
    )
    layer = ((most - two) - (more - one)) / 8  # bytes for each token
    rest = (more - one) / 8 - layer
    for name in paper_presets():
        if name.startswith(scale) or (scale == "small" and name.startswith("medium")):
            settings = presets.resolve(name)
            train = settings.train
            external = train.external_batch * train.external_length
            tokens = max(external, train.internal_batch * settings.model.max_length) / train.accumulation
            assert tokens * (rest + settings.model.layers * layer) < 35e9, name


def test_a_scale_without_a_task_is_scierc_s_column():
    for scale in SCALES:
        plain, named = presets.resolve(scale), presets.resolve(f"{scale}-scierc")
        assert plain.model_dump(exclude={"name"}) == named.model_dump(exclude={"name"})
        assert published(scale) == published(f"{scale}-scierc")


def test_every_value_of_the_paper_s_presets_has_a_source():
    for name in paper_presets():
        preset = presets.resolve(name)
        told = {preset.source.get(setting, "") for setting in ("train.rho1", "train.rho2", "train.steps")}
        assert len(told) == 1
        assert "Table B.1" in told.pop() or name == "small-glue"
    assert "our choice" in presets.resolve("small-glue").source["train.rho1"]


def test_the_tasks_are_called_as_the_loaders_call_them():
    path = Path(presets.__file__).parents[1] / "data" / "tasks.toml"
    loaders = tomllib.loads(path.read_text(encoding="utf-8"))["paper"]
    assert set(loaders) == set(TASKS)
    for task, facts in table_b1()["tasks"].items():
        assert loaders[task]["sizes"]["train"] == facts["train"]


def test_names_in_use_elsewhere_are_understood():
    assert {our_name(name) for name in ("sciie", "citation_intent", "hyp", "ag", "amazon", "rct")} == {
        "scierc", "acl-arc", "hyperpartisan", "agnews", "helpfulness", "rct-20k",
    }  # fmt: skip


# ---- advice


def test_the_rule_for_k_gives_table_b1():
    for task, facts in table_b1()["tasks"].items():
        assert paper_top_k(facts["train"]) == presets.resolve(f"small-{task}").retrieve.top_k
        assert paper_top_k(facts["train"], large=True) == presets.resolve(f"large-{task}").retrieve.top_k


@pytest.mark.parametrize(
    ("examples", "top_k"), [(1, 5000), (4999, 5000), (5000, 500), (100_000, 500), (100_001, 50), (10**7, 50)]
)
def test_the_bounds_of_the_rule_for_k(examples, top_k):
    assert (FEW, MANY) == (5000, 100_000)
    assert paper_top_k(examples) == top_k
    assert paper_top_k(examples, large=True) == 2 * top_k


@pytest.mark.parametrize(
    ("name", "examples", "passages", "top_k"),
    [
        ("pocket", 3_219, 319_877, 50),  # SciERC as it was run (research/RESULTS.md): half as many hits as passages
        ("pocket", 3_219, 3_219 * 50, 50),
        ("pocket", 3_219, 3_219 * 50 - 1, 49),
        ("pocket", 3_219, 2_000, 1),
        ("small", 3_219, 25_000_000, 5_000),
        ("small", 3_219, 319_877, 99),
        ("small", 200_000, 1_000_000, 5),
    ],
)
def test_a_small_corpus_takes_a_lower_k_and_says_why(name, examples, passages, top_k):
    preset = presets.resolve(name)
    plain, told = advise(examples, 30, preset), advise(examples, 30, preset, passages)
    assert f"retrieve.top_k={top_k}" in told.overrides
    lowered = told.overrides != plain.overrides
    assert told.overrides[1:] == plain.overrides[1:]
    assert lowered == (told.reasons != plain.reasons)
    if lowered:
        assert f"the corpus has {passages:,} passages" in told.reasons[0]
        assert f"K={top_k}" in told.reasons[0]


def test_advice_for_the_paper_s_tasks_is_table_b1_where_it_says_so():
    fits = 0
    for task, facts in table_b1()["tasks"].items():
        own = presets.resolve(f"small-{task}")
        advised = presets.resolve("small", advise(facts["train"], 30, presets.resolve("small")).overrides)
        assert advised.retrieve.top_k == own.retrieve.top_k
        fits += advised.train.rho1 == own.train.rho1
    assert fits == 6  # as the reason says


def test_advice_at_a_small_scale_can_be_run_and_keeps_the_order():
    for name in ("pocket", "mini"):
        preset = presets.resolve(name)
        few, some, many = (presets.resolve(name, advise(n, 30, preset).overrides) for n in (3_000, 20_000, 200_000))
        assert few.retrieve.top_k > some.retrieve.top_k > many.retrieve.top_k >= 1
        assert few.train.rho1 >= some.train.rho1 >= many.train.rho1 >= 1
        assert {few.train.rho1, some.train.rho1, many.train.rho1} <= set(GRID)
        assert few.train.rho2 == preset.train.rho2


def test_long_texts_are_searched_by_keywords_and_the_cut_is_told():
    short, long = (advise(20_000, words, presets.resolve("small")) for words in (100, 101))
    assert "retrieve.query=full" in short.overrides
    assert "retrieve.query=rake" in long.overrides
    assert "model.max_length=128" in long.reasons[-1]
    assert "model.cut=head+tail" in long.reasons[-1]
    assert "model.max_length=128" in short.reasons[-1]  # 132 tokens
    assert len(advise(20_000, 96, presets.resolve("small")).reasons) == 5  # 127 tokens: nothing is cut
