"""Batches: texts of requests that wait at the same time are predicted together."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from tlm.errors import InputError, reason
from tlm.evaluation.predict.predictor import Predictor
from tlm.progress import say
from tlm.serving.protocol import Asked, Limits

MOST_TOGETHER = 64  # texts
MOST_CHARACTERS = 1 << 18  # from there on, predicting together saves nothing and takes memory


def busy(waiting: str, most: int) -> HTTPException:
    """The error that too much is waiting."""
    return HTTPException(503, f"{waiting} are waiting, and {most} may; try again in a second", {"Retry-After": "1"})


class _Waiting(NamedTuple):
    asked: Asked
    answer: "asyncio.Future[NDArray[np.float64]]"


class Batcher:
    """Predicts in one thread, so that the event loop goes on; while it does, requests gather for the next batch.

    Attributes:
        waiting: Texts that wait, or are being predicted.
    """

    def __init__(self, predictor: Predictor, most_waiting: int) -> None:
        """Predict nothing yet; `most_waiting` is the number of texts above which requests are refused."""
        self.waiting = 0
        self._predictor, self._most = predictor, most_waiting
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "predict")

    async def predict(self, asked: Asked) -> NDArray[np.float64]:
        """Predictions of the texts of a request.

        Raises:
            HTTPException: too many texts are waiting (503), or the model raised an error (500), such as for values that
                are not finite.
        """
        count = len(asked.texts)
        if self.waiting and self.waiting + count > self._most:
            raise busy(f"{self.waiting} texts", self._most)
        self.waiting += count
        try:
            answer: asyncio.Future[NDArray[np.float64]] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait(_Waiting(asked, answer))
            return await answer
        finally:
            self.waiting -= count

    async def run(self) -> None:
        """Predict waiting texts, batch by batch, until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            together = self._together(await self._queue.get())
            try:
                found = await loop.run_in_executor(self._thread, self._predict, [one.asked for one in together])
            except Exception as error:  # the answer to these requests; the next batch may succeed
                say(f"serve: {type(error).__name__}: {reason(error)}")
                for one in together:
                    if not one.answer.cancelled():
                        one.answer.set_exception(HTTPException(500, f"the model failed: {reason(error)}"))
                continue
            for one, values in zip(together, found, strict=True):
                if not one.answer.cancelled():
                    one.answer.set_result(values)

    def close(self) -> None:
        """End the thread when it has predicted its batch."""
        self._thread.shutdown()

    def _together(self, first: _Waiting) -> list[_Waiting]:
        """Take waiting requests of the same kind as `first`, single texts or pairs; a request is never cut."""
        found, texts, characters, others = [first], len(first.asked.texts), first.asked.characters, []
        while texts < MOST_TOGETHER and characters < MOST_CHARACTERS and not self._queue.empty():
            one = self._queue.get_nowait()
            if (one.asked.pairs is None) == (first.asked.pairs is None):
                found.append(one)
                texts += len(one.asked.texts)
                characters += one.asked.characters
            else:
                others.append(one)
        for one in others:
            self._queue.put_nowait(one)
        return found

    def _predict(self, asked: list[Asked]) -> list[NDArray[np.float64]]:
        texts = [text for one in asked for text in one.texts]
        pairs = [pair for one in asked for pair in one.pairs or []] or None
        predicted = self._predictor.predict(texts, pairs, "")
        return np.split(predicted, np.cumsum([len(one.texts) for one in asked])[:-1])


SMALL = 1 << 14  # bytes; such a body is parsed sooner than another thread is asked
RECEIVE_SECONDS = 60  # what arrives more slowly would take room from others
MOST_DROPPED = 1 << 24  # bytes of a refused body that are received; with more, the answer comes at once and may be lost


class Bodies:
    """Receives bodies and parses them, one at a time in a thread if they are large.

    Attributes:
        held: Bytes of requests that are received, wait or are being predicted, as they were sent.
    """

    def __init__(self, limits: Limits) -> None:
        """Hold nothing yet."""
        self.held, self._limits = 0, limits
        self._thread = ThreadPoolExecutor(1, "parse")

    @asynccontextmanager
    async def asked(self, request: Request, read: Callable[[Any], Asked]) -> AsyncIterator[Asked]:
        """Yield the texts of a request, by `read` of its JSON value. Its bytes count as held until the block ends.

        Raises:
            InputError: the body ends early, is not JSON, or `read` raises it.
            HTTPException: the body is too large (413) or too slow (408), or others hold too many bytes (503).
        """
        body, size = bytearray(), 0
        try:
            await self._receive(request, body)
            size = len(body)
            if size <= SMALL:
                found = _parsed(body, read)
            else:
                found = await asyncio.get_running_loop().run_in_executor(self._thread, _parsed, body, read)
            body.clear()  # the texts take as much memory, or up to four times as much
            yield found
        finally:
            self.held -= size or len(body)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Append the parts that arrive; drop those of a refused body: a client that still sends reads no answer."""
        announced = request.headers.get("content-length", "")
        size, refused = 0, self._refusal(int(announced) if announced.isdecimal() else 0, 0, 0)
        if refused is not None and int(announced) > MOST_DROPPED:
            raise refused
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    refused = refused or self._refusal(size, len(body), len(part))
                    if refused is None:
                        self.held += len(part)
                        body += part
                        continue
                    self.held -= len(body)
                    body.clear()
                    if size > MOST_DROPPED:
                        break
        except ClientDisconnect:
            raise InputError("the connection ended before the body") from None
        except TimeoutError:
            raise HTTPException(408, f"the body took more than {RECEIVE_SECONDS} seconds; send it faster") from None
        if refused is not None:
            raise refused

    def _refusal(self, size: int, own: int, more: int) -> HTTPException | None:
        """Return why a body of `size` bytes that holds `own` may not hold `more`. A body alone always finds room."""
        if size > self._limits.max_bytes:
            return HTTPException(413, f"the body has more than {self._limits.max_bytes} bytes; send fewer texts")
        others, most = self.held - own, self._limits.max_waiting_bytes
        return busy(f"{others} bytes of requests", most) if others and self.held + more > most else None


def _parsed(body: bytearray, read: Callable[[Any], Asked]) -> Asked:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON in UTF-8") from None
    return read(value)
