"""The server as an ASGI application: health, metadata, predictions in both protocols, and metrics for Prometheus.

Texts of requests that wait at the same time are predicted together.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tlm import __version__
from tlm.data.text import normalise
from tlm.errors import InputError, printable, reason
from tlm.evaluation.pages.text import escaped
from tlm.evaluation.predict.models import check_pairs
from tlm.evaluation.predict.predictor import Predictor
from tlm.progress import say
from tlm.serving import protocol
from tlm.serving.protocol import Asked, Limits, Served

Handler = Callable[[Request], Awaitable[Response]]


class Answer(JSONResponse):
    """JSON in which control and direction characters of labels are escaped."""

    def render(self, content: Any) -> bytes:
        """The bytes of the body."""
        return escaped(super().render(content).decode()).encode()


class Server:
    """The handlers of one model."""

    def __init__(self, served: Served) -> None:
        """Count nothing yet."""
        self.served, self.registry = served, CollectorRegistry()
        self.batcher = Batcher(served.predictor, served.limits.max_waiting)
        self.bodies = Bodies(served.limits)
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("tlm_requests", "Requests for predictions.", ["protocol", "code"], **own)
        self.texts = Counter("tlm_texts", "Texts that were predicted.", **own)
        self.answers = Counter("tlm_answers", "Texts by their likeliest label.", ["label"], **own)
        self.unsure = Counter("tlm_unsure_texts", "Texts whose answer was unsure (--at-least).", **own)
        self.seconds = Histogram("tlm_request_seconds", "Time of a request for predictions.", **own)
        Info("tlm_model", "The model that is served.", **own).info({"name": served.name, "version": served.version})
        waiting = Gauge("tlm_waiting_texts", "Texts that wait or are being predicted.", **own)
        waiting.set_function(lambda: self.batcher.waiting)
        held = Gauge("tlm_waiting_bytes", "Bytes of requests that wait or are being received.", **own)
        held.set_function(lambda: self.bodies.held)

    def app(self) -> Starlette:
        """The application."""
        name = self.served.name
        v1, v2, ready = f"/v1/models/{name}", f"/v2/models/{name}", {"name": name, "ready": True}
        by_v1 = self.predicting("v1", protocol.read_v1, protocol.answer_v1)
        by_v2 = self.predicting("v2", protocol.read_v2, protocol.answer_v2)
        bodies: dict[str, dict[str, Any]] = {
            "/": {"status": "alive"},  # V1's health, which load balancers ask for, too
            "/v2": {"name": "tlm", "version": __version__, "extensions": []},
            "/v2/health/live": {"live": True},
            "/v2/health/ready": {"ready": True},
            "/v1/models": {"models": [name]},
            v1: ready,
        }
        routes = [Route("/metrics", self.metrics, methods=["GET"]), Route(f"{v1}:predict", by_v1, methods=["POST"])]
        about = protocol.metadata(self.served)
        for model in (v2, f"{v2}/versions/{self.served.version}"):
            bodies |= {model: about, f"{model}/ready": ready}
            routes.append(Route(f"{model}/infer", by_v2, methods=["POST"]))
        routes += [Route(path, Answer(body), methods=["GET"]) for path, body in bodies.items()]
        handlers: Any = {HTTPException: _refused, Exception: _failed}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False  # to an address that the request chooses
        return app

    def predicting(self, name: str, read: Callable[[Any], Asked], answer: Callable[..., Any]) -> Handler:
        """Answer requests of the protocol `name`, count and time them; errors become answers of one sentence."""

        async def handle(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                async with self.bodies.asked(request, read) as asked:
                    response: Response = Answer(answer(await self.predict(asked), asked, self.served))
            except InputError as error:
                response = _error(str(error), 400)
            except HTTPException as error:
                response = await _refused(request, error)
            except Exception:  # of ours; `_failed` answers, and uvicorn logs it
                self.requests.labels(name, 500).inc()
                raise
            self.requests.labels(name, response.status_code).inc()
            self.seconds.observe(time.perf_counter() - begun)
            return response

        return handle

    async def predict(self, asked: Asked) -> Any:
        """Predict together with other waiting requests."""
        most = self.served.limits.max_texts
        if len(asked.texts) > most:
            raise InputError(f"{len(asked.texts)} texts in a request; expected at most {most}")
        check_pairs(self.served.pair, asked.pairs is not None, protocol.PAIR)
        protocol.check_outputs(self.served, asked)
        predicted = await self.batcher.predict(asked)
        self.texts.inc(len(asked.texts))
        model = self.served.predictor
        if model.labels and model.thresholds is None:
            likeliest, counts = np.unique(predicted.argmax(axis=1), return_counts=True)
            for label, count in zip(likeliest, counts, strict=True):
                self.answers.labels(printable(model.labels[label])).inc(int(count))
        if self.served.at_least:
            self.unsure.inc(int((predicted.max(axis=1) < self.served.at_least).sum()))
        return predicted

    async def metrics(self, _: Request) -> Response:
        """The metrics, as Prometheus reads them."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


async def _refused(request: Request, error: HTTPException) -> Response:
    unknown = f"nothing is served at {printable(request.url.path)[:200]}; GET /v1/models names the model"
    return _error(unknown if error.status_code == 404 else error.detail, error.status_code, dict(error.headers or {}))


async def _failed(_: Request, error: Exception) -> Response:
    return _error(f"the server failed ({type(error).__name__}); its log says where", 500)


def _error(text: str, code: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, code, headers)


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
        self._queue: list[_Waiting] = []
        self._work: asyncio.Task[None] | None = None
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
            self._queue.append(_Waiting(asked, answer))
            if self._work is None or self._work.done():
                self._work = asyncio.create_task(self._predict_all())
            return await answer
        finally:
            self.waiting -= count

    async def _predict_all(self) -> None:
        """Predict waiting texts, batch by batch, until none waits."""
        loop = asyncio.get_running_loop()
        while self._queue:
            together = self._together()
            try:
                predicted = await loop.run_in_executor(self._thread, self._predict, [one.asked for one in together])
            except Exception as error:  # the answer to these requests; the next batch may succeed
                say(f"serve: {type(error).__name__}: {reason(error)}")
                for one in together:
                    if not one.answer.cancelled():
                        one.answer.set_exception(HTTPException(500, f"the model failed: {reason(error)}"))
                continue
            for one, values in zip(together, predicted, strict=True):
                if not one.answer.cancelled():
                    one.answer.set_result(values)

    def _together(self) -> list[_Waiting]:
        """Take the first request, and others of the same kind, single texts or pairs; a request is never cut."""
        waiting, self._queue, together = self._queue, [], list[_Waiting]()
        texts = characters = 0
        for one in waiting:
            alike = (one.asked.pairs is None) == (waiting[0].asked.pairs is None)
            if alike and texts < MOST_TOGETHER and characters < MOST_CHARACTERS:
                together.append(one)
                texts += len(one.asked.texts)
                characters += one.asked.characters
            else:
                self._queue.append(one)
        return together

    def _predict(self, asked: list[Asked]) -> list[NDArray[np.float64]]:
        texts = [normalise(text) for one in asked for text in one.texts]  # as texts were that it learned from
        pairs = [normalise(pair) for one in asked for pair in one.pairs or []] or None
        return np.split(self._predictor.predict(texts, pairs), np.cumsum([len(one.texts) for one in asked])[:-1])


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
            InputError: the body ends early, is not JSON, is compressed, has binary tensors, or `read` raises it.
            HTTPException: the body is too large (413) or too slow (408), or others hold too many bytes (503).
        """
        body, received = bytearray(), 0
        try:
            await self._receive(request, body)
            received = len(body)
            if received <= SMALL:
                asked = _parsed(body, read, request.headers)
            else:
                loop = asyncio.get_running_loop()
                asked = await loop.run_in_executor(self._thread, _parsed, body, read, request.headers)
            body.clear()  # the texts take as much memory, or up to four times as much
            yield asked
        finally:
            self.held -= received or len(body)  # a part of it, if it was not received whole

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Append the parts that arrive; drop those of a refused body: a client that still sends reads no answer."""
        announced, size = int(request.headers.get("content-length", 0)), 0  # h11 has checked it; chunks have none
        refused = self._refusal(announced, 0, 0)
        if refused is not None and announced > MOST_DROPPED:
            raise refused
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    refused = refused or self._refusal(size, len(body), len(part))
                    if refused is None:
                        self.held += len(part)
                        body += part
                    else:
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

    def _refusal(self, size: int, kept: int, part: int) -> HTTPException | None:
        """Return why a body of `size` bytes that holds `kept` may not hold `part` more. A body alone finds room."""
        if size > self._limits.max_bytes:
            return HTTPException(413, f"the body has more than {self._limits.max_bytes} bytes; send fewer texts")
        of_others, most = self.held - kept, self._limits.max_waiting_bytes
        if of_others and self.held + part > most:
            return busy(f"{of_others} bytes of requests", most)
        return None


def _parsed(body: bytearray, read: Callable[[Any], Asked], headers: Mapping[str, str]) -> Asked:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError(_not_json(headers)) from None
    return read(value)


def _not_json(headers: Mapping[str, str]) -> str:
    if "inference-header-content-length" in headers:
        advice = "send their values in the JSON, with binary_data=False in the clients of Triton and KServe"
        return f"the body has binary tensors, which are not supported; {advice}"
    if (coding := headers.get("content-encoding", "").lower()) not in ("", "identity"):
        return f"the body is compressed ({printable(coding)}), which is not supported; send it as plain JSON"
    return "the body is not JSON in UTF-8"


HEAD_SECONDS = 10
MOST_UNREAD = 6  # checks, one every `HEAD_SECONDS`


class Timed(H11Protocol):
    """uvicorn's HTTP, with the limits that it lacks: on the time in which a head arrives, and an answer is read.

    It closes a connection that has not begun a request in `HEAD_SECONDS`, or in twice that after another one. It also
    ends a connection if the client has read nothing of an answer for `MOST_UNREAD` checks in a row: the answer would
    stay in memory.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to check."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self.check, None, 0, 0)

    def check(self, last: Any, before: int, unread: int) -> None:
        """Compare with what the check before saw: a request, how much was left to send, how often nothing was read."""
        same, waits = self.cycle is last, self.cycle is None or self.cycle.response_complete
        left = self.transport.get_write_buffer_size()
        unread = unread + 1 if same and left >= before > 0 else 0
        if unread == MOST_UNREAD:
            self.transport.abort()
        elif same and waits and not left:
            self.transport.close()
        elif self in self.connections:
            self.loop.call_later(HEAD_SECONDS, self.check, self.cycle, left, unread)
