"""Quotas and limit ranges that a step would never get past, as preflight reads them from the API (a stand-in)."""

import json

import pytest
import yaml

from tests.k8s import tools
from tests.k8s.trainer import NAMESPACE, Trainer, serving
from tlm.errors import InputError
from tlm.runs.pods import Api
from tlm.runs.preflight import check_run
from tlm.settings.options import Pods


@pytest.fixture
def trainer():
    return Trainer()


@pytest.fixture
def checked(trainer, tmp_path, monkeypatch):
    """Preflight of a run with these training pods, in a pod of the cluster."""
    monkeypatch.setenv("KFP_POD_NAME", "a-step")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))  # the store is on a volume, which outlives the pod
    with serving(trainer) as url:
        monkeypatch.setattr(Api, "of_pod", lambda: Api(url, tmp_path, NAMESPACE))
        root = f"file://{tmp_path}/store"
        yield lambda network=True, **pods: check_run(Pods(**pods), root=root, network=network)


def quota(**hard):
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": {name.replace("_", "."): value for name, value in hard.items()}},
    }


def limit_range(kind, **largest):
    return {"metadata": {"name": "sizes"}, "spec": {"limits": [{"type": kind, "max": largest}]}}


def test_our_own_quota_takes_a_run_and_refuses_more_gpus_than_it_has(trainer, checked, capsys):
    own = list(yaml.safe_load_all((tools.ROOT / "k8s/base/limits.yaml").read_text()))
    trainer.lists = {"resourcequotas": own[:1], "limitranges": own[1:]}
    checked(gpus="8", cpu="16", memory="64Gi")
    assert "quotas of namespace runs: every step fits" in capsys.readouterr().err
    with pytest.raises(InputError) as refused:
        checked(gpus="16", cpu="32", memory="128Gi")
    assert str(refused.value) == (
        "the quota tlm of namespace runs allows requests.nvidia.com/gpu=8, but one step of this run needs 16 and would "
        "wait for ever; ask for less (train_cpu, train_memory, train_gpus), or have it raised"
    )
    checked(gpus="16", cpu="32", memory="128Gi", gpu_type="amd.com/gpu")  # a type that the quota does not name


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"resourcequotas": [quota(limits_memory="12Gi")]}, "limits.memory=12Gi, but one step of this run needs 16Gi"),
        ({"resourcequotas": [quota(limits_cpu="3500m")]}, "limits.cpu=3500m, but one step of this run needs 4"),
        ({"resourcequotas": [quota(memory="1Gi")]}, "memory=1Gi, but one step of this run needs 2Gi"),
        ({"resourcequotas": [quota(), quota(requests_cpu="0.5")]}, "requests.cpu=0.5, but one step of"),
        ({"limitranges": [limit_range("Container", memory="8Gi")]}, "at most memory=8Gi for a container, but one step"),
        ({"limitranges": [limit_range("Pod", cpu="2")]}, "at most cpu=2 for a pod, but one step of this run needs 4"),
    ],
)  # fmt: skip
def test_each_limit_that_is_too_low_is_named(found, says, trainer, checked):
    trainer.lists |= found
    with pytest.raises(InputError) as refused:
        checked()
    assert says in str(refused.value)


def test_small_training_pods_still_need_what_the_data_steps_have(trainer, checked):
    trainer.lists["limitranges"] = [limit_range("Container", memory="4Gi")]
    with pytest.raises(InputError, match="one step of this run needs 8Gi"):
        checked(memory="2Gi", cpu="1")


def test_a_run_that_trains_nothing_needs_what_its_steps_need(trainer, checked):
    trainer.lists["resourcequotas"] = [quota(limits_memory="8Gi", **{"requests_nvidia.com/gpu": "1"})]
    checked(network=False, gpus="2")
    checked(network=False, memory="64Gi")  # its embeddings are made by a pod for data
    trainer.lists["resourcequotas"] = [quota(limits_memory="7Gi")]
    with pytest.raises(InputError, match="needs 8Gi"):
        checked(network=False)


def test_limits_that_suffice_or_are_of_other_things_are_no_reason(trainer, checked):
    trainer.lists = {
        "resourcequotas": [quota(limits_memory="16Gi", pods="1"), quota(limits_cpu="4")],
        "limitranges": [limit_range("Container", memory="16Gi"), limit_range("PersistentVolumeClaim", storage="1Gi")],
    }
    checked()


@pytest.mark.parametrize("scope", [{"scopes": ["NotTerminating"]}, {"scopeSelector": {"matchExpressions": []}}])
def test_a_quota_of_some_pods_alone_is_no_reason(scope, trainer, checked):
    """Such as those of a priority class."""
    some = quota(limits_memory="1Gi")
    trainer.lists["resourcequotas"] = [{**some, "spec": {**some["spec"], **scope}}]
    checked()


def test_a_role_that_may_not_read_quotas_is_no_reason_either(trainer, checked, capsys):
    trainer.faults = [(403, json.loads('{"message": "forbidden"}'))]
    checked()
    assert "warning: quotas are not checked: GET /api/v1/namespaces/runs/resourcequotas" in capsys.readouterr().err


def test_a_run_in_a_notebook_makes_no_pods_and_has_no_quotas(trainer, checked, monkeypatch):
    monkeypatch.delenv("KFP_POD_NAME")
    trainer.lists["resourcequotas"] = [quota(limits_memory="1Gi")]
    checked()
    assert trainer.asked == []


def test_outside_of_a_cluster_there_are_no_quotas(tmp_path, capsys):
    check_run(Pods(), root=str(tmp_path / "store"))
    assert "quotas" not in capsys.readouterr().err
