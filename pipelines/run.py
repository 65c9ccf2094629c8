"""Run a pipeline here, or on Kubeflow Pipelines: `python -m pipelines.run COMMAND --help` has the details."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pipelines.form import Connection, Parallelism, Parameters, PipelineFile, RunOptions, Waiting
from tlm.artifacts.stores.local import here, write_whole
from tlm.cli.command import PLAIN, command
from tlm.cli.main import fail, for_users, ready_streams
from tlm.errors import STOPS, InputError
from tlm.progress import say

app = typer.Typer(help=__doc__, **PLAIN)


def add(function: Callable[..., None]) -> None:
    """Make `function` a command of the program; its docstring is the help."""
    app.command(function.__name__)(command(function))


@add
def local(
    *,
    parameters: Parameters,
    docker: Annotated[bool, typer.Option("--docker")] = False,
    images: Path | None = None,
    network: str = "bridge",
    pipeline: str = "tlm",
    data_pods: Annotated[int, typer.Option(min=1, max=64)] = 1,
) -> None:
    """Run the pipeline on this machine. Finished steps of an earlier run are found and not repeated.

    Args:
        docker: Run each step in a container; all data are on S3.
        images: File with the images to run in, as `make images` writes it; with --docker by default build/images.json.
        network: Docker network of the containers.
        pipeline: tlm; shallow: no neural network, in minutes; predict: label new files; rerank: text by influence;
            ablation: a table of the paper; multitask: several tasks.
        data_pods: Steps that load the corpus together, two at a time, as they do on a cluster.
    """
    from pipelines.compiled import of_this_code, read_parameters
    from pipelines.local import run_pipeline

    built = images or (Path("build/images.json") if docker else None)
    given = read_parameters(**vars(parameters), known=of_this_code(pipeline))
    try:
        run_pipeline(given, built, network, pipeline, Parallelism(data_pods=data_pods))
    except KeyboardInterrupt as stop:
        error = STOPS[stop.args[0] if stop.args else signal.SIGINT]
        raise error(f"stopped by {error.by}; repeat the command to resume: finished steps are not repeated") from None


@add
def compile(
    *,
    output: Annotated[Path, typer.Option("-o", "--output")],
    machines: Parallelism,
    images: Path | None = None,
    kubernetes_manifests: Annotated[bool, typer.Option("--kubernetes-manifests")] = False,
    namespace: str = "",
    version: str = "",
    pipeline: str = "tlm",
    kfp_2_15: Annotated[bool, typer.Option("--kfp-2-15")] = False,
) -> None:
    """Compile the pipeline into a file for Kubeflow's UI and API; the same code gives the same bytes.

    Args:
        output: File to write, .yaml.
        images: File with the images to run in, as `make images` writes it.
        kubernetes_manifests: Write Pipeline and PipelineVersion resources, for GitOps.
        namespace: Namespace of these resources; by default that of kubectl.
        version: Name of the pipeline's version.  [default: version and git revision]
        pipeline: tlm; shallow: no neural network, in minutes; predict: label new files; rerank: text by influence;
            ablation: a table of the paper; multitask: several tasks.
        kfp_2_15: Write for Kubeflow Pipelines 2.15 (in Kubeflow 1.11): without security contexts and names of loops.
    """
    from pipelines.compiled import compile_text

    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output {output}: must end in .yaml")
    manifests = {"kubernetes_manifests": kubernetes_manifests, "namespace": namespace, "version": version}
    text = compile_text(images, pipeline, machines, kfp_2_15=kfp_2_15, **manifests)
    output = here(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output, text)


@add
def submit(
    *,
    parameters: Parameters,
    source: PipelineFile,
    connection: Connection,
    order: RunOptions,
    waiting: Waiting,
    run_name: str = "",
    no_cache: Annotated[bool, typer.Option("--no-cache")] = False,
    wait: Annotated[bool, typer.Option("--wait")] = False,
    resubmit: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Start a run on Kubeflow and print its ID and its link.

    With --wait: exit code 0 if it succeeded; 2 if it failed or was cancelled; 3 if it was still running when the time
    was up or the API was lost.

    Args:
        run_name: Name of the run.  [default: the pipeline's and the time]
        no_cache: Turn Kubeflow's cache off in every step of the file (our own pipelines do so already).
        wait: Return when the run has ended.
        resubmit: With --wait, how many times to restart a run that failed; its finished steps are not repeated.
    """
    from pipelines.client import Api, submit
    from pipelines.compiled import check_reachable, declared, parse, read_parameters, text_of
    from pipelines.wait import RunFailed, wait_for

    if resubmit and not wait:
        raise InputError("--resubmit goes with --wait: a run is started again when it has been seen to fail")
    chosen = parse(text_of(**vars(source)), source.file)
    given = read_parameters(**vars(parameters), known=declared(chosen.spec))
    check_reachable(given)
    if no_cache:
        chosen.disable_cache()
    api = Api(connection)
    for left in range(resubmit, -1, -1):
        run_id = submit(api, chosen, given, order, run_name)
        print(run_id, api.link(f"runs/details/{run_id}"), sep="\n", flush=True)
        if not wait:
            return
        try:
            return wait_for(api, run_id, **vars(waiting))
        except RunFailed as error:
            if not left:
                raise
            say(f"{error}; starting it again, {left} {'times' if left > 1 else 'time'} left")


@add
def wait(run_id: str, *, connection: Connection, waiting: Waiting) -> None:
    """Wait until a run has ended. The exit codes are those of `submit --wait`.

    Args:
        run_id: ID of the run.
    """
    from pipelines.client import Api
    from pipelines.wait import wait_for

    api = Api(connection)
    api.client.get_run(run_id)  # a wrong ID or token shows at once
    wait_for(api, run_id, **vars(waiting))


@add
def upload(*, source: PipelineFile, connection: Connection, name: str = "", version: str = "") -> None:
    """Put the pipeline into the UI's list, as a new version if it already exists, and print its ID and its link.

    Args:
        name: Name of the pipeline in the UI.  [default: the name in the file]
        version: Name of the pipeline's version.  [default: version and git revision]
    """
    from pipelines.client import Api, upload
    from pipelines.compiled import parse, text_of, version_name

    text, version = text_of(**vars(source)), version or version_name()
    called = parse(text, source.file).name
    api = Api(connection)
    made = upload(api, text, name=name or called, version=version)
    page = f"pipelines/details/{made.pipeline_id}/version/{made.pipeline_version_id}"
    print(made.pipeline_version_id, api.link(page), sep="\n", flush=True)


def main() -> None:
    """Run the program. Errors end it with one sentence on stderr and an exit code, as they end `tlm`."""
    ready_streams()
    try:
        app()
    except (Exception, SystemExit) as error:
        fail(for_users(error), "pipelines.run")


if __name__ == "__main__":
    main()
