"""Faults of a real Kubeflow: every run ends with the contents of a run that nobody disturbed."""

import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from k8s.check import data
from tests.faults import cluster
from tests.faults.cluster import SERVERS, Pod, Undertaking
from tests.faults.row import Row
from tests.faults.tally import tally

LONGEST_WAIT = 4.0  # seconds that a step works before something happens to it
GONE = 15.0  # seconds that a server is away
NODE_GONE = 120.0
RESUBMITTED = 20
PAUSE = 5.0

Strike = Callable[[Pod], None]
POD_FAULTS: dict[str, Strike] = {
    "pod deleted at once": cluster.delete_at_once,
    "pod asked to end": cluster.tell_to_end,
    "process killed": cluster.kill,
    "out of memory": cluster.fill_memory,
}
BY_SUBMIT = ", its run by submit"
OF_KUBEFLOW = ("s3", "database", "api", "argo")  # without them drivers fail, which Argo does not start again


def without(server: str) -> Strike:
    """End a server while a pod works, and start it again."""
    return lambda pod: cluster.take_away(server, GONE)


AWAY = {f"{server} ended and started again{BY_SUBMIT * (server in OF_KUBEFLOW)}": without(server) for server in SERVERS}
IN_EVERY_STEP = POD_FAULTS | AWAY
NOT_RETRIED = "preflight"  # it says at once what is wrong, such as a server that is gone
FOR_GOOD = IN_EVERY_STEP.keys() - {"pod deleted at once"}  # ends a step that is not retried; a deleted pod comes again


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """All faults: one run for each kind that happens in every step; then the node, drivers, and people."""
    return rows_of(NAMES, seed)


def rows_of(names: Sequence[str], seed: int) -> Iterator[Row]:
    """The rows of these names, if there is a cluster."""
    if why := cluster.missing():
        print(f"not tried: {why}", file=sys.stderr)
        return
    chance = random.Random(seed)
    data.main(cluster.bucket())
    with tempfile.TemporaryDirectory() as folder:
        expected = cluster.undisturbed(folder)
        for name in names:
            if name in IN_EVERY_STEP:
                again = ("--resubmit", f"{RESUBMITTED}") if name.endswith(BY_SUBMIT) else ()
                run = Undertaking(re.sub(r"\W+", "-", name), folder, *again)
                struck = strike_steps(run, IN_EVERY_STEP[name], chance, NOT_RETRIED if name in FOR_GOOD else "")
                wrong, number = run.wrong(expected), sum(name in AWAY or replaced for replaced in struck.values())
                if number or wrong:
                    yield tally(f"{name}: in each step of a run", [wrong] * max(1, number))
                else:
                    print(f"not tried: {name}: every step had ended before", file=sys.stderr)
            else:
                yield tally(name, OTHERS[name](folder, expected))


def strike_steps(run: Undertaking, strike: Strike, chance: random.Random, spared: str) -> dict[str, bool]:
    """Let something happen to each step but one, some seconds after it began to work.

    Returns for each of those steps whether its pod was replaced; a pod that had ended just before is not.
    """
    moments: dict[str, float] = {}
    struck: dict[str, set[str]] = {}
    for pod in run.working():
        if pod.step in struck:
            struck[pod.step].add(pod.name)
        if pod.of_driver or pod.step in struck or pod.step.rpartition(".")[2] == spared:
            continue
        moment = moments.setdefault(pod.step, time.monotonic() + chance.random() * LONGEST_WAIT)
        if time.monotonic() >= moment:
            struck[pod.step] = {pod.name}
            strike(pod)
    return {step: len(names) > 1 for step, names in struck.items()}


def node_gone(folder: str, expected: dict[str, str]) -> list[str]:
    """The node's kubelet stops while a step works."""
    run, struck = Undertaking("kubelet", folder), False
    for pod in run.working():
        if not pod.of_driver and not struck:
            struck = True
            try:
                cluster.take_away("kubelet", NODE_GONE)
            except subprocess.CalledProcessError as error:
                return [f"not tried: {error.stderr}"]
    return [run.wrong(expected)]


def drivers(folder: str, expected: dict[str, str]) -> list[str]:
    """Every driver is deleted once, in a run that is started again each time; an outcome for each of them."""
    run, struck = Undertaking("drivers", folder, "--resubmit", f"{RESUBMITTED}"), dict[str, str]()
    for pod in run.working():
        if pod.of_driver and pod.step not in struck:
            cluster.delete_at_once(pod)
            struck[pod.step] = pod.name
    return [run.wrong(expected)] * len(struck)


def both(folder: str, expected: dict[str, str]) -> list[str]:
    """Two runs of the same into the same root."""
    first = Undertaking("first", folder)
    second = Undertaking("second", folder, root=first.root)
    return [first.wrong(expected), second.wrong(expected)]


def retried(folder: str, expected: dict[str, str]) -> list[str]:
    """A run is terminated while a step of training works, and retried as the page does."""
    run = Undertaking("retried", folder)
    next(pod for pod in run.working() if "train" in pod.step and not pod.of_driver)
    (identity,) = run.identities
    client = cluster.client()
    client.terminate_run(identity)
    said = run.failed()
    if "was terminated" not in said:
        return [f"after it was terminated: {said}"]
    client._run_api.run_service_retry_run(identity)
    cluster.pipelines("wait", identity, "--timeout", f"{cluster.TIMEOUT}")
    return [cluster.difference("retried", run.root, expected)]


def scheduled(folder: str, expected: dict[str, str]) -> list[str]:
    """A run each minute into the same root, so that two work at once; an outcome for each."""
    root = cluster.fresh_root("scheduled")
    job = cluster.every_minute(root, folder)
    client, working = cluster.client(), list[str]()
    while len(working) < 2:
        time.sleep(PAUSE)
        listed = client.list_runs(page_size=20, sort_by="created_at desc").runs or []
        ours = [run for run in listed if run.recurring_run_id == job]
        working = [run.run_id for run in ours if run.state in ("PENDING", "RUNNING")]
    client.disable_recurring_run(job)
    for identity in working:
        cluster.pipelines("wait", identity, "--timeout", f"{cluster.TIMEOUT}")
    client.delete_recurring_run(job)  # not before its runs have ended: Kubernetes deletes their workflows with it
    return [cluster.difference("scheduled", root, expected)] * len(working)


OTHERS: dict[str, Callable[[str, dict[str, str]], list[str]]] = {
    "kubelet stopped for two minutes": node_gone,
    "driver deleted at once, its run started again by submit": drivers,
    "two equal runs at once": both,
    "run terminated, and Retry pressed": retried,
    "schedule that overlaps itself": scheduled,
}
NAMES = (*IN_EVERY_STEP, *OTHERS)
