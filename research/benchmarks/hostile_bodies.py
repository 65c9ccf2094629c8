"""Requests that nobody should send, drawn with a seed, and what an answer to each has to be."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

V1, V2 = "/v1/models/model:predict", "/v2/models/model/infer"
ANSWER = "an answer in JSON"  # of one sentence, or predictions
REFUSED = "a refusal"  # by the HTTP library, in plain text: what arrived is no request
NOTHING = "nothing"  # the request never ends, so there is nobody to answer
LARGEST = 1 << 20  # bytes of a body that `tlm serve` reads
JUNK: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", " ", "a", [], {}, [[]], {"text": 1}, {"text": "a", "text_pair": 2})
TYPES = ("image/png", "text/html", "application/x-www-form-urlencoded", "multipart/form-data", "", "\xff", "a" * 5000)


class Hostile(NamedTuple):
    """A request.

    Attributes:
        kind: What is wrong with it.
        data: All bytes that are sent.
        owed: What has to come back.
    """

    kind: str
    data: bytes
    owed: str = ANSWER


def request(body: bytes, path: str = V1, *headers: str, length: int | str | None = None) -> bytes:
    """The bytes of a request; `length` is said to be that of the body, "" says nothing."""
    said = len(body) if length is None else length
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines += [f"Content-Length: {said}"] if said != "" else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def hostile(count: int, seed: int = 0) -> Iterator[Hostile]:
    """So many requests, of each kind in turn."""
    chance = random.Random(seed)
    for number in range(count):
        kind, make = list(KINDS.items())[number % len(KINDS)]
        made = make(chance)
        yield made._replace(kind=kind) if isinstance(made, Hostile) else Hostile(kind, made)


def good(chance: random.Random) -> tuple[bytes, str]:
    """A body that is as it should be, and its path."""
    texts = ["word " * chance.randint(1, 20) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.5:
        return json.dumps({"instances": texts}).encode(), V1
    return _dumped(id="1", inputs=[_tensor(data=texts, shape=[len(texts)])]), V2


def _tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a word"]} | changes


def _dumped(**values: Any) -> bytes:
    return json.dumps(values).encode()


def _random_bytes(chance: random.Random) -> bytes:
    return request(chance.randbytes(chance.randint(0, 3000)), chance.choice((V1, V2)))


def _truncated(chance: random.Random) -> bytes:
    body, path = good(chance)
    return request(body[: chance.randrange(len(body))], path)


def _mutated(chance: random.Random) -> bytes:
    body, path = good(chance)
    changed = bytearray(body)
    for _ in range(chance.randint(1, 5)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return request(bytes(changed), path)


def _wrong_types(chance: random.Random) -> bytes:
    def junk() -> Any:
        return chance.choice(JUNK)

    bodies: list[Any] = [
        junk(), {"instances": junk()}, {"instances": [junk(), junk()]}, {"inputs": junk()}, {"inputs": [junk()]},
        {"id": junk(), "inputs": [_tensor(**{chance.choice(("name", "shape", "datatype", "data")): junk()})]},
        {"inputs": [_tensor(data=[junk(), junk()], shape=junk())]},
    ]  # fmt: skip
    return request(json.dumps(chance.choice(bodies)).encode(), chance.choice((V1, V2)))


def _huge_numbers(chance: random.Random) -> bytes:
    digits = "9" * chance.choice((20, 400, 4200, 5000, 100_000))
    number = chance.choice((digits, f"-{digits}", f"0.{digits}", "1e999", "-1e999", "NaN", "Infinity", f"1e{digits}"))
    forms = (
        (f'{{"instances": [{number}]}}', V1),
        (f'{{"inputs": [{{"datatype": "BYTES", "shape": [{number}], "data": ["a"]}}]}}', V2),
        (f'{{"id": {number}, "inputs": [{{"datatype": {number}, "shape": [1], "data": ["a"]}}]}}', V2),
    )
    body, path = chance.choice(forms)
    return request(body.encode(), path)


def _deep(chance: random.Random) -> bytes:
    depth = chance.choice((10, 500, 900, 1000, 3000, 100_000))
    opened, closed = chance.choice((("[", "]"), ('{"a":', "}")))
    inner = opened * depth + ("1" + closed * depth if chance.random() < 0.7 else "")
    forms = (f'{{"instances": [{inner}]}}', V1), (f'{{"inputs": [{{"datatype": {inner}}}]}}', V2), (inner, V1)
    body, path = chance.choice(forms)
    return request(body.encode(), path)


def _odd_characters(chance: random.Random) -> bytes:
    odd = chance.choice(("\\ud800", "\\u0000", "\\udfff\\ud800", "\\u202e", "\\n\\r\\t", "\\uffff"))
    forms = (
        (f'{{"instances": ["a {odd}"]}}', V1),
        (f'{{"instances": [{{"{odd}": "a"}}]}}', V1),
        (f'{{"id": "{odd}", "inputs": [{{"datatype": "BYTES", "shape": [1], "data": ["a"]}}]}}', V2),
        (f'{{"inputs": [{{"datatype": "{odd}", "shape": "{odd}", "data": ["a"]}}]}}', V2),
        (f'{{"inputs": [{{"datatype": "BYTES", "shape": "{odd}", "data": ["a"]}}]}}', V2),
    )
    body, path = chance.choice(forms)
    return request(body.encode(), path)


def _wrong_shapes(chance: random.Random) -> bytes:
    shape = [chance.randint(-3, 5) for _ in range(chance.randint(0, 4))]
    tensors = [_tensor(shape=shape, data=["a"] * chance.randint(0, 4)) for _ in range(chance.randint(0, 4))]
    return request(_dumped(inputs=tensors), V2)


def _too_much(chance: random.Random) -> bytes:
    forms = (
        json.dumps({"instances": ["a"] * 1025}).encode(),
        json.dumps({"instances": ["a" * LARGEST]}).encode(),
        b"[" * (LARGEST + 1),
        b" " * (LARGEST + 1),
    )
    return request(chance.choice(forms), chance.choice((V1, V2)))


def _wrong_content_types(chance: random.Random) -> bytes:
    body, path = good(chance)
    body = body if chance.random() < 0.5 else chance.randbytes(100)
    return request(body, path, f"Content-Type: {chance.choice(TYPES)}", f"Content-Encoding: {chance.choice(TYPES[:5])}")


def _wrong_lengths(chance: random.Random) -> bytes:
    """Less than there is, none, or far more than is read."""
    body, path = good(chance)
    return request(body, path, length=chance.choice((0, chance.randrange(len(body)), "", 10**12, 10**19)))


def _no_requests(chance: random.Random) -> Hostile:
    """Lengths that are none, two of them, chunks that are none, and no HTTP at all."""
    body, path = good(chance)
    forms = (
        request(body, path, length=chance.choice(("-5", "many", "1e3", "0x10", "9" * 30))),
        request(body, path, "Content-Length: 3"),
        request(b"zz\r\n" + body, path, "Transfer-Encoding: chunked", length=""),
        request(body, path, "Transfer-Encoding: gzip", length=""),
        b"\x16\x03\x01" + chance.randbytes(50) + b"\r\n\r\n",
    )
    return Hostile("", chance.choice(forms), REFUSED)


def _cut_off(chance: random.Random) -> Hostile:
    """Less than was said, and then no more."""
    body, path = good(chance)
    chunked = request(b"fff\r\n" + body, path, "Transfer-Encoding: chunked", length="")
    return Hostile("", chance.choice((request(body, path, length=len(body) + 7), chunked)), NOTHING)


KINDS: dict[str, Callable[[random.Random], bytes | Hostile]] = {
    "random bytes": _random_bytes,
    "truncated JSON": _truncated,
    "mutated JSON": _mutated,
    "wrong types": _wrong_types,
    "huge numbers": _huge_numbers,
    "deep nesting": _deep,
    "odd characters": _odd_characters,
    "wrong shapes": _wrong_shapes,
    "too much": _too_much,
    "wrong content types": _wrong_content_types,
    "wrong lengths": _wrong_lengths,
    "no requests": _no_requests,
    "cut off": _cut_off,
}


def fault(answer: bytes, owed: str) -> str:
    """The reason why an answer is wrong; "" if it is right."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if owed == NOTHING:
        return "" if not answer else f"an answer to nobody: {answer[:80]!r}"
    code = head[9:12].decode("latin-1")
    if not head.startswith(b"HTTP/1.1 ") or not code.isdecimal():
        return f"no HTTP: {answer[:80]!r}"
    if owed == REFUSED:
        return "" if code == "400" else f"{code} for what is no request"
    try:
        values = json.loads(body)
    except ValueError:
        return f"{code}, not in JSON: {body[:80]!r}"
    if code == "200":
        return "" if values.keys() & {"predictions", "outputs"} else "200 without predictions"
    said = values.get("error")
    if not code.startswith("4") or not isinstance(said, str):
        return f"{code}: {body[:80]!r}"
    return "" if 0 < len(said) < 500 and said.isprintable() else f"no sentence: {said[:80]!r}"
