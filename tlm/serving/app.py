"""The server as an ASGI application: health, metadata, predictions in both protocols, and metrics for Prometheus."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tlm import __version__
from tlm.errors import InputError
from tlm.serving import protocol
from tlm.serving.batcher import Batcher, Bodies
from tlm.serving.protocol import Asked, Served

Handler = Callable[[Request], Awaitable[Response]]


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
            v2: protocol.metadata(self.served),
            f"{v2}/ready": ready,
        }
        routes = [Route(path, _answering(body), methods=["GET"]) for path, body in get.items()]
        routes.append(Route("/metrics", self.metrics, methods=["GET"]))
        by_v1 = self.predicting("v1", protocol.read_v1, protocol.answer_v1)
        by_v2 = self.predicting("v2", protocol.read_v2, protocol.answer_v2)
        routes.append(Route(f"{v1}:predict", by_v1, methods=["POST"]))
        routes.append(Route(f"{v2}/infer", by_v2, methods=["POST"]))
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

    def predicting(self, name: str, read: Callable[[Any], Asked], answer: Callable[..., Any]) -> Handler:
        """Answer requests of the protocol `name`, count and time them; errors become answers of one sentence."""

        async def handle(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                async with self.bodies.asked(request, read) as asked:
                    response: Response = JSONResponse(answer(await self.predict(asked), asked, self.served))
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
