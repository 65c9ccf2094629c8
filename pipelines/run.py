"""Run the pipeline here, or on Kubeflow Pipelines: ``python -m pipelines.run COMMAND --help`` tells more."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.options import (
    CaFile,
    CallTimeout,
    Changes,
    Experiment,
    File,
    Host,
    Images,
    Namespace,
    OfThisCode,
    Params,
    Pipeline,
    PipelineRoot,
    PollSeconds,
    RunName,
    ServiceAccount,
    Timeout,
    TokenFile,
    UiHost,
    Version,
)
from tlm.errors import InputError, TlmError

if TYPE_CHECKING:
    from pipelines.client.api import Api

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def local(
    params: Params = None,
    changes: Changes = [],  # noqa: B006  # typer copies it
    docker: Annotated[bool, typer.Option("--docker", help="Run each step in a container; all data are on S3.")] = False,
    images: Images = None,
    network: Annotated[str, typer.Option(metavar="NAME", help="Docker network of the containers.")] = "bridge",
    pipeline: Pipeline = "tlm",
) -> None:
    """Run the pipeline on this machine. Finished steps of an earlier run are found and not repeated."""
    from pipelines.local import runner as local_run
    from pipelines.parameters import of_this_code, read_parameters

    built = images or (Path("build/images.json") if docker else None)
    local_run.run(read_parameters(params, changes, of_this_code(pipeline)), built, network, pipeline)


@app.command()
def compile(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File to write, .yaml.")],
    images: Images = None,
    kubernetes_manifests: Annotated[
        bool, typer.Option("--kubernetes-manifests", help="Write Pipeline and PipelineVersion resources, for GitOps.")
    ] = False,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of these resources.")] = "",
    version: Version = "",
    nodes: Annotated[
        int, typer.Option(min=1, help="Machines for each stage 1; more than one needs Kubeflow Trainer.")
    ] = 1,
    pipeline: Pipeline = "tlm",
) -> None:
    """Compile the pipeline into a file for Kubeflow. The UI and the API take it; the same code gives the same bytes."""
    from pipelines.compile import compiled

    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output {output}: must end in .yaml")
    resources = compiled.Resources(version, namespace) if kubernetes_manifests else None
    text = compiled.compile_text(images, resources, pipeline, nodes)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {output}: cannot be written ({error}); name another file") from None
    compiled.warn_of_images(images)


@app.command()
def lint(file: Annotated[Path, typer.Argument(metavar="FILE", help="A compiled pipeline.")]) -> None:
    """Find faults of a compiled pipeline. Each is told in a line with what to do; the exit code is then 2."""
    from pipelines.compile.compiled import read_compiled
    from pipelines.compile.lint import lint

    findings = lint(read_compiled(file))
    for finding in findings:
        print(finding.line(file))
    if findings:
        raise typer.Exit(2)


@app.command()
def submit(
    params: Params = None,
    changes: Changes = [],  # noqa: B006
    file: File = None,
    pipeline: OfThisCode = "",
    images: Images = None,
    host: Host = "",
    ui_host: UiHost = "",
    namespace: Namespace = "",
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    call_timeout: CallTimeout = 30.0,
    experiment: Experiment = "tlm",
    run_name: RunName = "",
    pipeline_root: PipelineRoot = "",
    service_account: ServiceAccount = "",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Turn Kubeflow's cache off in every task (in ours it is).")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the run has ended.")] = False,
    timeout: Timeout = 86_400.0,
    poll_seconds: PollSeconds = 10.0,
) -> None:
    """Start a run on Kubeflow. Its ID and its link are printed.

    With --wait: exit code 0 if it succeeded; 2 if it failed or was cancelled; 3 if it goes on, but the time is over or
    the API is lost.
    """
    from pipelines import parameters
    from pipelines.client import submit as client
    from pipelines.compile import compiled

    chosen = compiled.parse(compiled.text_of(file, images, pipeline), str(file or "pipeline"))
    values = parameters.read_parameters(params, changes, parameters.declared(chosen.spec))
    parameters.check_reachable(values)
    api = _connect(host, ui_host, namespace, token_file, ca_file, call_timeout)
    order = client.Order(values, experiment, run_name, pipeline_root, service_account)
    run_id = client.submit(api, client.without_cache(chosen) if no_cache else chosen, order)
    _print(run_id, api.link(f"runs/details/{run_id}"))
    if wait:
        from pipelines.client.wait import wait as wait_for

        wait_for(api, run_id, timeout=timeout, every=poll_seconds)


@app.command()
def wait(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="ID of the run.")],
    host: Host = "",
    ui_host: UiHost = "",
    namespace: Namespace = "",
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    call_timeout: CallTimeout = 30.0,
    timeout: Timeout = 86_400.0,
    poll_seconds: PollSeconds = 10.0,
) -> None:
    """Wait until a run has ended. The exit codes are those of `submit --wait`."""
    from pipelines.client.wait import wait as wait_for

    api = _connect(host, ui_host, namespace, token_file, ca_file, call_timeout)
    api.call(api.runs.run_service_get_run, run_id)  # a wrong ID or token shows at once
    wait_for(api, run_id, timeout=timeout, every=poll_seconds)


@app.command()
def upload(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the pipeline in the UI.  [default: what it calls itself]")
    ] = "",
    version: Version = "",
    file: File = None,
    pipeline: OfThisCode = "",
    images: Images = None,
    host: Host = "",
    ui_host: UiHost = "",
    namespace: Namespace = "",
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    call_timeout: CallTimeout = 30.0,
) -> None:
    """Put the pipeline into the UI's list. If it is there, as a new version; its ID and its link are printed."""
    from pipelines.client import upload as client
    from pipelines.compile import compiled
    from pipelines.compile.version import version_name

    text, version = compiled.text_of(file, images, pipeline), version or version_name()
    called = compiled.parse(text, str(file or "pipeline")).name
    api = _connect(host, ui_host, namespace, token_file, ca_file, call_timeout)
    made = client.upload(api, text, name=name or called, version=version)
    _print(made.version_id, api.link(f"pipelines/details/{made.pipeline_id}/version/{made.version_id}"))


@app.command()
def schedule(
    cron: Annotated[
        str, typer.Option(metavar="LINE", help="When: second, minute, hour, day, month, weekday, as in '0 0 3 * * 1'.")
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the recurring run; one of this name is replaced.")
    ] = "tlm",
    pipeline: Annotated[str, typer.Option(metavar="NAME", help="Name of the uploaded pipeline.")] = "tlm",
    version: Version = "",
    params: Params = None,
    changes: Changes = [],  # noqa: B006
    at_once: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=10, help="Runs that may go on side by side.")
    ] = 1,
    host: Host = "",
    ui_host: UiHost = "",
    namespace: Namespace = "",
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    call_timeout: CallTimeout = 30.0,
    experiment: Experiment = "tlm",
    pipeline_root: PipelineRoot = "",
    service_account: ServiceAccount = "",
) -> None:
    """Let Kubeflow start runs of an uploaded version. The recurring run's ID and its link are printed.

    The times are those of the installation's time zone, UTC if nobody set another; missed ones are not made up for.
    """
    from pipelines.client import cron as lines
    from pipelines.client import schedule as client
    from pipelines.client.submit import Order
    from pipelines.compile.version import version_name

    when, version = lines.checked(cron), version or version_name()
    if when != cron:
        print(f"read as '{when}'", file=sys.stderr)
    api = _connect(host, ui_host, namespace, token_file, ca_file, call_timeout)
    uploaded, values = client.prepare(api, pipeline, version, params, changes)
    order = Order(values, experiment, name, pipeline_root, service_account)
    job = client.schedule(api, uploaded, order, when, at_once=at_once)
    _print(job, api.link(f"recurringrun/details/{job}"))


def _connect(
    host: str, ui_host: str, namespace: str, token_file: Path | None, ca_file: Path | None, call_timeout: float
) -> "Api":
    from pipelines.client import address
    from pipelines.client.api import Api

    api = Api(address.find(host, ui_host), address.Token(token_file), ca_file=ca_file, call_timeout=call_timeout)
    api.settle(namespace)
    return api


def _print(identity: str, link: str) -> None:
    print(identity, link, sep="\n", flush=True)


def main() -> None:
    """Run the program; what people did wrong is one sentence and exit code 2."""
    try:
        app()
    except TlmError as error:
        print(f"pipelines.run: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
