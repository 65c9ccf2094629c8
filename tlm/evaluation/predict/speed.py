"""Speed and size of a model: facts for run.json, because they differ from run to run."""

import time
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Any

import numpy as np

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.spending import JOULES, Spending, peak_memory
from tlm.data.tasks.metrics import Floats, Split, Texts
from tlm.evaluation.predict.encoder import EncoderPredictor, OnnxClassifier
from tlm.evaluation.predict.predictor import Predictor
from tlm.progress import hidden
from tlm.settings.sections import Model

SPEED = "speed"  # key of run.json
MOST_ALONE = 100  # texts that are predicted one at a time
MOST_SECONDS = 5.0  # after which no more of them are
SUMMED = ("seconds", "cpu_seconds", "gpu_seconds", *JOULES, "flops", "bytes")  # over the members of a mixture


class Timed:
    """A model whose predictions are timed.

    Attributes:
        spent: Texts, seconds, and joules as far as the machine tells them, of all calls of `predict`.
        alone: Milliseconds of each text that was predicted alone.
    """

    def __init__(self, predictor: Predictor, device: str) -> None:
        """Time this model, which runs on `device`."""
        self.predictor, self.labels, self.thresholds = predictor, predictor.labels, predictor.thresholds
        # as in training: time of a CPU core, or of the GPU if there is one
        self._worker = "cpu_seconds" if device == "cpu" else "gpu_seconds"
        self.spent: dict[str, Any] = {"texts": 0, "seconds": 0.0, self._worker: 0.0}
        self.alone: list[float] = []

    def one_at_a_time(self, split: Split) -> None:
        """Predict texts of a split one at a time. The first call is not timed, because libraries set up in it."""
        calls = [([text], None if split.pairs is None else [split.pairs[row]]) for row, text in enumerate(split.texts)]
        end = time.perf_counter() + MOST_SECONDS
        with hidden():
            for texts, pairs in [*calls[:1], *calls[:MOST_ALONE]]:
                started = time.perf_counter()
                if started > end:
                    break
                self.predictor.predict(texts, pairs)
                self.alone.append(1000 * (time.perf_counter() - started))
        del self.alone[:1]

    def predict(self, texts: Texts, pairs: Texts | None = None, label: str = "predicting") -> Floats:
        """Probabilities or numbers, as the model gives them."""
        with Spending() as energy:
            started, cpu = time.perf_counter(), time.process_time()
            found = self.predictor.predict(texts, pairs, label)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        work = seconds if self._worker == "gpu_seconds" else cpu
        for name, more in (("texts", len(texts)), ("seconds", seconds), (self._worker, work)):
            self.spent[name] += more
        for name, used in zip(JOULES, (energy.used("cpu"), energy.used("gpu")), strict=True):
            if used is not None:
                self.spent[name] = self.spent.get(name, 0.0) + used
        return found

    def facts(self) -> dict[str, Any]:
        """The measurements, and the peak memory of this process up to now."""
        found: dict[str, Any] = {name: round(value, 6) for name, value in self.spent.items()}
        found["peak_memory"] = peak_memory()
        if self.alone:
            median, slow = (round(float(value), 4) for value in np.percentile(self.alone, [50, 99]))
            found["alone"] = {"texts": len(self.alone), "median_ms": median, "p99_ms": slow}
        return found


def flops_of(predictor: Predictor, model: Artifact, splits: Iterable[Split]) -> int | None:
    """The operations of predicting these texts without padding, as training counts them; None for what it does not.

    Args:
        predictor: The model; only an encoder that PyTorch computes is counted.
        model: Its artifact, which has the shape of the encoder, or else its checkpoint has.
        splits: The texts.
    """
    from tlm.training.input.batches import BACKWARD, Batch, FlopCount  # with pyarrow, which the serve image lacks

    made = [model, *([model.input("checkpoint")] if "checkpoint" in model.manifest.inputs else [])]
    shape = next((one.manifest.settings["model"] for one in made if "model" in one.manifest.settings), None)
    if shape is None or not isinstance(predictor, EncoderPredictor) or isinstance(predictor, OnnxClassifier):
        return None
    cost, counted = FlopCount(Model.model_validate(shape), vocab_size=0, labels=len(predictor.labels or [""])), 0
    for split in (split for split in splits if split.texts):
        lengths = np.array([len(ids) for ids in predictor.read(split.texts, split.pairs)["input_ids"]])
        batch = Batch(np.zeros((len(lengths), 1), np.int64), lengths)
        counted += cost.of(batch, tokens=False, classes=True) // BACKWARD
    return counted


def rate(speed: Mapping[str, Any], worker: str = "cpu_seconds", other: str = "gpu_seconds") -> float | None:
    """Texts a second of one kind of processor; None if it was not measured, or if models need both kinds."""
    return speed["texts"] / speed[worker] if speed.get(worker) and other not in speed else None


def together(speeds: Sequence[Mapping[str, Any]], shares: Sequence[float] = ()) -> dict[str, Any]:
    """Add up what these models take for the same texts, which is what a mixture of them takes.

    Nothing else can be added up: not the times of single texts, nor memory. {} if a model was not measured. `shares`
    are those of the texts that each model of a cascade is asked about.
    """
    if not all(speeds) or len({speed["texts"] for speed in speeds}) != 1:
        return {}
    workers = ("cpu_seconds", "gpu_seconds")  # each model has one of the two
    names = [name for name in SUMMED if all(name in speed for speed in speeds) or name in workers]
    asked = dict.fromkeys(names, shares or [1] * len(speeds)) | {"bytes": [1] * len(speeds)}
    sums = {name: sum(map(mul, asked[name], (speed.get(name, 0) for speed in speeds))) for name in names}
    return {"texts": speeds[0]["texts"]} | {name: value for name, value in sums.items() if value or name not in workers}
