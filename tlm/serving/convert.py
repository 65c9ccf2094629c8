"""Convert an encoder's folder to ONNX: by torch's own exporter, and with matrices of 8-bit integers by onnxruntime."""

import json
import logging
import shutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]
from torch import Tensor, nn

from tlm.evaluation.predict.classifier import Classifier
from tlm.evaluation.predict.encoder import ONNX, TOKENIZER
from tlm.shallow.folder import CONFIG, config_of

EXACT, SMALL = "model.onnx", "model_quantized.onnx"  # float32 and int8, named as Hugging Face's Optimum does
COPIED = ("README.md", "tokenizer_config.json")


class Logits(nn.Module):
    """A model of `transformers` as a function of tensors in a given order."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits of a batch, shape [n, classes]."""
        logits: Tensor = self.model(**dict(zip(self.names, inputs, strict=True))).logits
        return logits


def convert(folder: Path, to: Path) -> None:
    """Write `EXACT` and `SMALL`, the tokenizer and config.json, which names `EXACT`, to a new folder.

    Raises:
        InputError: `folder` does not hold a whole encoder.
    """
    classifier = Classifier(folder, "cpu")
    to.mkdir(parents=True)
    names, inputs = _example(classifier)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=classifier.max_length)
    shapes = {"inputs": tuple({0: batch, 1: length} for _ in names)}
    module = Logits(classifier.model, names).eval()
    options: dict[str, Any] = {"input_names": names, "output_names": ["logits"], "dynamic_shapes": shapes}
    program = _quietly(lambda: torch.onnx.export(module, inputs, dynamo=True, verbose=False, **options))
    model = _without_notes(program.model_proto)
    onnx.save(model, to / EXACT)
    _quietly(lambda: quantize_dynamic(model, to / SMALL, weight_type=QuantType.QInt8, per_channel=True))
    (to / TOKENIZER).write_text(classifier.tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    for name in COPIED:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, to / name)
    _write_config(to, config_of(folder) | {ONNX: {"file": EXACT, "max_length": classifier.max_length}})


def use(folder: Path, file: str) -> None:
    """Name another model file in config.json."""
    config = config_of(folder)
    config[ONNX]["file"] = file
    _write_config(folder, config)


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / CONFIG).write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _example(classifier: Classifier) -> tuple[list[str], tuple[Tensor, ...]]:
    """The names of a model's inputs, and a batch of two texts."""
    tokens = classifier.tokenize(["a text to trace the model with", "another"], None)
    batch = classifier.tokenizer.pad(dict(tokens), return_tensors="pt")
    return list(batch), tuple(batch.values())


def _quietly(work: Callable[[], Any]) -> Any:
    """Run libraries without their progress, and without warnings that do not concern these models."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            return work()
    finally:
        logging.disable(logging.NOTSET)


def _without_notes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove stack traces, which name folders of this machine, so that the same model gives the same bytes."""
    graph, graphs = model.graph, [model.graph, *model.functions]
    values = [*graph.value_info, *graph.input, *graph.output, *graph.initializer]
    for part in (model, *graphs, *(node for one in graphs for node in one.node), *values):
        part.doc_string = ""
        del part.metadata_props[:]
    return model
