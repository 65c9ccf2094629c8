"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Params = Annotated[
    Path | None, typer.Option(metavar="FILE", help="YAML file with parameters; samples are in pipelines/params.")
]
Changes = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="One parameter; may be repeated.")]
Images = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with the images to run in, as `make images` writes it.")
]
File = Annotated[Path | None, typer.Option(metavar="FILE", help="A compiled pipeline; without it, one of this code.")]
Version = Annotated[
    str, typer.Option(metavar="NAME", help="Name of the pipeline's version.  [default: version and git revision]")
]

Host = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="KF_PIPELINES_ENDPOINT",
        help="Address of Kubeflow Pipelines, http://… or https://…; inside a cluster it is found.",
    ),
]
UiHost = Annotated[
    str, typer.Option(metavar="URL", envvar="KF_PIPELINES_UI_ENDPOINT", help="Address for links, if it is another.")
]
Namespace = Annotated[str, typer.Option(metavar="NAME", help="Whose runs they are, where Kubeflow has several users.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="KF_PIPELINES_SA_TOKEN_PATH",
        help="File with a bearer token, read anew for each call; else the variable KFP_EXISTING_TOKEN is the token.",
    ),
]
CaFile = Annotated[
    Path | None, typer.Option(metavar="FILE", exists=True, help="Certificates to trust, for an https:// of one's own.")
]
CallTimeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds to wait for one answer.")]

Experiment = Annotated[
    str,
    typer.Option(
        metavar="NAME", envvar="KF_PIPELINES_DEFAULT_EXPERIMENT_NAME", help="Experiment; made if there is none."
    ),
]
RunName = Annotated[str, typer.Option(metavar="NAME", help="Name of the run.  [default: the pipeline's and the time]")]
PipelineRoot = Annotated[
    str, typer.Option(metavar="URI", help="Where Kubeflow keeps its own artifacts, such as s3://bucket/kfp.")
]
ServiceAccount = Annotated[str, typer.Option(metavar="NAME", help="Kubernetes service account of the pods.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Seconds to wait for the run's end.")]
PollSeconds = Annotated[float, typer.Option(metavar="SECONDS", min=0.01, help="Seconds between two looks at the run.")]
_WHICH = "tlm; ablation: a table of the paper; multitask: one encoder for several tasks."
Pipeline = Annotated[str, typer.Option(metavar="NAME", help=_WHICH)]
OfThisCode = Annotated[
    str, typer.Option("--pipeline", metavar="NAME", help=f"Without --file: {_WHICH}  [default: tlm]")
]
