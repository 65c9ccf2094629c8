"""Predict with an encoder: batches of texts of similar length, computed by torch elsewhere or by onnxruntime here."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from tlm.data.marks import marks_in, with_spans_first
from tlm.data.ranges import BATCH_TOKENS, CUT, HEAD, Ints, by_length, longest_first, skipped
from tlm.data.tasks.metrics import MULTI_LABEL, THRESHOLDS, UNFITTED, Floats, Texts
from tlm.errors import InputError, reason
from tlm.progress import Meter
from tlm.settings.options import cores, given_threads
from tlm.shallow.folder import config_of

Tokens = dict[str, list[list[int]]]  # what a model takes of each text, by the name of the input
CHARACTERS = 8  # of a text for each token, below which it is tokenized as a whole; English has four to five


class EncoderPredictor(ABC):
    """Logits and probabilities of texts or pairs.

    Attributes:
        labels: The classes in the order of the logits; None for regression.
        thresholds: Of each label's probability, where a text may have several; else None.
        max_length: Longest input in tokens, special tokens included; the rest of a text (or pair) is cut.
        cut: What remains of a long text: `HEAD` or `HEAD_TAIL`.
        marks: The marks around the spans that are put first in each text, where the model was trained so.
        names: The inputs of the model.
        uncut: A ``tokenizers.Tokenizer`` that neither pads nor truncates: for a pair, the library would build every
            combination of what it cuts off both texts. None if the model has another kind.
        batch_tokens: Most padded tokens in a batch of several texts.
        shortens: Whether no more than the beginning of a long text need be tokenized (`splits_at_spaces`).
    """

    batch_tokens = BATCH_TOKENS

    def __init__(self, config: dict[str, Any], max_length: int, names: Sequence[str], tokenizer: Any) -> None:
        """Take the classes and marks from the model's config.json; `tokenizer` becomes `uncut`."""
        self.labels, self.marks, self.max_length = model_labels(config), marks_in(config), max_length
        self.cut: str = config.get(CUT, HEAD)
        self.thresholds = model_thresholds(config)
        self.names, self.uncut = names, tokenizer
        self.shortens = tokenizer is not None and splits_at_spaces(tokenizer) and self.cut == HEAD
        if tokenizer is not None:
            tokenizer.no_padding()
            tokenizer.no_truncation()

    def tokenize(self, texts: list[str], pairs: list[str] | None) -> Tokens:
        """Tokenize texts or pairs, cut to `max_length`, for each input of the model."""
        given = texts if pairs is None else zip(texts, pairs, strict=True)
        return tokenized(self.uncut, given, self.names, self.max_length, self.cut)

    @abstractmethod
    def compute(self, inputs: Tokens) -> NDArray[np.float32]:
        """Logits of a batch, which is to be padded, shape [n, classes] (or [n, 1])."""

    def read(self, texts: Texts, pairs: Texts | None = None) -> Tokens:
        """Tokenize texts, each with its spans first if the model was trained so."""
        first = [with_spans_first(text, self.marks) for text in texts]
        if pairs is not None:
            return self.tokenize(first, list(pairs))
        return self.tokenize([self._beginning(text) for text in first] if self.shortens else first, None)

    def _beginning(self, text: str) -> str:
        """A text up to a space behind all that the model reads of it, which is quicker to tokenize.

        No token depends on words behind the next. So where a beginning fills the model and a longer one reads the
        same, the whole text reads the same, too. Words may be of any length, or give no token.
        """
        size, before = CHARACTERS * self.max_length, None
        while size < len(text):
            start = text[:size].rpartition(" ")[0]
            (ids,) = self.tokenize([start], None)["input_ids"]
            if len(ids) == self.max_length and ids == before:
                return start
            size, before = 2 * size, ids
        return text

    def batches(self, texts: Texts, pairs: Texts | None, label: str) -> Iterator[tuple[Ints, Tokens]]:
        """The tokenized texts in batches of similar length: which texts, and each input of the model."""
        if not texts:
            return
        tokens = self.read(texts, pairs)
        with closing(Meter(label, len(texts), "texts")) as meter:
            for rows in by_length(np.array([len(ids) for ids in tokens["input_ids"]]), self.batch_tokens):
                yield rows, {name: [values[row] for row in rows] for name, values in tokens.items()}
                meter.advance(len(rows))

    def predict(self, texts: Texts, pairs: Texts | None = None, label: str = "predicting") -> Floats:
        """Probabilities, shape [n, classes], or numbers, shape [n, 1], in the order of the texts."""
        logits = self.logits(texts, pairs, label).astype(np.float64)
        if self.labels is None:
            return logits
        return softmax(logits, axis=1) if self.thresholds is None else expit(logits)  # type: ignore[no-any-return]

    def logits(self, texts: Texts, pairs: Texts | None = None, label: str = "predicting") -> NDArray[np.float32]:
        """Logits, shape [n, classes] (or [n, 1]), in the order of the texts. Texts of similar length share a batch.

        Raises:
            InputError: a logit is not finite (a training that diverged).
        """
        result = np.zeros((len(texts), len(self.labels or [""])), dtype=np.float32)
        for rows, inputs in self.batches(texts, pairs, label):
            result[rows] = self.compute(inputs)
        if not np.isfinite(result).all():
            raise InputError("the model's values are not finite: its training diverged; lower the learning rate")
        return result


def tokenized(
    tokenizer: Any, given: Iterable[str | tuple[str, str]], names: Sequence[str], max_length: int, cut: str = HEAD
) -> Tokens:
    """Tokenize texts or pairs for each input of a model.

    One at a time, because the tokenizer takes much more memory for a long text than the text itself; and as a batch,
    because other threads go on only then.

    Args:
        tokenizer: A ``tokenizers.Tokenizer`` that neither pads nor truncates.
        given: The texts or pairs.
        names: The inputs of the model.
        max_length: Tokens to keep at most, special tokens included.
        cut: Which tokens of a text to keep.
    """
    inputs: Tokens = {name: [] for name in names}
    for text in given:
        (tokens,) = tokenizer.encode_batch_fast([text])
        places = _kept(tokens.sequence_ids, max_length, cut)
        values = {"input_ids": tokens.ids, "attention_mask": tokens.attention_mask, "token_type_ids": tokens.type_ids}
        for name, rows in inputs.items():
            rows.append([values[name][place] for place in places])
    return inputs


def _kept(texts: list[int | None], max_length: int, cut: str) -> list[int]:
    """The places of the tokens that remain: of each text as many as the library's `longest_first` keeps.

    `texts` says which text each token is of: 0 or 1; None for special tokens.
    """
    text_of = np.array([-1 if text is None else text for text in texts])
    keep = text_of < 0
    both = [np.flatnonzero(text_of == text) for text in (0, 1)]
    lengths = np.array([[len(places)] for places in both])
    counts = longest_first(lengths[0], lengths[1], max_length - int(keep.sum()))
    for places, length, count in zip(both, lengths, counts, strict=True):
        keep[places[np.arange(count[0]) + skipped(count, length, cut)]] = True
    return np.flatnonzero(keep).tolist()  # type: ignore[no-any-return]


def splits_at_spaces(tokenizer: Any) -> bool:
    """Whether a ``tokenizers.Tokenizer`` looks for tokens in each word alone."""
    words = tokenizer.pre_tokenizer
    return words is not None and len(words.pre_tokenize_str("a a")) > 1


BINARY = {"0": "LABEL_0", "1": "LABEL_1"}  # the names that `transformers` leaves out of config.json


def model_labels(config: dict[str, Any]) -> list[str] | None:
    """The classes of a config.json in the order of its logits; None for regression."""
    names = config.get("id2label") or BINARY
    if config.get("problem_type") == "regression" or len(names) == 1:
        return None
    return [names[index] for index in sorted(names, key=int)]


def model_thresholds(config: dict[str, Any]) -> list[float] | None:
    """The thresholds of a config.json, where a text may have several labels; else None."""
    if config.get("problem_type") != MULTI_LABEL:
        return None
    return config.get(THRESHOLDS) or [UNFITTED] * len(config.get("id2label") or BINARY)


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
            advice = "`make install` has what it needs, or in a checkout `pip install '.[onnx]'`"
            raise InputError(f"{folder} is an ONNX model; {advice}") from None
        from tokenizers import Tokenizer

        config = config_of(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = given_threads() or cores()
        options.inter_op_num_threads = 1
        # Threads without work sleep instead of taking the CPU from the others.
        for threads in ("intra", "inter"):
            options.add_session_config_entry(f"session.{threads}_op.allow_spinning", "0")
        try:
            tokenizer = Tokenizer.from_file(f"{folder / TOKENIZER}")
            self.session = onnxruntime.InferenceSession(
                f"{folder / (file or config[ONNX]['file'])}", options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both libraries raise what they like
            raise InputError(f"{folder} does not load as an ONNX model: {reason(error)}; export it again") from None
        names = [given.name for given in self.session.get_inputs()]
        super().__init__(config, int(config[ONNX]["max_length"]), names, tokenizer)

    def compute(self, inputs: Tokens) -> NDArray[np.float32]:
        """Logits of a batch."""
        batch = {name: np.array(rows, np.int64) for name, rows in inputs.items()}  # of one text, so nothing is padded
        logits: NDArray[np.float32] = self.session.run(None, batch)[0]
        return logits
