"""Predict with an ONNX folder, as `tlm export-onnx` writes it: with onnxruntime and tokenizers, without torch."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tlm.errors import InputError, reason
from tlm.evaluation.predict.encoder import EncoderPredictor, splits_at_spaces, tokenized
from tlm.shallow.folder import config_of
from tlm.threads import cores, given_threads

ONNX = "tlm_onnx"  # key of config.json: the model's file, and the longest input
TOKENIZER = "tokenizer.json"

# From version 1.29 on, onnxruntime reports to its makers what it computes, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


class OnnxClassifier(EncoderPredictor):
    """A classifier that onnxruntime computes, on CPU cores.

    Each text is computed alone: int8 chooses its scales by the values of a whole batch, so that an answer would depend
    on the other texts; and on CPUs that is no slower.

    Attributes:
        session: What computes.
    """

    batch_tokens = 1

    def __init__(self, folder: Path, file: str = "") -> None:
        """Load the model.

        Args:
            folder: The model folder.
            file: The model's file in it; by default the one that config.json names.

        Raises:
            InputError: a package is not installed, or the folder does not hold a whole model.
        """
        try:
            import onnxruntime  # type: ignore[import-untyped]
        except ImportError:
            raise InputError(
                f"{folder} is an ONNX model; pip install tlm-kubeflow[onnx] installs what it needs"
            ) from None
        from tokenizers import Tokenizer

        config = config_of(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = given_threads() or cores()
        options.inter_op_num_threads = 1
        # Threads without work sleep instead of taking the CPU from those that have some.
        for threads in ("intra", "inter"):
            options.add_session_config_entry(f"session.{threads}_op.allow_spinning", "0")
        try:
            self._tokenizer = Tokenizer.from_file(f"{folder / TOKENIZER}")
            self.session = onnxruntime.InferenceSession(
                f"{folder / (file or config[ONNX]['file'])}", options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both libraries raise what they like
            raise InputError(f"{folder} does not load as an ONNX model: {reason(error)}; export it again") from None
        super().__init__(config, int(config[ONNX]["max_length"]), splits_at_spaces(self._tokenizer))
        self._padding = int(config.get("pad_token_id") or 0)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._inputs = [given.name for given in self.session.get_inputs()]

    def tokenize(self, texts: list[str], pairs: list[str] | None) -> Mapping[str, list[list[int]]]:
        """What the model reads of each text."""
        given = texts if pairs is None else zip(texts, pairs, strict=True)
        return tokenized(self._tokenizer, given, self._inputs, self.max_length)

    def compute(self, inputs: dict[str, list[list[int]]]) -> NDArray[np.float32]:
        """Logits of a batch."""
        width = max(map(len, inputs["input_ids"]))
        batch = {}
        for name, rows in inputs.items():
            batch[name] = np.full((len(rows), width), self._padding if name == "input_ids" else 0, np.int64)
            for row, values in zip(batch[name], rows, strict=True):
                row[: len(values)] = values
        logits: NDArray[np.float32] = self.session.run(None, batch)[0]
        return logits
