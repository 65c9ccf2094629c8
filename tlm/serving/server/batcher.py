"""Batches: texts of requests that wait at the same time are predicted together."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tlm.errors import TlmError, reason
from tlm.evaluation.predict.predictor import Predictor
from tlm.progress import say
from tlm.serving.server.protocol import Asked

MOST_TOGETHER = 64  # texts
MOST_CHARACTERS = 1 << 18  # from there on, predicting together saves nothing and takes memory


class Busy(TlmError):
    """More waits than may."""


class Failed(TlmError):
    """The model did not predict."""


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
            Busy: too many texts are waiting.
            Failed: the model raised an error, such as for values that are not finite.
        """
        count = len(asked.texts)
        if self.waiting and self.waiting + count > self._most:
            raise Busy(f"{self.waiting} texts are waiting, and {self._most} may; try again in a second")
        self.waiting += count
        try:
            answer: asyncio.Future[NDArray[np.float64]] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait(_Waiting(asked, answer))
            return await answer
        finally:
            self.waiting -= count

    async def run(self) -> None:
        """Predict what waits, batch by batch, until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            together = self._together(await self._queue.get())
            try:
                found = await loop.run_in_executor(self._thread, self._predict, [one.asked for one in together])
            except Exception as error:  # told to those who asked; the next batch may do
                say(f"serve: {type(error).__name__}: {reason(error)}")
                for one in together:
                    if not one.answer.cancelled():
                        one.answer.set_exception(Failed(f"the model failed: {reason(error)}"))
                continue
            for one, values in zip(together, found, strict=True):
                if not one.answer.cancelled():
                    one.answer.set_result(values)

    def close(self) -> None:
        """End the thread when it has predicted its batch."""
        self._thread.shutdown()

    def _together(self, first: _Waiting) -> list[_Waiting]:
        """What waits of the same kind as `first`, single texts or pairs; a request is never cut."""
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
        ends = np.cumsum([len(one.texts) for one in asked])[:-1]
        parts: list[Any] = np.split(predicted, ends)
        return parts
