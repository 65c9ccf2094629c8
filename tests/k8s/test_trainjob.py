"""Training on several nodes: the TrainJob that we ask for, and how it is followed to each of its ends.

Kubernetes and Kubeflow Trainer are a stand-in here (trainer.py); the TrainJob is checked against Trainer's definition.
"""

import os
import signal
import threading
import time
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from tests.k8s.test_schemas import NEWEST, OLDEST, faults
from tests.k8s.trainer import IMAGE, JOBS, NAMESPACE, Trainer, died, played, pod, serving
from tests.servers.servers import free_port
from tests.toys_training import SMALL, passages, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, Interrupted, Terminated
from tlm.runs import pods as kubernetes
from tlm.runs import trainjob
from tlm.runs.plan import PlannedRun
from tlm.runs.pods import Api, Refused
from tlm.runs.trainjob import follow, train_job
from tlm.settings.options import Pods

HOME = Path(__file__).parents[2]
NAME = "tlm-0123456789abcdef01234567"
PODS = Pods("8", "nvidia.com/gpu", "4", "64Gi")
JOB = train_job(NAME, ["tlm", "train", "s3://b/task/x"], PODS, 2, IMAGE)


@pytest.fixture
def trainer():
    return Trainer()


@pytest.fixture
def api(trainer, tmp_path):
    (tmp_path / "token").write_text("first\n")
    with serving(trainer) as url:
        yield Api(url, tmp_path, NAMESPACE)


def run(api: Api, start_minutes: float = 10) -> None:
    with patch.multiple(trainjob, START_MINUTES=start_minutes, POLL_SECONDS=0.05):
        follow(api, JOB)


def deletions(trainer: Trainer) -> int:
    return trainer.asked.count(f"DELETE {JOBS}/{NAME}")


# ---- the resource


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_job_is_what_trainer_s_definition_allows(version):
    tolerations = [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30.0}]
    placed = Pods("500m", "amd.com/gpu", "0", "2Gi", {"pool": "gpu"}, tolerations)
    jobs = [JOB, train_job("tlm-2", ["tlm"], placed, 3, IMAGE)]
    assert faults(yaml.safe_dump_all(jobs), version) == []
    wrong = train_job("tlm-3", ["tlm"], placed, 3, IMAGE)
    wrong["spec"]["podTemplateOverrides"] = []
    wrong["spec"]["trainer"]["numNodes"] = "3"
    found = faults(yaml.safe_dump(wrong), version)
    assert any("'podTemplateOverrides' was unexpected" in fault for fault in found)
    assert any("'3' is not of type 'integer'" in fault for fault in found)


def test_the_pods_are_ours_and_hold_no_secret():
    trainer, (patch,) = JOB["spec"]["trainer"], JOB["spec"]["runtimePatches"]
    assert (trainer["image"], trainer["numNodes"], trainer["numProcPerNode"]) == (IMAGE, 2, 4)
    assert trainer["resourcesPerNode"]["limits"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
    assert all("value" not in variable for variable in trainer["env"])
    sources = [source for variable in trainer["env"] for source in variable["valueFrom"].values()]
    assert {source["name"] for source in sources} == {"tlm", "tlm-s3"}
    assert all(source["optional"] for source in sources)
    assert not {variable["name"] for variable in trainer["env"]} & {f"PET_{name}" for name in ("NNODES", "NODE_RANK")}
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "train"  # whom the network policy lets in
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert template["spec"]["serviceAccountName"] == "tlm-runner"
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "env" not in container  # Trainer refuses it there


def test_the_role_allows_what_is_called_and_no_more(api, trainer):
    trainer.at_look = [lambda: trainer.runs("a line"), lambda: trainer.ends("Complete")]
    run(api)
    trainjob.own_image(api)
    verbs = {"POST": "create", "DELETE": "delete"}
    called = set()
    for line in trainer.asked:
        method, path = line.split(" ")
        kind = "pods/log" if path.endswith("/log") else "trainjobs" if "trainjobs" in path else "pods"
        verb = "list" if method == "GET" and path.endswith("/pods") else verbs.get(method, "get")
        called.add((kind, verb))
    role, _ = yaml.safe_load_all((HOME / "k8s/base/trainjob-rbac.yaml").read_text())
    allowed = {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert called == allowed


# ---- its ends


def test_a_job_that_completes_is_logged_once_and_deleted(api, trainer, capsys):
    trainer.at_look = [
        lambda: None,
        lambda: trainer.runs("one", "two"),
        lambda: trainer.runs("one", "two", "three"),
        lambda: trainer.ends("Complete"),
    ]
    run(api)
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line in ("one", "two", "three")] == ["one", "two", "three"]
    assert f"TrainJob {NAMESPACE}/{NAME}: created" in said
    assert trainer.created == [JOB]
    assert deletions(trainer) == 1


def test_one_that_runs_already_is_adopted(api, trainer, capsys):
    """It may have been made for fewer nodes than this run: with all of its own pods, it is not waited for."""
    trainer.jobs[NAME] = train_job(NAME, ["tlm"], PODS, 2, IMAGE)
    trainer.runs("one")
    trainer.at_look = [lambda: None, lambda: None, lambda: time.sleep(0.1), lambda: trainer.ends("Complete")]
    with patch.multiple(trainjob, START_MINUTES=0.001, POLL_SECONDS=0.05):
        follow(api, train_job(NAME, ["tlm"], PODS, 4, IMAGE))
    assert trainer.created == []
    assert "runs already; following it" in capsys.readouterr().err
    assert deletions(trainer) == 1


def test_one_that_failed_before_makes_room(api, trainer):
    trainer.jobs[NAME] = {"metadata": {"name": NAME}}
    trainer.ends("Failed")
    trainer.at_look = [lambda: None, lambda: None, lambda: trainer.ends("Complete")]
    run(api)
    assert trainer.created == [JOB]
    assert deletions(trainer) == 2


def test_one_that_is_being_deleted_is_waited_for(api, trainer):
    trainer.jobs[NAME] = {"metadata": {"name": NAME, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    trainer.at_look = [lambda: None, trainer.jobs.clear, lambda: None, lambda: trainer.ends("Complete")]
    run(api)
    assert trainer.created == [JOB]


def test_a_job_beyond_the_quota_waits_until_others_have_ended(api, trainer, capsys):
    """`k8s/base/limits.yaml` allows four, and a run may ask for nine."""
    trainer.faults = [(403, {"message": "tlm-1 is forbidden: exceeded quota: tlm, requested: count/trainjobs=1"})] * 2
    trainer.at_look = [lambda: trainer.runs("one"), lambda: trainer.ends("Complete")]
    run(api)
    assert trainer.created == [JOB]
    assert capsys.readouterr().err.count("waiting: ") == 1


def test_failure_is_told_with_its_reason_and_last_line(api, trainer, capsys):
    def fails() -> None:
        trainer.runs("step 7", "it is dark here", phase="Failed")
        trainer.pods[1] = pod(1, "Failed", containerStatuses=died("state", 137, "OOMKilled"))
        trainer.logs["node-1"] = ["2026-01-01T00:00:09Z the other one's last words"]
        trainer.ends("Failed", "FailedJobs", "jobset failed due to one or more job failures")

    trainer.at_look = [lambda: trainer.runs("step 7"), fails]
    with pytest.raises(Interrupted) as raised:
        run(api)
    assert str(raised.value) == (
        f"TrainJob {NAMESPACE}/{NAME} failed (FailedJobs: jobset failed due to one or more job failures); exit codes "
        "of its pods: 137 OOMKilled; its last line: it is dark here; fix that, then repeat to resume"
    )
    assert "the other one's last words" in capsys.readouterr().err.splitlines()
    assert deletions(trainer) == 1


def test_wrong_input_is_not_tried_six_times(api, trainer):
    trainer.at_look = [lambda: trainer.runs("tlm: no such task", containerStatuses=died("lastState", 2, "Error"))]
    with pytest.raises(InputError, match=r"exit codes of its pods: 2 Error; its last line: tlm: no such task;"):
        run(api)
    assert deletions(trainer) == 1


def test_a_pod_that_is_started_again_ends_nothing(api, trainer, capsys):
    trainer.at_look = [
        lambda: trainer.runs("a", containerStatuses=died("lastState", 143, "Error")),
        lambda: trainer.runs("a", containerStatuses=died("lastState", 143, "Error")),
        lambda: trainer.ends("Complete"),
    ]
    run(api)
    assert capsys.readouterr().err.count("node-0 ended with code 143 Error") == 1


def test_a_job_that_somebody_deleted_is_told(s3_root, api, trainer, monkeypatch, capsys):
    """That is an error only without a result: a run that follows the same job deletes it when it is complete."""
    monkeypatch.setattr(trainjob.Api, "of_pod", lambda: api)
    monkeypatch.setattr(trainjob, "POLL_SECONDS", 0.05)
    planned_run = planned(s3_root, task(s3_root))
    trainer.at_look = [lambda: trainer.runs("one"), trainer.jobs.clear]
    with pytest.raises(Interrupted, match=r"is gone, and no checkpoint is under s3://.+, then repeat"):
        trainjob.train_on_nodes(planned_run, root=s3_root)
    assert "was deleted by somebody else" in capsys.readouterr().err
    results = iter([None, "s3://bucket/checkpoint/0"])
    monkeypatch.setattr(trainjob, "finished", lambda *_: next(results))
    trainer.at_look = [lambda: trainer.runs("one"), trainer.jobs.clear]
    assert trainjob.train_on_nodes(planned_run, root=s3_root) == "s3://bucket/checkpoint/0"


def test_sigterm_deletes_the_job(api, trainer):
    trainer.at_look = [lambda: trainer.runs("one")]
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Terminated, match="is deleted, its pods save their state; repeat to resume"):
        run(api)
    assert trainer.jobs == {}


def test_pods_that_never_start_are_given_up_with_the_reason(api, trainer):
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: no nvidia.com/gpu"}
    trainer.pods = [pod(0, "Pending", conditions=[condition])]
    with pytest.raises(Interrupted, match=r"did not start in 0\.005 minutes: node-0: 0/3 nodes are available"):
        run(api, start_minutes=0.005)
    assert deletions(trainer) == 1
    waiting = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    trainer.pods = [pod(0, "Pending", containerStatuses=[waiting])]
    with pytest.raises(Interrupted, match="node-0: ImagePullBackOff no such image"):
        run(api, start_minutes=0.005)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (403, "answered with 403 (forbidden); give the pod's service account the roles in k8s/base, in namespace runs"),
        (404, "answered with 404 (forbidden); check that Kubeflow Trainer 2.2 or later is installed"),
        (422, "answered with 422 (forbidden); fix that, then repeat"),
    ],
)
def test_what_the_api_refuses_is_one_sentence(api, trainer, status, sentence):
    trainer.faults = [(status, {"message": "forbidden"})]
    with pytest.raises(Refused) as raised:
        run(api)
    assert str(raised.value) == f"POST {JOBS} was {sentence}"
    assert deletions(trainer) == 0


def test_an_api_that_is_away_for_a_moment_is_waited_for(api, trainer, monkeypatch):
    monkeypatch.setattr(kubernetes, "RETRY", kubernetes.RETRY.new(backoff_factor=0))
    trainer.at_look = [lambda: trainer.faults.extend([(503, ""), (429, "")]), lambda: trainer.ends("Complete")]
    run(api)
    assert deletions(trainer) == 1
    trainer.faults = [(500, {"message": "etcd is gone"})] * (kubernetes.RETRY.total + 1)
    with pytest.raises(Refused, match="etcd is gone"):
        run(api)
    nowhere = Api(f"http://127.0.0.1:{free_port()}", api.account, NAMESPACE)
    with pytest.raises(Interrupted, match=r"the Kubernetes API at .* does not answer \(.*refused.*\); repeat"):
        run(nowhere)


def test_a_new_token_is_used_at_once(api, trainer):
    trainer.at_look = [lambda: (api.account / "token").write_text("second"), lambda: trainer.ends("Complete")]
    run(api)
    assert trainer.tokens == {"Bearer first", "Bearer second"}


def test_a_pod_knows_where_its_api_is(tmp_path, monkeypatch):
    assert Api.of_pod(tmp_path) is None
    (tmp_path / "namespace").write_text("mine\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert Api.of_pod(tmp_path) == Api("https://[fd00::1]:6443", tmp_path, "mine")


# ---- all of it


def planned(root: object, examples: str, subset: str = "") -> PlannedRun:
    return PlannedRun("bm25", 0, examples, tokenizer(root, examples), subset, "tiny", " ".join(SMALL))


def test_two_nodes_make_the_checkpoint_of_one_on_s3(s3_root, trainer, api, monkeypatch, capsys):
    """The command that stands in the TrainJob, run as Trainer runs it; only Kubernetes is not there."""
    examples = task(s3_root)
    run = planned(s3_root, examples, passages(s3_root, "subset"))
    monkeypatch.setenv("TLM_PROCESSES", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KFP_POD_NAME", "this-pod")
    monkeypatch.setattr(trainjob.Api, "of_pod", lambda: api)
    ended: list[tuple[int, str]] = []
    trainer.at_look = [lambda: played(trainer, ended), lambda: None]
    uri = trainjob.train_on_nodes(run, root=s3_root)
    assert [code for code, _ in ended] == [0, 0], ended
    made = Artifact.open(uri, "checkpoint")
    assert made.run()["processes"] == 2
    assert trainer.created[0]["metadata"]["name"] == f"tlm-{made.manifest.key}"
    assert trainer.created[0]["spec"]["trainer"]["image"] == IMAGE
    assert "1 processes on each of 2 nodes" in capsys.readouterr().err
    assert trainer.jobs == {}
    assert not list(made.store.list("progress/"))

    calls = len(trainer.asked)
    begun = time.monotonic()
    assert trainjob.train_on_nodes(run, root=s3_root) == uri
    assert len(trainer.asked) == calls
    assert time.monotonic() - begun < 10


def test_several_nodes_without_a_cluster_are_refused(s3_root):
    examples = task(s3_root)
    run = planned(s3_root, examples)
    with pytest.raises(InputError, match="there is no Kubernetes API here: training on several nodes must be started"):
        trainjob.train_on_nodes(run, root=s3_root)


def test_a_folder_of_one_node_is_refused(tmp_path):
    examples = task(tmp_path)
    with pytest.raises(InputError, match=r"is a folder of one node; give one on S3 \(s3://bucket/prefix\)"):
        trainjob.train_on_nodes(planned(tmp_path, examples), root=str(tmp_path))
