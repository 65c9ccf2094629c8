"""Our step without one of its levers does more, and learns the same."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from research.benchmarks import without
from research.benchmarks.training_cpu import EXTERNAL, INTERNAL, Bench
from research.benchmarks.training_data import Material
from tests import toys_training
from tlm.settings import presets
from tlm.training.device import to_device

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Material]:
    folder = tmp_path_factory.mktemp("levers")
    root = folder / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLM_BENCHMARK_ROOT", str(folder))
        task = toys_training.task(root)
        yield Material(task, toys_training.tokenizer(root, task), toys_training.passages(root, "subset"), "toys")


@pytest.fixture(params=[EXTERNAL, INTERNAL])
def bench(material: Material, request: pytest.FixtureRequest) -> Bench:
    return Bench(material, presets.resolve("tiny", ["train.rho1=1"]), request.param)


@pytest.fixture
def works(bench: Bench) -> tuple[Any, Any]:
    """Two works that are the same."""
    return bench.work(), bench.work()


def losses(work: Any, batch: Any) -> float:
    return float(work.losses(0, to_device(batch, CPU)).total.detach())


@pytest.mark.parametrize("change", [without.full_length, without.whole_last_layer])
def test_the_loss_stays(works, change):
    plain, changed = works
    change(changed)
    ours, other = plain.batch(0), changed.batch(0)
    assert other.tokens == ours.tokens
    assert losses(changed, other) == pytest.approx(losses(plain, ours), rel=1e-5)


def test_texts_are_padded_to_what_the_model_takes(works):
    plain, changed = works
    without.full_length(changed)
    ours, other = plain.batch(0), changed.batch(0)
    texts = plain.examples.texts if plain.mixture.is_internal(0) else plain.external.sources[0].texts
    assert ours.ids.shape[1] < other.ids.shape[1] == texts.max_length
    assert other.corrupted.ravel()[other.positions].tolist() == ours.corrupted.ravel()[ours.positions].tolist()


def test_every_token_is_predicted(works):
    plain, changed = works
    without.every_logit(changed)
    inputs = to_device(changed.batch(0), CPU)
    logits, _ = changed.encoder(inputs, inputs.corrupted, tokens=True, classes=False)
    assert len(logits) == plain.batch(0).ids.size


def test_batches_of_any_lengths_have_each_text_once(works):
    plain, changed = works
    without.unsorted(changed)

    def stream_of(work: Any) -> Any:
        return work.stream if work.mixture.is_internal(0) else work.external.sources[0]

    texts = stream_of(plain).texts
    rows, lengths = [], []
    for work in works:
        stream = stream_of(work)
        batches = [stream.rows_of(place) for place in range(stream.per_epoch)]
        rows.append(np.sort(np.concatenate(batches)))
        lengths.append(sum(int(texts.lengths[batch].max()) * len(batch) for batch in batches))
    assert rows[0].tolist() == rows[1].tolist() == list(range(len(rows[0])))
    assert lengths[1] > lengths[0]


def test_what_others_compute_costs_more_by_padding_and_logits(bench):
    """At least the share of padding; at most what it would be if all the cost lay in the logits, of 15 % or so."""
    texts = bench.passages if bench.kind == EXTERNAL else bench.examples.texts
    rows = range(len(texts)) if bench.kind == EXTERNAL else bench.examples.rows("train")
    padding = texts.max_length / texts.lengths[list(rows)].mean()
    assert padding < bench.times_the_operations() < padding / 0.1


def test_what_is_timed_is_the_products_own_loop(bench):
    cost = bench.ours(2)()
    tokens = [bench.work().batch(step).tokens for step in range(2)]
    assert cost.work == sum(tokens)
