"""Texts that models predict in a CPU second: PyTorch, ONNX in float32 and int8, and shallow models."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from research.benchmarks.measure import Side, compare, per_cpu_second
from research.benchmarks.passages import queries
from research.benchmarks.row import Result, Row, against, limit, need
from research.benchmarks.training_data import prepare
from tlm.artifacts.artifact import Artifact
from tlm.evaluation.predict.encoder import OnnxClassifier
from tlm.evaluation.predict.predictor import Predictor, open_predictor

TEXTS, ALONE = 400, 100  # predicted together, and one after the other
MOST_BYTES = 1.5e6
TIMES = 3.0


def run(quick: bool) -> list[Result]:
    """The pocket model with fresh weights, which take as long as trained ones; shallow models of the same task."""
    need("onnx", "onnxruntime")
    from tlm.evaluation.score.baseline import baseline, static
    from tlm.serving.convert import EXACT, SMALL, convert
    from tlm.training.device import resolve_device

    resolve_device("cpu")
    material = prepare(quick)
    texts = queries("full", quick, 40 if quick else TEXTS)
    with tempfile.TemporaryDirectory() as name:
        folder, onnx = Path(name, "model"), Path(name, "onnx")
        write_model(material.tokenizer, material.task, folder)
        convert(folder, onnx)
        sides: dict[str, Predictor] = {"torch": open_predictor(folder, "cpu")[0]}
        for label, file in (("ONNX float32", EXACT), ("ONNX int8", SMALL)):
            sides[label] = OnnxClassifier(onnx, file)
        shallow = {"linear": baseline(material.task), "static": static(material.task, subset=material.subset)}
        for label, scored in shallow.items():
            sides[label] = open_predictor(Artifact.open(scored).input("model").path("model"), "cpu")[0]
        size = (onnx / SMALL).stat().st_size
        small = limit("pocket, int8, the model's file", size, "bytes", MOST_BYTES)
        return [*speeds(sides, texts, quick), *waits(sides, texts), small]


def speeds(sides: dict[str, Predictor], texts: list[str], quick: bool) -> list[Result]:
    """Texts a CPU second, together and one by one, beside PyTorch."""
    results = []
    ways: dict[str, Callable[[Predictor], Side]] = {
        "together": lambda model: lambda: together(model, texts),
        "one by one": lambda model: lambda: one_by_one(model, texts[: len(texts) // 4]),
    }
    for way, side in ways.items():
        measured = compare({name: side(model) for name, model in sides.items()}, 1 if quick else 5, 1)
        for name in list(sides)[1:]:
            least = TIMES if name == "ONNX int8" else None
            quantity = per_cpu_second("texts")
            results.append(against(f"{name}, {way}", measured, "torch", quantity, ours=name, at_least=least))
    return results


def waits(sides: dict[str, Predictor], texts: list[str]) -> list[Result]:
    """The time of one text: the median, and the slowest of a hundred in the note."""
    results = []
    for name, model in sides.items():
        found = []
        for text in texts[: max(ALONE, 2)]:
            begun = time.perf_counter()
            model.predict([text])
            found.append(1000 * (time.perf_counter() - begun))
        note = f"99 of 100 within {quantiles(found, n=100)[98]:.1f} ms."
        results.append(limit(f"{name}, one text", median(found), "ms", note=note))
    return results


def together(model: Predictor, texts: list[str]) -> float:
    """Predict all texts in one call; returns how many."""
    model.predict(texts)
    return len(texts)


def one_by_one(model: Predictor, texts: list[str]) -> float:
    """Predict each text in a call of its own; returns how many."""
    for text in texts:
        model.predict([text])
    return len(texts)


def write_model(tokenizer: str, task: str, folder: Path) -> None:
    """Write a pocket model with fresh weights for a task."""
    from tlm.data.tasks.examples import classes_of
    from tlm.settings import presets
    from tlm.training.input.texts import Special
    from tlm.training.model import build

    vocabulary, labelled = Artifact.open(tokenizer, "tokenizer"), Artifact.open(task, "task")
    shape, special = presets.resolve("pocket").model, Special.of(vocabulary)
    size, name = int(vocabulary.details["vocab_size"]), labelled.details["name"]
    config = build.with_task(build.make_config(shape, size, special), classes_of(labelled), name)
    build.save(build.build(config, seed=0), folder, vocabulary.path("tokenizer"))


ROW = Row(
    name="serving",
    stage="prediction",
    against="the same model with PyTorch and transformers",
    target=f"int8: {TIMES:g} times the texts a CPU second, at most {MOST_BYTES / 1e6:g} MB",
    what="SciERC's training sentences, with one thread: in one call (PyTorch pads texts of similar length to a batch; "
    "ONNX computes each alone), and in a call for each. The linear and static models are of the same task.",
    run=run,
    packages=("torch", "transformers", "onnxruntime", "scikit-learn"),
)
