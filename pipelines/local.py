"""Show what matters of the output of kfp.local: the lines of the steps go to stderr, everything goes to a log."""

import io
import os
import re
import signal
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import docker
from docker.errors import APIError, DockerException
from docker.types import DeviceRequest, Mount
from kfp import local as kfp_local
from kfp.dsl.base_component import BaseComponent
from kfp.local import DockerRunner
from kfp.local.logging_utils import local_logger_context

from pipelines.compiled import build, check_reachable, tasks_in, use_images
from pipelines.form import Parallelism
from pipelines.steps import ADDRESSES, ELASTICSEARCH_FOLDER
from tlm import errors
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores import DEFAULT_ROOT, named_root
from tlm.artifacts.stores.local import make_folder
from tlm.errors import NO_TORCH, STOPS, InputError, Interrupted, disk_full
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.predict.models import trained
from tlm.progress import say
from tlm.runs.pods import S3_KEYS, USER
from tlm.settings.options import THREADS, cores, given_threads
from tlm.training.distributed.launch import LOCKS, VISIBLE

_COLOUR = re.compile(r"\x1b\[\d+m")
_TASK = re.compile(
    r"[\d:.]+ - (?:INFO|ERROR) - (?:Executing task|Task) '(?P<name>[^']+)'(?: finished with status (?P<status>\w+))?$"
)
_OUTPUTS = re.compile(r"[\d:.]+ - INFO - Task \S+ outputs:\n")
_ERROR = re.compile(r"tlm\.errors\.(?P<kind>\w+): (?P<sentence>.*)")
_RAISED = re.compile(r"[\d:.]+ - ERROR - Task \S+ failed with (?P<kind>exception): (?P<sentence>.+)")  # in a loop
_KILLED = re.compile(r"(.*: line \d+: +\d+ )?Killed(: 9)?(\s|$)")  # what dash says of a step, and what bash says
_FULL = re.compile(  # numpy has no errno; a shell of kfp.local writes the code of each step into the temporary folder
    r"(OSError|(?P<shell>mktemp|\w*: (line )?\d+)): .*"
    r"(No space left on device|Disk quota exceeded| written$|printf: I/O error$)"
)
_EXECUTOR = re.compile(r"(\[KFP Executor|[\d:.]+ - (INFO|ERROR|WARNING) - )")
_NOISE = re.compile(
    r"[-\s]*$|[{}\[\]\"]|Output|Streamed logs|Found image |/\S+: \w*Warning: "
    r"|(During handling of t|T)he above exception"  # had a sentence of its own
)


def _fault(line: str) -> tuple[str, str] | None:
    """The kind and the sentence of the error that a line of a step's log stands for."""
    if _KILLED.match(line):
        return "Interrupted", "the step was killed, perhaps for lack of memory; free some, or give it more"
    if line == "ModuleNotFoundError: No module named 'torch'":
        return "InputError", NO_TORCH
    if full := _FULL.match(line):
        named = re.findall(r"'([^']+)'", line) or [tempfile.gettempdir() if full["shell"] else ""]
        return "Interrupted", disk_full(named[-1])  # of a copy, what is written
    error = _ERROR.match(line) or _RAISED.match(line)
    return (error["kind"], error["sentence"]) if error else None


class Transcript(io.TextIOBase):
    """A replacement for stdout: all lines go to `log`; names of steps, their own lines and failures go to stderr.

    Of one of our own errors only the message is shown; other tracebacks are shown in full.

    Attributes:
        fault: Class and sentence of the first of our own errors, or of kfp.local's; None if there is none.
        shown: Whether it was shown, or another traceback.
        went_on: Whether steps began after it, so that it is no longer the last thing shown.
        stopped: Whether a signal ends the pipeline; then no step begins, as a loop of kfp.local would have it.
    """

    def __init__(self, log: TextIO) -> None:
        self.log = log
        self.fault: tuple[str, str] | None = None
        self.shown = self.went_on = self.stopped = False
        self._rest = ""
        self._traceback: list[str] = []

    def write(self, text: str) -> int:
        """Process a piece of output."""
        self.log.write(text)
        if not _OUTPUTS.match(text):  # kfp.local's list of a step's outputs; the step has said what matters
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._show(_COLOUR.sub("", line).strip())
        return len(text)

    def _show(self, line: str) -> None:
        task = _TASK.match(line)
        if fault := _fault(line):
            self.fault = self.fault or fault
            self._traceback, self.shown = [], True
            say(f"    {fault[1]}")
        elif line.startswith("Traceback") or (self._traceback and not task):
            self._traceback.append(line)
        elif task:
            self._show_task(task["name"], task["status"])
        elif not _EXECUTOR.match(line) and not _NOISE.match(line):
            say(f"    {line}")

    def _show_task(self, name: str, status: str | None) -> None:
        """Show that a task begins (without a status) or has ended."""
        if status == "FAILURE":  # perhaps by a terminal's signal, which our own handler must see first
            time.sleep(1)
        self.shown |= bool(self._traceback)
        if not self.stopped:
            for line in self._traceback:
                say(f"    {line}")
        self._traceback = []
        if status is None:
            if self.stopped:
                raise KeyboardInterrupt
            self.went_on |= self.fault is not None
            say(f"▸ {name}")
        elif status == "FAILURE":
            say(f"✗ {name} failed")


Runner = tuple[kfp_local.SubprocessRunner | DockerRunner, Callable[[], None]]  # and what ends its running steps


@contextmanager
def stoppable(transcript: Transcript, end_steps: Callable[[], None]) -> Iterator[None]:
    """Let each signal to stop that is not ignored interrupt a pipeline as Ctrl-C does. The running steps end, too.

    A terminal sends its signals to all processes. SIGTERM is passed on if all of our group are surely ours.
    `end_steps` ends the steps that are not our processes: containers.
    """
    leads = os.getpgrp() == os.getpid()
    wanted = [number for number in STOPS if leads or number != signal.SIGTERM]
    before = {number: found for number in wanted if (found := signal.getsignal(number)) is not signal.SIG_IGN}

    def stop(number: int, frame: Any) -> None:
        transcript.stopped = True
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
        if number == signal.SIGTERM:
            os.killpg(0, number)
        end_steps()
        raise KeyboardInterrupt(number)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


PASSED_ON = (THREADS, VISIBLE, *ADDRESSES, *S3_KEYS)
FILES = {"TLM_ELASTICSEARCH_API_KEY_FILE": "api-key", "TLM_ELASTICSEARCH_CA_FILE": "ca.crt"}
LABEL = "tlm.run"


@contextmanager
def hardened_runner(outputs: Path, network: str, gpus: bool) -> Iterator[Runner]:
    """Yield a runner whose containers can write to `outputs` and /tmp only; it removes remaining containers at the end.

    They run as the calling user, or as user 65532 if that is root; `outputs` then belongs to that user. With `gpus`
    they see all GPUs, and steps that need some lock them in `outputs`.

    Raises:
        InputError: No Docker daemon answers, or it has no such network.
    """
    name = uuid.uuid4().hex
    with closing(_daemon()) as daemon:
        if not daemon.networks.list(names=[network]):
            raise InputError(f"Docker has no network '{network}'; `docker network ls` lists them")
        make_folder(outputs)

        def remove() -> None:
            for one in daemon.containers.list(all=True, filters={"label": f"{LABEL}={name}"}, ignore_removed=True):
                with suppress(APIError):  # Docker is removing it already
                    one.remove(force=True)

        try:
            yield DockerRunner(**hardened(outputs, network, gpus), labels={LABEL: name}), remove
        finally:
            remove()


def hardened(outputs: Path, network: str, gpus: bool) -> dict[str, Any]:
    """The options of `hardened_runner`'s containers."""
    uid, gid = os.getuid() or USER, os.getgid() or USER
    if os.getuid() == 0:
        os.chown(outputs, uid, gid)
    environment = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    return {
        "cap_drop": ["ALL"],
        "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])] if gpus else [],
        "environment": environment | {LOCKS: str(outputs / "gpus")},
        "group_add": [group for group in os.getgroups() if group == outputs.stat().st_gid],  # of colleagues' folders
        "mounts": [_secret(name) for name in FILES if os.environ.get(name)],
        "network": network,
        "read_only": True,
        "security_opt": ["no-new-privileges"],
        "shm_size": "1g",
        "tmpfs": {"/tmp": "mode=1777"},
        "user": f"{uid}:{gid}",
    }


def _daemon() -> docker.DockerClient:
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise InputError(f"no Docker daemon answers ({error}); start it, or run without --docker") from None
    return client


def _secret(variable: str) -> Mount:
    path = Path(os.environ[variable])
    if not path.is_file():
        raise InputError(f"{variable} is '{path}', which is no file")
    return Mount(f"{ELASTICSEARCH_FOLDER}/{FILES[variable]}", str(path.absolute()), type="bind", read_only=True)


AT_ONCE = 2  # iterations of a ParallelFor that kfp.local runs side by side
OUTPUTS = Path("local_outputs")
AGAIN = "fix what it says, then repeat the command: finished steps are not repeated"


def run_pipeline(
    parameters: dict[str, Any], images: Path | None, network: str, name: str, machines: Parallelism
) -> None:
    """Run a pipeline; print the table of its report and where that is, or where the answers of `predict` are.

    A repeated call resumes a failed run.

    Args:
        parameters: Values of pipeline parameters; index and store default to local ones, the store to TLM_ROOT.
        images: File with references of the images; with it, steps run in containers, and all data are on S3.
        network: The Docker network of the containers.
        name: Which pipeline.
        machines: How many pods share the work of a step.

    Raises:
        InputError: A pipeline without containers has no corpus or task, or PyTorch is missing, or a step failed
            because of its input.
        Interrupted: A step failed otherwise; the same command resumes it.
    """
    needs_torch = name not in ("shallow", "predict") or parameters.get("run_published")
    if needs_torch and not images and find_spec("torch") is None:  # before work for it
        raise InputError(NO_TORCH)
    os.environ[THREADS] = str(given_threads() or max(1, cores() // AT_ONCE))
    pipeline, outputs = build(name, machines), OUTPUTS.absolute()
    for _, task in tasks_in(pipeline):
        task.ClearField("retry_policy")  # for lost pods; kfp.local would wait a minute for two tries
    os.environ.setdefault(LOCKS, str(outputs / "gpus"))
    defaults = {"index_engine": "embedded", "store_root": named_root(None) or DEFAULT_ROOT}
    inputs = pipeline.component_spec.inputs
    values = {name: value for name, value in defaults.items() if name in inputs} | parameters
    for place in ("corpus_paths", "task_path", "task_paths"):  # their defaults are on a cluster's S3
        if place in inputs and place not in values and not images:
            raise InputError(f"parameter '{place}' is missing; give it with --set {place}=… or in a file for --params")
    running: AbstractContextManager[Runner] = nullcontext((kfp_local.SubprocessRunner(use_venv=False), lambda: None))
    if images:
        use_images(pipeline, images)
        outputs /= "containers"
        check_reachable(values, "containers", "s3://")
        running = hardened_runner(outputs, network, values.get("train_gpus", "0") != "0")
    with running as (runner, end_steps):
        kfp_local.init(runner=runner, pipeline_root=str(outputs))
        made = _run_pipeline(pipeline, values, end_steps)
    if name != "predict":
        _print_report(made)
    sys.stdout.write(f"{made}\n")


def _print_report(uri: str) -> None:
    artifact = Artifact.open(uri, "report")
    if sys.stdout.isatty() and "task" in (contents := artifact.json("report.json")):  # not on several tasks
        from tlm.evaluation.report.page import brief  # loads matplotlib, which takes a while

        sys.stdout.write(f"\n{terminal(brief(contents))}\n\n")
    else:
        _print_markdown(artifact)
    with suppress(InputError):  # a report on several tasks, or on imported predictions
        sys.stdout.write(f"Model: {trained(uri).uri}\n")
    sys.stdout.write(f"Report: {artifact.path('report.html')}\n")


def _print_markdown(artifact: Artifact) -> None:
    headline, results, *others = artifact.path("report.md").read_text(encoding="utf-8").split("\n## ")
    results = results.partition("\n### ")[0]  # the table of all scores is in the pages
    checks = [section for section in others if section.startswith("Checks\n")]
    sys.stdout.write("\n" + "\n## ".join([headline, results, *checks]) + "\n")


def _run_pipeline(pipeline: BaseComponent, values: dict[str, Any], end_steps: Callable[[], None]) -> str:
    """Return what the pipeline returns. Raises as `run_pipeline` does."""
    warnings.filterwarnings("ignore", message=".*custom or non-Python base image")
    warnings.filterwarnings("ignore", message=".*have no effect in the current local runner")
    made, file = "", OUTPUTS.absolute() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    make_folder(file.parent)
    with file.open("w", encoding="utf-8", buffering=1) as log:
        transcript = Transcript(log)
        kept = local_logger_context()  # parallel steps of kfp.local may leave a handler, which would outlive the log
        with redirect_stdout(transcript), kept, suppress(RuntimeError), stoppable(transcript, end_steps):
            made = str(pipeline(**values).output)
    kind, sentence = transcript.fault or ("", "")
    if kind or not made:  # if kfp.local cannot get a container's exit code, it takes it for a success
        above = "its error is shown above" if transcript.shown else "it ended without an error, perhaps killed"
        sentence = sentence if transcript.went_on else above
        failed = InputError if issubclass(getattr(errors, kind, Interrupted), InputError) else Interrupted
        raise failed(f"a step failed: {sentence} (all output is in {file}); {AGAIN}")
    return made
