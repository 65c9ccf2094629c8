"""A cluster with Kubeflow Pipelines: runs of the pipeline on it, the pods they work in, and its servers taken away.

The environment is that of k8s/check/run.sh: KF_PIPELINES_ENDPOINT, AWS_…, BUCKET, IMAGES, PARAMETERS, SERVICE_ACCOUNT.
Beside it, kubectl reaches the cluster, whose runs are in NAMESPACE (kubeflow by default), and OUTAGE is the command
that ends a server and starts it again (k8s/check/outage.sh by default).
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from k8s.check.state import contents
from tests.faults.row import HOME

TIMEOUT = 3600  # seconds for a run
PIPELINES = (sys.executable, "-m", "pipelines.run")
SERVERS = ("elasticsearch", "s3", "database", "api", "argo")
_NODE = "workflows.argoproj.io/node-name"
_VARYING = "report/"  # tells times
_OTHERS = "[p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]"
_KILL = f"import os\nfor p in {_OTHERS}: os.kill(int(p), 9)"
# The step waits until memory is full, and then the kernel ends the process with the highest score: the step. Those that
# fill the memory are many and small, so that none of them has a higher one.
_FILL = f"""import os, signal, time
for p in {_OTHERS}:
    if 'python' in os.readlink('/proc/' + p + '/exe'):
        os.kill(int(p), signal.SIGSTOP)
        open('/proc/' + p + '/oom_score_adj', 'w').write('1000')
while os.fork(): time.sleep(0.01)
held = b'x' * (20 << 20)
signal.pause()
"""


class Pod(NamedTuple):
    """A pod that works: its name, what it works on (with the iteration of a loop), and whether that is a driver."""

    name: str
    step: str
    of_driver: bool


def missing() -> str:
    """What is not there, so that nothing can be tried; "" if all is."""
    if not os.environ.get("KF_PIPELINES_ENDPOINT"):
        return "KF_PIPELINES_ENDPOINT is not set: there is no Kubeflow Pipelines to try"
    if not shutil.which("kubectl"):
        return "kubectl is not installed"
    images = Path(os.environ.get("IMAGES", "build/images.json"))
    return "" if images.is_file() else f"{images} is missing; run: make images, or set IMAGES"


def bucket() -> str:
    """The bucket for data and results."""
    return os.environ.get("BUCKET", "tlm")


class Undertaking:
    """A run on toy data in a root of its own, and the process that waits for it.

    Attributes:
        root: The root; another run's can be given.
    """

    def __init__(self, name: str, folder: str, *options: str, root: str = "") -> None:
        """Submit it."""
        self.name, self.root = name, root or fresh_root(name)
        self._out, self._err = Path(folder, f"{name}.out"), Path(folder, f"{name}.err")
        command = [*PIPELINES, "submit", "--wait", "--timeout", f"{TIMEOUT}", "--run-name", f"chaos {name}"]
        command += [*options, *images(), *given(self.root)]
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(command, cwd=HOME, stdout=out, stderr=err)

    @property
    def identities(self) -> list[str]:
        """The ID of the run, and of those that followed it."""
        return self._out.read_text().split()[::2]  # each with a link

    def working(self) -> Iterator[Pod]:
        """The pods that work, again and again until the run has ended."""
        while self._process.poll() is None:
            for identity in self.identities:
                yield from pods(identity)
            time.sleep(0.5)

    def failed(self) -> str:
        """Why the run did not succeed, once it has ended; "" if it did."""
        return f"{self.name}: {self._err.read_text()[-2000:]}" if self._process.wait() else ""

    def wrong(self, expected: dict[str, str]) -> str:
        """What is wrong with the run once it has ended; "" if it succeeded with the expected contents."""
        return self.failed() or difference(self.name, self.root, expected)


def fresh_root(name: str) -> str:
    """A root for results that no other run has."""
    return f"s3://{bucket()}/chaos-{os.getpid()}/{name}"


def client() -> Any:
    """KFP's own client."""
    import kfp

    return kfp.Client(host=os.environ["KF_PIPELINES_ENDPOINT"])


def images() -> list[str]:
    """The option that names the images."""
    return ["--images", os.environ.get("IMAGES", "build/images.json")]


def undisturbed(folder: str) -> dict[str, str]:
    """The results of a run that nobody disturbs. Raises RuntimeError if it fails."""
    run = Undertaking("undisturbed", folder)
    if why := run.failed():
        raise RuntimeError(why)
    return results(run.root)


def given(root: str) -> list[str]:
    """Options of `submit`: the toy data, a root for results, and what the environment names."""
    changes = (part for name, value in places(root).items() for part in ("--set", f"{name}={value}"))
    return ["--params", parameters(), "--service-account", service_account(), *changes]


def places(root: str) -> dict[str, str]:
    """Parameters: where the toy data are, and a root for results."""
    return {"corpus_paths": f"s3://{bucket()}/corpus/", "task_path": f"s3://{bucket()}/task/", "store_root": root}


def parameters() -> str:
    """The file with the other parameters."""
    return os.environ.get("PARAMETERS", "k8s/check/params.yaml")


def service_account() -> str:
    """The service account of the pods."""
    return os.environ.get("SERVICE_ACCOUNT", "tlm-runner")


def every_minute(root: str, folder: str) -> str:
    """Let Kubeflow start a run each minute, two at once; returns the ID of the recurring run."""
    file = f"{folder}/every-minute.yaml"
    pipelines("compile", "-o", file, *images())
    made = client().create_recurring_run(
        client().create_experiment("tlm").experiment_id,
        "chaos",
        cron_expression="0 * * * * *",
        max_concurrency=2,
        no_catchup=True,
        pipeline_package_path=file,
        params=yaml.safe_load((HOME / parameters()).read_text()) | places(root),
        service_account=service_account(),
    )
    return str(made.recurring_run_id)


def results(root: str) -> dict[str, str]:
    """The contents of all artifacts that can be compared."""
    return {name: content for name, content in contents(root).items() if not name.startswith(_VARYING)}


def difference(name: str, root: str, expected: dict[str, str]) -> str:
    """Which artifacts under `root` are others than expected; "" if all are as expected."""
    found = results(root)
    names = sorted(one for one in found.keys() | expected.keys() if found.get(one) != expected.get(one))
    return f"{name}: other contents: {', '.join(names)}" if names else ""


def pods(identity: str) -> list[Pod]:
    """The pods of a run that work at the moment."""
    found = json.loads(kubectl("get", "pods", "-l", f"pipeline/runid={identity}", "-o", "json") or '{"items": []}')
    return [
        _pod(one["metadata"])
        for one in found["items"]
        if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
    ]


def _pod(metadata: dict) -> Pod:  # type: ignore[type-arg]
    parts = [part for part in metadata["annotations"][_NODE].split(".")[1:] if not part.startswith("executor")]
    name = parts[-1].partition("(")[0]
    return Pod(metadata["name"], ".".join([*parts[:-1], name]), name.endswith("-driver"))


def delete_at_once(pod: Pod) -> None:
    """As when its node is gone."""
    kubectl("delete", "pod", pod.name, "--wait=false", "--grace-period=0", "--force")


def tell_to_end(pod: Pod) -> None:
    """As when its node is drained."""
    kubectl("delete", "pod", pod.name, "--wait=false")


def kill(pod: Pod) -> None:
    """SIGKILL to all processes of its container but the first."""
    kubectl("exec", pod.name, "-c", "main", "--", "python", "-c", _KILL)


def fill_memory(pod: Pod) -> None:
    """Use its memory up, so that the kernel ends the step."""
    kubectl("exec", pod.name, "-c", "main", "--", "python", "-c", _FILL)


def take_away(server: str, seconds: float) -> None:
    """End a server, and start it again after so many seconds.

    Raises CalledProcessError if OUTAGE cannot do that.
    """
    outage = os.environ.get("OUTAGE", f"{HOME / 'k8s/check/outage.sh'}")
    subprocess.run([outage, "stop", server], check=True, capture_output=True, text=True)
    try:
        time.sleep(seconds)
    finally:
        subprocess.run([outage, "start", server], check=True, capture_output=True, text=True)


def pipelines(*arguments: str) -> str:
    """What a command of `pipelines.run` prints. Raises CalledProcessError if it fails."""
    command: Sequence[str] = [*PIPELINES, *arguments]
    return subprocess.run(command, check=True, cwd=HOME, stdout=subprocess.PIPE, text=True).stdout


def kubectl(*arguments: str) -> str:
    """What kubectl prints; a pod that has ended meanwhile is no error."""
    command = ["kubectl", "-n", os.environ.get("NAMESPACE", "kubeflow"), *arguments]
    return subprocess.run(command, capture_output=True, text=True).stdout
