"""Serve a model: here, until a signal ends it (`serve`), or in a cluster by KServe (`kserve-manifest`)."""

import errno
import math
import os
import re
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from tlm.artifacts.artifact import Artifact
from tlm.data.marks import SPANS_FIRST
from tlm.data.ranges import CUT
from tlm.data.tasks.metrics import MULTI_LABEL
from tlm.errors import InputError, Interrupted
from tlm.evaluation.predict.encoder import ONNX
from tlm.evaluation.predict.models import located, of_pairs
from tlm.evaluation.predict.predict import check_asked
from tlm.evaluation.predict.predictor import open_predictor
from tlm.progress import hidden, say
from tlm.serving.export_onnx import trained_model
from tlm.serving.protocol import Limits, Served
from tlm.settings.options import Range
from tlm.shallow.folder import CONFIG, FAMILY, config_of, known_of

DRAIN_SECONDS = 30
# Of a connection, until the server reads them: with many connections, each round then takes less time and memory.
RECEIVED_BYTES = 1 << 15
SENT_BYTES = 1 << 18  # that the system takes of an answer: with its megabytes, a slow reader seems to read nothing
SWITCH_SECONDS = 0.0005  # of Python's threads: the one that answers waits so long for the one that predicts, each time
FULL_SECONDS = 0.001  # between two tries to open one more connection than the process may; open ones wait as well
VERSION_DIGITS = 12  # of an artifact's content


def serve(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    name: str = "model",
    model_version: str = "",
    limits: Limits = Limits(),
    at_least: float = 0.0,
    device: str = "auto",
) -> None:
    """Serve a model over HTTP: the Open Inference Protocol (V2) and KServe's V1, health, and metrics for Prometheus.

    It answers POST /v1/models/NAME:predict and /v2/models/NAME/infer. SIGTERM or SIGHUP lets it finish what it began.

    Args:
        model: URI of a model, metrics or report, or a model folder; fastest from `tlm export-onnx`, or without
            a neural network.
        host: Address to listen at; 0.0.0.0 in a container.
        port: Port to listen at.
        name: Name of the model in the paths.
        model_version: Version of the model in answers and paths; by default the first 12 digits of its content, or 1
            for a folder that `tlm download` did not write.
        limits: What the server takes at most.
        at_least: Probability below which an answer is unsure: each answer then says whether it is. By default, answers
            do not say so. Not for numbers, nor for several labels a text.
        device: Where a model of PyTorch computes: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N
            or mps.
    """
    try:
        import uvicorn

        from tlm.serving.app import Server, Timed
    except ImportError as error:
        advice = "`make install`, or in a checkout `pip install '.[serve]'`"
        raise InputError(f"{error.name} is missing: {advice}") from None
    Range("1 to 65535", 1, 65535).check("port", port)
    folder, artifact = located(model)
    content = artifact.content if artifact else str(known_of(folder).get("content", "1"))
    version = model_version or content[:VERSION_DIGITS]
    for option, given in (("name", name), ("model_version", version)):
        if not given or not all(letter.isalnum() or letter in "-_." for letter in given):
            raise InputError(f"{option} is '{given}'; expected letters, digits, '-', '_' and '.'")
    check_asked(folder, at_least)
    predictor, place = open_predictor(folder, device)
    served = Served(predictor, name, version, at_least, limits, of_pairs(folder, artifact))
    _prepare_process()
    app, drain = Server(served).app(), DRAIN_SECONDS
    config = uvicorn.Config(app, host, port, log_level="warning", timeout_graceful_shutdown=drain, http=Timed)
    try:
        listening = _Listening(fileno=config.bind_socket().detach())
    except SystemExit:
        raise InputError(f"cannot listen at {host}, port {port}, for the reason above; choose others") from None
    address = f"[{host}]" if ":" in host else host
    say(f"serve: {model} on {place}, at http://{address}:{port}/v1/models/{name}:predict")
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a body waits 40 ms after its head
    server = uvicorn.Server(config)
    with hidden(), suppress(KeyboardInterrupt):
        server.run([listening])
    if not server.started:
        raise Interrupted("the server did not start; its log says why")
    say("serve: ended")


_say_once = cache(say)


class _Listening(socket.socket):
    """Lets new connections wait while no file can be opened; asyncio alone logs some 2,000 errors a second."""

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            _say_once(f"serve: new connections wait ({error.strerror}); raise the limit of open files (ulimit -n)")
            time.sleep(FULL_SECONDS)
            raise BlockingIOError from None  # asyncio takes it for no connection, and tries again


def _prepare_process() -> None:
    """Set what holds for the whole process: its threads, its signals, its number of connections."""
    sys.setswitchinterval(SWITCH_SECONDS)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn takes it, drains, and raises it again for us
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    with suppress(OSError, ValueError):  # as many connections as the system allows
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


Runtime = Literal["huggingface", "tlm"]
NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # KServe makes longer names of it, of at most 63 characters


def manifest(
    model: str,
    *,
    name: str,
    runtime: Runtime = "huggingface",
    image: str = "",
    service_account: str = "",
    namespace: str = "",
    cpu: str = "1",
    memory: str = "2Gi",
    store_port: int = 0,
    at_least: float = 0.0,
) -> str:
    """Print an InferenceService and a NetworkPolicy, with which KServe serves a model at an address in the cluster.

    KServe copies the model from the store. The address of the files has the digest of their contents in it, so that
    it never changes under a service that runs. Apply it with `tlm kserve-manifest … | kubectl apply -f -`.

    Args:
        model: URI of a model on S3, of its metrics, or of a report that recommends it.
        name: Name of the service, and of the model in its paths: at most 40 lower-case letters, digits and '-', a
            letter first.
        runtime: What serves: KServe's own runtime for Hugging Face models, or `tlm serve`, which serves every model.
        image: Image of `tlm serve`, for that runtime.
        service_account: Service account with the store's credentials, as KServe's documentation describes them.
        namespace: Namespace of the service; by default that of kubectl.
        cpu: CPU cores of the pod.
        memory: Memory of the pod.
        store_port: Port of the store's pods; 0: that of AWS_ENDPOINT_URL_S3, else 80 (http) or 443.
        at_least: Probability below which `tlm serve` marks an answer as unsure; by default, it marks none.

    Returns:
        Two YAML documents.

    Raises:
        InputError: a name or image that does not fit, a model that is not on S3, or one that the runtime cannot serve.
    """
    Range("0 to 65535", 0, 65535).check("store_port", store_port)
    if not NAME.fullmatch(name):
        raise InputError(f"name is '{name}'; expected at most 40 lower-case letters, digits and '-', a letter first")
    if (runtime == "tlm") != bool(image):
        raise InputError(f"runtime is {runtime} and image is '{image}'; --runtime tlm, and only that, needs an image")
    if at_least and runtime != "tlm":
        raise InputError(f"at_least is {at_least:g}, but KServe's runtime marks no answer as unsure; use --runtime tlm")
    trained = trained_model(model)
    texts = {"address": storage_uri(trained), "image": image, "cpu": cpu, "memory": memory}
    texts["version"] = trained.content[:VERSION_DIGITS]
    quoted = {key: yaml.safe_dump(text, default_style='"', width=math.inf).rstrip() for key, text in texts.items()}
    length = "" if image else _longest(trained)
    template = Template(files("tlm.serving").joinpath("manifest.yaml").read_text("utf-8"))
    filled = template.substitute(quoted, name=name, length=length, store_port=store_port or default_port())
    service, policy, predictors = yaml.safe_load_all(filled)
    if at_least:
        check_asked(trained.path(f"model/{CONFIG}").parent, at_least)
        predictors["tlm"]["containers"][0]["args"] += ["--at-least", str(at_least)]
    account = {"serviceAccountName": service_account} if service_account else {}
    service["spec"]["predictor"] |= account | predictors[runtime]
    if namespace:
        service["metadata"]["namespace"] = policy["metadata"]["namespace"] = namespace
    return yaml.safe_dump_all([service, policy], sort_keys=False).rstrip()


def storage_uri(model: Artifact) -> str:
    """The address of a model's folder in its store. Raises InputError if no cluster can read it there."""
    if not model.uri.startswith("s3://"):
        raise InputError(f"{model.uri} is not on S3, where a cluster can read it; run the pipeline with an s3:// root")
    return model.address("model")


def default_port() -> int:
    """The port of the S3 server that boto3 would use."""
    address = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "https://")
    return address.port or (80 if address.scheme == "http" else 443)


def _longest(model: Artifact) -> int:
    """Return the most tokens of a text that KServe's runtime reads. Raises InputError if it cannot serve the model."""
    config = config_of(model.path(f"model/{CONFIG}").parent)
    family, problem = config.get(FAMILY, "onnx" if ONNX in config else ""), config.get("problem_type")
    unfit = {
        f"is a model of the family '{family}', which transformers does not load": family,
        "reads marked spans first, which only `tlm` prepares so": SPANS_FIRST in config,
        "reads head and tail of long texts, which only `tlm` cuts so": CUT in config,
        "predicts a number, but KServe's runtime answers with classes": problem == "regression",
        "gives several labels, but KServe's runtime answers with one": problem == MULTI_LABEL,
    }
    if reason := next((reason for reason, holds in unfit.items() if holds), ""):
        raise InputError(f"{model.uri} {reason}; use --runtime tlm")
    return int(model.json("model/tokenizer_config.json")["model_max_length"])
