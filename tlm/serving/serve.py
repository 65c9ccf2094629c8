"""The command `serve`: load a model and answer requests until a signal ends it."""

import signal
import socket
import sys
from contextlib import suppress

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, Interrupted
from tlm.evaluation.predict.predict import check_at_least, is_folder, model_folder
from tlm.evaluation.predict.predictor import open_predictor
from tlm.progress import hidden, say
from tlm.serving.protocol import Limits, Served

DRAIN_SECONDS = 30
# Of a connection, until the server reads them: with many connections, each round then takes less time and memory.
RECEIVED_BYTES = 1 << 15
SWITCH_SECONDS = 0.0005  # of Python's threads: the one that answers waits so long for the one that predicts, each time
VERSION_DIGITS = 12  # of an artifact's content; a folder has the version 1


def serve(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    name: str = "model",
    limits: Limits = Limits(),
    at_least: float = 0.0,
    device: str = "auto",
) -> None:
    """Serve a model over HTTP: the Open Inference Protocol (V2) and KServe's V1, health, and metrics for Prometheus.

    It answers POST /v1/models/NAME:predict and /v2/models/NAME/infer. SIGTERM lets it finish what it has begun.

    Args:
        model: URI of a model, metrics or report, or a model folder; best of `tlm export-onnx`, or a shallow one.
        host: Address to listen at; 0.0.0.0 in a container.
        port: Port to listen at.
        name: Name of the model in the paths.
        limits: What the server takes at most.
        at_least: Probability below which an answer is unsure: each answer then says whether it is. By default, answers
            do not say so. Not for numbers, nor for several labels a text.
        device: Where a model of PyTorch computes: auto, cpu, cuda or cuda:N, mps.
    """
    try:
        import uvicorn

        from tlm.serving.app import Server
    except ImportError as error:
        raise InputError(f"{error.name} is not installed; serve needs `pip install tlm-kubeflow[serve]`") from None
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise InputError(f"name is '{name}'; expected letters, digits, '-', '_' and '.'")
    folder = model_folder(model)
    check_at_least(at_least, folder)
    predictor, place = open_predictor(folder, device)
    version = "1" if is_folder(model) else Artifact.open(model).content[:VERSION_DIGITS]
    served = Served(predictor, name, version, at_least, limits)
    say(f"serve: {model} on {place}, at http://{host}:{port}/v1/models/{name}:predict")
    sys.setswitchinterval(SWITCH_SECONDS)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn takes it, drains, and raises it again for us
    app, drain = Server(served).app(), DRAIN_SECONDS
    config = uvicorn.Config(app, host, port, log_level="warning", timeout_graceful_shutdown=drain)
    listening = config.bind_socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    server = uvicorn.Server(config)
    with hidden(), suppress(KeyboardInterrupt):
        server.run([listening])
    if not server.started:
        raise Interrupted("the server did not start; its log says why")
    say("serve: ended, and nothing was left unanswered")
