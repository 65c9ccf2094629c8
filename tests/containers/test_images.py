"""What the images are: small, without tools, for any user, read-only."""

import re

import docker
import pytest
from packaging.utils import canonicalize_name

from tests.containers.conftest import ROOT, InContainer
from tlm import __version__

KINDS = ("data", "train", "serve")
OF_STEPS = ("data", "train")
MEGABYTE = 1_000_000
FIND = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
PACKAGES = "import importlib.metadata as m; print(*(f'{d.metadata[\"Name\"]}=={d.version}' for d in m.distributions()))"
IMPORT_ALL = """
import importlib, pkgutil, tlm
# Of the extras onnx, serve and bom, which this image lacks:
others = ("tlm.serving.convert", "tlm.serving.app", "tlm.evaluation.origins.bom")
for module in pkgutil.walk_packages(tlm.__path__, "tlm."):
    if not module.name.endswith("__main__") and module.name not in others:
        importlib.import_module(module.name)
"""
IMPORT_SERVER = """
import importlib, pkgutil, tlm.evaluation.predict as predict, tlm.shallow as shallow
for name in ("serve", "app", "protocol"):
    importlib.import_module(f"tlm.serving.{name}")
for package in (predict, shallow):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name != "tlm.evaluation.predict.classifier":  # of torch
            importlib.import_module(module.name)
"""
ALL_REDUCE = """
import sys, torch, torch.distributed as group
group.init_process_group("gloo")
one = torch.ones(1)
group.all_reduce(one)
sys.stdout.write(f"{int(one)}\\n")
group.destroy_process_group()  # without it, gloo's threads may abort the process at its exit
"""


@pytest.mark.parametrize(("kind", "megabytes"), [("data", 450), ("serve", 275)])  # 130 are scipy and scikit-learn
def test_images_without_torch_are_small(
    kind: str, megabytes: int, images: dict[str, str], daemon: docker.DockerClient
) -> None:
    """What they add to their base; everything since the first of our own instructions."""
    added = 0
    for layer in daemon.api.history(images[kind]):
        added += layer["Size"]
        if "ensurepip" in layer["CreatedBy"]:
            break
    else:
        pytest.fail("where the base ends is not to be seen in the image's history")
    assert 100 * MEGABYTE < added <= megabytes * MEGABYTE


@pytest.mark.parametrize(("kind", "others"), [("data", ()), ("serve", ("pyarrow", "elasticsearch", "kfp"))])
def test_there_is_nothing_that_only_training_needs(
    kind: str, others: tuple[str, ...], in_container: InContainer
) -> None:
    heavy = ("torch", "triton", "nvidia", "transformers", "setuptools", "pip", "pytest", "docker", *others)
    assert in_container(kind, "python3", "-c", FIND, *heavy).stdout.strip() == "[]"


@pytest.mark.parametrize("kind", KINDS)
def test_packages_are_those_of_the_lock(kind: str, in_container: InContainer) -> None:
    """And nothing beside them but tlm itself and kfp's executor; torch may be a build of its own of that version."""
    installed = dict(line.split("==") for line in in_container(kind, "python3", "-c", PACKAGES).stdout.split())
    found = {canonicalize_name(name): version.partition("+")[0] for name, version in installed.items()}
    locked = {"tlm-kubeflow": __version__, "kfp": pins("requirements.txt")["kfp"], **pins(f"requirements-{kind}.txt")}
    assert len(found) > 20
    assert {name: version for name, version in found.items() if locked.get(name) != version} == {}
    assert ("kfp" in found) == (kind in OF_STEPS)


def pins(lock: str) -> dict[str, str]:
    """Versions by name."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_train_has_what_training_needs(images: dict[str, str], in_container: InContainer) -> None:
    in_container("train", "python3", "-c", IMPORT_ALL)
    assert in_container("train", "python3", "-c", FIND, "pip", "pytest", "docker").stdout.strip() == "[]"
    if not images["train"].partition("@")[0].endswith("-cpu"):
        code = "import torch; print(torch.version.cuda is not None, torch.distributed.is_nccl_available())"
        assert in_container("train", "python3", "-c", code).stdout.split() == ["True", "True"]


def test_serve_has_what_serving_needs(in_container: InContainer) -> None:
    in_container("serve", "python3", "-c", IMPORT_SERVER)


@pytest.mark.parametrize("kind", ["data", "serve"])
def test_numpy_and_scipy_start_no_threads(kind: str, in_container: InContainer) -> None:
    """A thread for each core of the node is more than a container may have."""
    code = "import scipy.linalg, os; print(len(os.listdir('/proc/self/task')))"
    assert in_container(kind, "python3", "-c", code).stdout.strip() == "1"


def test_torchrun_runs_two_processes(in_container: InContainer) -> None:
    command = (
        "torchrun",
        "--standalone",
        "--local-addr=127.0.0.1",
        "--nproc-per-node=2",
        "--no-python",
        "python3",
        "-c",
        ALL_REDUCE,
    )
    assert in_container("train", *command).stdout.split() == ["2", "2"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_answers(kind: str, in_container: InContainer) -> None:
    assert in_container(kind, "tlm", "--version").stdout.strip() == __version__
    told_nothing = in_container(kind).stdout  # --help
    assert ("retrieve" if kind in OF_STEPS else "Serve a model over HTTP") in told_nothing


@pytest.mark.parametrize("kind", OF_STEPS)
def test_the_executor_of_kubeflow_is_there(kind: str, in_container: InContainer) -> None:
    executor = "_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --help"
    assert "--function_to_execute" in in_container(kind, "sh", "-ec", executor).stdout


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", ["", "1000660000:0", "1234:1234"])
def test_any_user_can_work(kind: str, user: str, in_container: InContainer) -> None:
    code = (
        "import getpass, os, pathlib, tempfile\n"
        "for folder in (pathlib.Path.home(), pathlib.Path(os.environ['HF_HOME']), pathlib.Path.cwd()):\n"
        "    folder.mkdir(parents=True, exist_ok=True)\n"
        "    tempfile.NamedTemporaryFile(dir=folder)\n"
        "print(os.getuid(), getpass.getuser())"
    )
    options = (f"--user={user}",) if user else ()
    said = in_container(kind, "python3", "-c", code, options=options).stdout.split()
    assert said == [(user or "65532:65532").partition(":")[0], "tlm"]
    in_container(kind, "tlm", "show", "pocket", options=options)


@pytest.mark.parametrize("kind", KINDS)
def test_no_user_can_write_to_the_programs(kind: str, in_container: InContainer) -> None:
    """Not even where the file system is not read-only."""
    code = (
        "import os\n"
        "print([folder for folder, _, files in os.walk('/opt/tlm') if os.access(folder, os.W_OK)\n"
        "       or any(os.access(os.path.join(folder, name), os.W_OK) for name in files)])"
    )
    done = in_container(kind, "python3", "-c", code, options=("--read-only=false",))
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_no_tools(kind: str, in_container: InContainer) -> None:
    look = "for tool in pip pip3 gcc cc g++ make curl wget git; do command -v $tool || true; done"
    assert in_container(kind, "sh", "-c", look).stdout == ""


@pytest.mark.parametrize("kind", KINDS)
def test_no_python_can_install(kind: str, in_container: InContainer) -> None:
    base = in_container(kind, "python3", "-c", "import sys; print(sys._base_executable)").stdout.strip()
    for python in ("python3", base):
        for module in ("pip", "ensurepip"):
            in_container(kind, python, "-m", module, "--version", code=1)


@pytest.mark.parametrize("kind", KINDS)
def test_no_build_secret_is_left(kind: str, images: dict[str, str], daemon: docker.DockerClient, in_container) -> None:  # type: ignore[no-untyped-def]
    in_container(kind, "sh", "-c", "! test -e /etc/pip.conf && ! test -e /run/secrets")
    environment = daemon.images.get(images[kind]).attrs["Config"]["Env"]
    assert not [variable for variable in environment if "PIP" in variable or "://" in variable]


@pytest.mark.parametrize("kind", KINDS)
def test_labels(kind: str, images: dict[str, str], daemon: docker.DockerClient) -> None:
    config = daemon.images.get(images[kind]).attrs["Config"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["title"] == f"tlm-{kind}"
    assert labels["version"] == __version__
    assert labels["revision"] not in ("", "unknown")
    assert {"source", "licenses", "base.name"} <= labels.keys()
    if "@" not in images[kind]:
        assert images[kind].rpartition(":")[2].removesuffix("-cpu") == f"{__version__}-{labels['revision']}"
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == (None if kind in OF_STEPS else ["tlm", "serve"])  # Kubeflow gives a step's command
