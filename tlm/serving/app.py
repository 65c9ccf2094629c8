"""The server as an ASGI application: health, metadata, predictions in both protocols, and metrics for Prometheus."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tlm import __version__
from tlm.errors import InputError
from tlm.evaluation.predict.predictor import Predictor
from tlm.serving import protocol
from tlm.serving.batcher import Batcher, Bodies, Busy, Failed

Handler = Callable[[Request], Awaitable[Response]]


class Served(NamedTuple):
    """A model and how it is served.

    Attributes:
        predictor: The model.
        name: Its name in paths.
        version: Its version in answers.
        at_least: The probability below which an answer is unsure; 0: answers do not say whether they are.
        most_bytes: The largest body of a request.
        most_texts: The most texts in a request.
        most_waiting: The most texts that wait.
        most_waiting_bytes: The most bytes of bodies that are received or wait.
    """

    predictor: Predictor
    name: str
    version: str
    at_least: float = 0.0
    most_bytes: int = 1 << 20
    most_texts: int = 1024
    most_waiting: int = 4096
    most_waiting_bytes: int = 64 << 20


class Server:
    """The handlers of one model."""

    def __init__(self, served: Served) -> None:
        """Count nothing yet."""
        self.served, self.registry = served, CollectorRegistry()
        self.batcher = Batcher(served.predictor, served.most_waiting)
        self.bodies = Bodies(served.most_bytes, served.most_waiting_bytes)
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("tlm_requests", "Requests for predictions.", ["protocol", "code"], **own)
        self.texts = Counter("tlm_texts", "Texts that were predicted.", **own)
        self.unsure = Counter("tlm_unsure_texts", "Texts whose answer was unsure (--at-least).", **own)
        self.seconds = Histogram("tlm_request_seconds", "Time of a request for predictions.", **own)
        waiting = Gauge("tlm_waiting_texts", "Texts that wait or are being predicted.", **own)
        waiting.set_function(lambda: self.batcher.waiting)
        held = Gauge("tlm_waiting_bytes", "Bytes of requests that wait or are being received.", **own)
        held.set_function(lambda: self.bodies.held)

    def app(self) -> Starlette:
        """The application."""
        name = self.served.name
        v1, v2, ready = f"/v1/models/{name}", f"/v2/models/{name}", {"name": name, "ready": True}
        get: dict[str, dict[str, Any]] = {
            "/v2": {"name": "tlm", "version": __version__, "extensions": []},
            "/v2/health/live": {"live": True},
            "/v2/health/ready": {"ready": True},
            "/v1/models": {"models": [name]},
            v1: ready,
            v2: protocol.metadata(name, self.served.version, self.served.predictor, self.served.at_least),
            f"{v2}/ready": ready,
        }
        routes = [Route(path, _answering(body), methods=["GET"]) for path, body in get.items()]
        routes.append(Route("/metrics", self.metrics, methods=["GET"]))
        routes.append(Route(f"{v1}:predict", self.counted("v1", self.predict_v1), methods=["POST"]))
        routes.append(Route(f"{v2}/infer", self.counted("v2", self.predict_v2), methods=["POST"]))
        handlers: Any = {HTTPException: _refused, Exception: _failed}
        return Starlette(routes=routes, lifespan=self.lifespan, exception_handlers=handlers)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Predict batches while the application runs."""
        work = asyncio.create_task(self.batcher.run())
        yield
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        self.batcher.close()
        self.bodies.close()

    def counted(self, name: str, handler: Handler) -> Handler:
        """Count and time what a handler does; errors become answers of one sentence."""

        async def handle(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                answer = await handler(request)
            except InputError as error:
                answer = _error(str(error), 400)
            except Busy as error:
                answer = _error(str(error), 503, {"Retry-After": "1"})
            except Failed as error:
                answer = _error(str(error), 500)
            except HTTPException as error:
                answer = _error(error.detail, error.status_code)
            except Exception:  # of ours; `_failed` answers, and uvicorn logs it
                self.requests.labels(name, 500).inc()
                raise
            self.requests.labels(name, answer.status_code).inc()
            self.seconds.observe(time.perf_counter() - begun)
            return answer

        return handle

    async def predict_v1(self, request: Request) -> Response:
        """V1: ``instances`` in, ``predictions`` out."""
        async with self.bodies.asked(request, protocol.read_v1) as asked:
            predicted, served = await self.predict(asked), self.served
            return JSONResponse(protocol.answer_v1(predicted, served.predictor, served.at_least))

    async def predict_v2(self, request: Request) -> Response:
        """V2, the Open Inference Protocol: tensors in, tensors out."""
        async with self.bodies.asked(request, protocol.read_v2) as asked:
            predicted, served = await self.predict(asked), self.served
            about = served.predictor, served.name, served.version, asked.identity, served.at_least
            return JSONResponse(protocol.answer_v2(predicted, *about))

    async def predict(self, asked: protocol.Asked) -> Any:
        """Predict together with other waiting requests."""
        if len(asked.texts) > self.served.most_texts:
            raise InputError(f"{len(asked.texts)} texts in a request; expected at most {self.served.most_texts}")
        predicted = await self.batcher.predict(asked)
        self.texts.inc(len(asked.texts))
        self.unsure.inc(int((predicted.max(axis=1) < self.served.at_least).sum()) if self.served.at_least else 0)
        return predicted

    async def metrics(self, _: Request) -> Response:
        """The metrics, as Prometheus reads them."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


def _answering(body: dict[str, Any]) -> Handler:
    async def handle(_: Request) -> Response:
        return JSONResponse(body)

    return handle


async def _refused(_: Request, error: HTTPException) -> Response:
    return _error(error.detail, error.status_code, dict(error.headers or {}))


async def _failed(_: Request, error: Exception) -> Response:
    return _error(f"the server failed ({type(error).__name__}); its log says where", 500)


def _error(text: str, code: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, code, headers)
