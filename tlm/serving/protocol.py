"""Requests and answers of the Open Inference Protocol (V2) and of KServe's V1 protocol, as plain JSON values."""

from collections.abc import Callable
from dataclasses import dataclass
from reprlib import repr  # short, whatever was sent
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tlm.data.tasks.metrics import above
from tlm.errors import InputError, is_utf8, with_article
from tlm.evaluation.predict.predict import chosen
from tlm.evaluation.predict.predictor import Predictor
from tlm.evaluation.predict.rows import checked
from tlm.settings.options import POSITIVE, Options

PAIR = "text_pair"  # the tensor or field of second texts


@dataclass(frozen=True)
class Limits(Options):
    """What a server takes at most.

    Attributes:
        max_bytes: Largest body of a request, in bytes; a larger one is answered with 413.
        max_texts: Most texts in a request; more are answered with 400.
        max_waiting: Most texts that may wait; more are answered with 503.
        max_waiting_bytes: Most bytes of requests received or waiting; more are answered with 503.
    """

    max_bytes: Annotated[int, POSITIVE] = 1 << 20
    max_texts: Annotated[int, POSITIVE] = 1024
    max_waiting: Annotated[int, POSITIVE] = 4096
    max_waiting_bytes: Annotated[int, POSITIVE] = 64 << 20


class Served(NamedTuple):
    """A model and how it is served.

    Attributes:
        predictor: The model.
        name: Its name in paths.
        version: Its version in answers.
        at_least: The probability below which an answer is unsure; 0: answers do not say whether they are.
        limits: What the server takes at most.
        pair: Whether the model learned from pairs of texts; None if nobody knows.
    """

    predictor: Predictor
    name: str
    version: str
    at_least: float = 0.0
    limits: Limits = Limits()
    pair: bool | None = None


class Asked(NamedTuple):
    """The texts of a request.

    Attributes:
        texts: The texts.
        pairs: The second texts, for a task on pairs; else None.
        identity: What the request calls itself, if it does.
        outputs: The names of the tensors to answer with; () for all.
    """

    texts: list[str]
    pairs: list[str] | None
    identity: str | None = None
    outputs: tuple[Any, ...] = ()

    @property
    def characters(self) -> int:
        """The length of all texts together."""
        return sum(map(len, [*self.texts, *(self.pairs or [])]))


def read_v1(body: Any) -> Asked:
    """Read ``{"instances": [TEXT or {"text": TEXT, "text_pair": TEXT}, …]}``.

    Raises:
        InputError: the body is anything else.
    """
    return _asked([_row(place, one) for place, one in enumerate(_listed(body, "instances"))], "instances")


def read_v2(body: Any) -> Asked:
    """Read an inference request: one tensor of datatype BYTES with the texts, or two with both texts of pairs.

    Second texts are those of the tensor that is called so, else of the second one.

    Raises:
        InputError: the body is anything else.
    """
    inputs = _listed(body, "inputs")
    if len(inputs) > 2:
        raise InputError(f"inputs holds {len(inputs)} tensors; expected one with texts, or two for pairs")
    tensors = {f"inputs[{place}]": _object(value, f"inputs[{place}]") for place, value in enumerate(inputs)}
    places = sorted(tensors, key=lambda place: tensors[place].get("name") == PAIR)  # second texts last
    columns = [_texts_of(tensors[place], place) for place in places]
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"inputs: {len(columns[0])} texts and {len(columns[1])} second texts; expected equal numbers")
    identity = body["id"] if isinstance(body.get("id"), str) else None
    if not is_utf8(identity or ""):
        raise InputError("the id is not UTF-8")
    outputs = _listed(body, "outputs") if body.get("outputs") else []
    names = tuple(_object(value, f"outputs[{place}]").get("name") for place, value in enumerate(outputs))
    asked = _asked([list(texts) for texts in zip(*columns, strict=True)], "inputs[0].data")
    return asked._replace(identity=identity, outputs=names)


def check_outputs(served: Served, asked: Asked) -> None:
    """Raise InputError if a request asks for a tensor that the model does not give, or for one twice."""
    known = [*_outputs(served)]
    if unknown := [name for name in asked.outputs if name not in known]:
        raise InputError(f"outputs: the model has no {repr(unknown[0])}; expected {', '.join(known)}")
    if len(set(asked.outputs)) < len(asked.outputs):
        raise InputError(f"outputs: {len(asked.outputs)} tensors, some of them twice; expected each at most once")


def answer_v1(predicted: NDArray[Any], asked: Asked, served: Served) -> dict[str, Any]:
    """``{"predictions": […]}``: a label, its probability and all probabilities; labels and the last; or a number."""
    model, rows = served.predictor, predicted.tolist()
    return {"predictions": [row[0] if model.labels is None else chosen(row, model, served.at_least) for row in rows]}


def answer_v2(predicted: NDArray[Any], asked: Asked, served: Served) -> dict[str, Any]:
    """An inference response: tensors ``label``, ``probability`` and ``probabilities``; or ``value``.

    Of a model of several labels a text: ``chosen``, which says of each class whether it is an answer, in place of the
    first two. If `at_least` is above 0, also ``unsure``, which says of each text whether its probability is below it.
    """
    known, tensors = _outputs(served), list[dict[str, Any]]()
    for name in asked.outputs or known:
        output = known[name]
        data = output.values(predicted).ravel().tolist()
        tensors.append({**_tensor(name, output.datatype, len(predicted), *output.shape), "data": data})
    identity = {} if asked.identity is None else {"id": asked.identity}
    return {"model_name": served.name, "model_version": served.version, **identity, "outputs": tensors}


def metadata(served: Served) -> dict[str, Any]:
    """The metadata of a model in V2. The classes stand in the order of ``probabilities``."""
    model = served.predictor
    texts = ("text",) if served.pair is False else ("text", PAIR)
    known = {"classes": model.labels, "thresholds": model.thresholds, "at_least": served.at_least or None}
    parameters = {name: value for name, value in known.items() if value is not None}
    about: dict[str, Any] = {"name": served.name, "versions": [served.version], "platform": "tlm"}
    about["inputs"] = [_tensor(name, "BYTES", -1) for name in texts]
    about["outputs"] = [_tensor(name, one.datatype, -1, *one.shape) for name, one in _outputs(served).items()]
    return {**about, "parameters": parameters} if parameters else about


class _Output(NamedTuple):
    """A tensor of an answer: its datatype, its shape for one text, its values of predictions [texts, classes]."""

    datatype: str
    shape: tuple[int, ...]
    values: Callable[[NDArray[Any]], NDArray[Any]]


def _outputs(served: Served) -> dict[str, _Output]:
    """The tensors that a model can answer with, by name."""
    model, at_least = served.predictor, served.at_least
    if model.labels is None:
        return {"value": _Output("FP64", (), lambda rows: rows)}
    labels, thresholds, classes = np.array(model.labels, object), model.thresholds, (len(model.labels),)
    probabilities = _Output("FP64", classes, lambda rows: rows)
    if thresholds is not None:
        are_above = _Output("BOOL", classes, lambda rows: above(rows, thresholds) > 0)
        return {"chosen": are_above, "probabilities": probabilities}
    outputs = {
        "label": _Output("BYTES", (), lambda rows: labels[rows.argmax(axis=1)]),
        "probability": _Output("FP64", (), lambda rows: rows.max(axis=1)),
        "probabilities": probabilities,
    }
    if at_least:
        outputs["unsure"] = _Output("BOOL", (), lambda rows: rows.max(axis=1) < at_least)
    return outputs


def _tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{name} is {with_article(type(value).__name__)}; expected an object")
    return value


def _listed(body: Any, field: str) -> list[Any]:
    found = _object(body, "the body").get(field)
    if not isinstance(found, list) or not found:
        raise InputError(f"the body has no {field}; expected a list with at least one entry")
    return found


def _row(place: int, instance: Any) -> list[Any]:
    if not isinstance(instance, dict):
        return [instance]
    if "text" not in instance:
        raise InputError(f"instances[{place}] has no field 'text'; expected it and, of a pair, '{PAIR}'")
    return [instance["text"]] if instance.get(PAIR) is None else [instance["text"], instance[PAIR]]


def _texts_of(tensor: dict[str, Any], name: str) -> list[Any]:
    if tensor.get("datatype") != "BYTES":
        raise InputError(f"{name} has datatype {repr(tensor.get('datatype'))}; expected BYTES, which are texts")
    data, shape = tensor.get("data"), tensor.get("shape")
    if not isinstance(data, list) or not data:
        raise InputError(f"{name} has no data; expected a list of texts")
    if shape == [len(data), 1] and all(isinstance(one, list) and len(one) == 1 for one in data):
        return [one[0] for one in data]
    if shape not in ([len(data)], [len(data), 1]):
        raise InputError(f"{name} has shape {repr(shape)} and {len(data)} texts; expected [{len(data)}]")
    return data


def _asked(rows: list[list[Any]], name: str) -> Asked:
    """Check that all texts are texts, and that all or none are pairs."""
    for place, values in enumerate(rows):
        if error := checked(place, values).error:
            raise InputError(f"{name}[{place}]: {error}")
    if len({len(values) for values in rows}) > 1:
        raise InputError(f"{name}: some are pairs and others are not; expected one kind")
    return Asked([values[0] for values in rows], [values[1] for values in rows] if len(rows[0]) == 2 else None)
