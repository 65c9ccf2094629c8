"""Resources of training pods: what Kubernetes takes, and what would wait for ever."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils import parse_quantity

from pipelines.compiled import compile_text, of_this_code, read_parameters
from tests.toy_reports import toy_world
from tests.toys_several import several
from tlm.errors import InputError
from tlm.evaluation.score.baseline import baseline
from tlm.runs.pods import amount, check_pods
from tlm.runs.preflight import check_run
from tlm.settings.options import Pods

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@given(st.decimals(0, 10**6, places=3), st.sampled_from(SUFFIXES))
def test_quantities_are_those_of_the_kubernetes_client(number: Decimal, suffix: str) -> None:
    assert amount(f"{number}{suffix}") == parse_quantity(f"{number}{suffix}")


@pytest.mark.parametrize("text", ["", "Gi", "4 Gi", "4gb", "-1", "1e", "four", "4K", "0x4", "4,5", "١"])
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert amount(text) is None


def test_exponents_are_quantities() -> None:
    assert amount("12e3") == 12_000
    assert amount("5e-1") == Decimal("0.5")
    assert amount("1E3") == amount("+1e+3") == 1_000


def test_the_defaults_and_more_are_fine() -> None:
    check_pods(Pods())
    check_pods(Pods(cpu="1", memory="2Gi"))
    check_pods(Pods(cpu="1000m", memory="2147483648"))
    nodes = {"tolerations": [{"key": "gpu", "operator": "Exists"}], "node_selector": {"pool": "gpu"}}
    check_pods(Pods("16", gpus="8", memory="64Gi", **nodes))
    check_pods(Pods(gpus="2"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cpu": "0.5"}, "train_cpu is 0.5; expected 1 or more, which is what a training pod requests"),
        ({"cpu": "999m"}, "train_cpu is 999m; expected 1 or more"),
        ({"cpu": "a lot"}, "train_cpu is 'a lot'; expected a Kubernetes quantity, such as 4"),
        ({"cpu": ""}, "train_cpu is ''; expected a Kubernetes quantity"),
        ({"memory": "2G"}, "train_memory is 2G; expected 2Gi or more, which is what a training pod requests"),
        ({"memory": "16"}, "train_memory is 16; expected 2Gi or more"),
        ({"memory": "16GB"}, "train_memory is '16GB'; expected a Kubernetes quantity, such as 16Gi"),
        ({"gpus": "8"}, "train_cpu is 4 and train_gpus 8; expected train_cpu=16 or more, 2 for each GPU"),
        ({"gpus": "2", "cpu": "3500m"}, "train_cpu is 3500m and train_gpus 2; expected train_cpu=4 or more"),
        (
            {"gpus": "8", "cpu": "16"},
            "train_memory is 16Gi and train_gpus 8; expected train_memory=64Gi or more, 8Gi for each GPU",
        ),
        ({"gpus": "-1"}, "train_gpus is '-1'; expected a whole number, 0 or more"),
        ({"gpus": "0.5"}, "train_gpus is '0.5'; expected a whole number"),
        ({"gpu_type": " "}, "train_gpu_type is ' '; expected the name of a resource, such as nvidia.com/gpu"),
        ({"node_selector": {"gpu": True}}, "train_node_selector: label gpu is True; expected text, in quotes"),
        ({"gpu_type": "no such thing!"}, "train_gpu_type is 'no such thing!'; expected the name of a resource"),
        ({"node_selector": {"a b": "c"}}, "train_node_selector: 'a b: c' is no label of a node"),
        ({"node_selector": {"gpu": "an A100"}}, "train_node_selector: 'gpu: an A100' is no label of a node"),
        ({"gpu_type": "gpu"}, "train_gpu_type is 'gpu'; expected the name of a resource"),
        ({"gpu_type": "nvidia..com/gpu"}, "train_gpu_type is 'nvidia..com/gpu'; expected the name of a resource"),
        *(
            (
                {"tolerations": [toleration]},
                f"train_tolerations: {toleration!r} is refused by Kubernetes; expected {what}",
            )
            for toleration, what in (
                ({"key": "gpu", "operator": "exists"}, "an operator Equal or Exists"),
                ({"key": "gpu", "effect": "NoSchedul"}, "an effect NoSchedule, PreferNoSchedule, NoExecute"),
                ({"key": "gpu", "value": True}, "a key and a value that are text"),
                ({"key": "a b"}, "a key and a value that are text"),
                ({"key": 1}, "a key and a value that are text"),
                ({"key": "gpu", "operator": "Exists", "value": "yes"}, "no value where the operator is Exists"),
                ({"effect": "NoSchedule"}, "the operator Exists where there is no key"),
                ({"key": "gpu", "tolerationSeconds": 5}, "the effect NoExecute beside tolerationSeconds"),
                ({"key": "gpu", "effect": "NoExecute", "tolerationSeconds": "5"}, "tolerationSeconds as a whole"),
            )
        ),
        ({"tolerations": ["gpu"]}, "train_tolerations: 'gpu' is no toleration; expected an object with some of effect"),
        ({"tolerations": [{"name": "gpu"}]}, "train_tolerations: {'name': 'gpu'} is no toleration"),
    ],
)
def test_what_no_pod_can_have_is_refused_by_submit_and_by_preflight_in_the_same_words(
    given: dict[str, Any], says: str
) -> None:
    changes = [
        f"train_{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()
    ]
    with pytest.raises(InputError) as refused:
        read_parameters(None, changes, of_this_code("tlm"))
    with pytest.raises(InputError) as late:
        check_run(Pods(**given), "embedded", "", None)
    assert str(refused.value).startswith(says)
    assert str(late.value) == str(refused.value)


@pytest.mark.parametrize("root", ["", "my-bucket/tlm", "file://{}/tlm"])
def test_a_store_that_would_end_with_the_pod_is_refused(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form in a browser does not say that s3:// is missing."""
    root = root.format(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("TLM_ROOT", raising=False)
    check_run(Pods(), root=root)
    monkeypatch.setenv("KFP_POD_NAME", "a-step")
    with pytest.raises(InputError, match=f"store_root is '{root}', a folder that ends with this pod; give s3://"):
        check_run(Pods(), root=root)


def test_a_report_to_compare_with_is_there_before_any_work(tmp_path: Path) -> None:
    given = (Pods(), "embedded", "", str(tmp_path))
    check_run(*given)
    with pytest.raises(InputError, match="there is no finished report here"):
        check_run(*given, f"{tmp_path}/report/{'0' * 24}")
    with pytest.raises(InputError, match="is a task; expected a report or metrics"):
        check_run(*given, f"{tmp_path}/task/{'0' * 24}")
    of_several = baseline(several(tmp_path).uri, root=f"{tmp_path}/store")
    with pytest.raises(InputError, match="of 'several labels'; only answers of classification or regression can"):
        check_run(Pods(), "embedded", "", f"{tmp_path}/store", of_several)
    elsewhere = toy_world(tmp_path / "other").metrics("bm25", 0, 0.5)
    with pytest.raises(InputError, match="is not in"):
        check_run(*given, elsewhere)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"index": "My Index"}, "name 'My Index' is no index name"),
        ({"model": " "}, "the registered model's name is ' '; expected 1 to 200 printable characters"),
    ],
)
def test_names_that_the_last_steps_would_refuse_are_refused_before_any_work(
    tmp_path: Path, given: dict[str, str], says: str
) -> None:
    check_run(Pods(), root=str(tmp_path), index="my-index", model="My model")
    with pytest.raises(InputError, match=re.escape(says)):
        check_run(Pods(), root=str(tmp_path), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tlm", "rerank", "ablation", "multitask"])
def test_no_pod_asks_for_gpus_that_its_step_leaves_idle(name: str) -> None:
    """It asks for as many as its step is told to use; in the loop over runs, the item says how many."""
    spec = yaml.safe_load(compile_text(name=name).split("\n---")[0])
    asked = {
        executor.removeprefix("exec-"): container["container"]["resources"]["accelerator"]["resourceCount"]
        for executor, container in spec["deploymentSpec"]["executors"].items()
        if "accelerator" in container["container"].get("resources", {})
    }
    dags = [spec["root"]["dag"], *(one["dag"] for one in spec["components"].values() if "dag" in one)]
    told = {step: task["inputs"]["parameters"]["gpus"] for dag in dags for step, task in dag["tasks"].items()
            if step in asked}  # fmt: skip
    assert set(asked.values()) == {"{{$.inputs.parameters['gpus']}}"}
    assert asked.keys() == told.keys() >= {"train", "finetune", "evaluate"}
    for step in ("train", "finetune", "evaluate"):
        assert told[step]["parameterExpressionSelector"] == f'parseJson(string_value)["{step}"]'
    if name == "rerank":
        assert told[name]["taskOutputParameter"] == {"outputParameterKey": "one_gpu", "producerTask": "preflight"}


@pytest.mark.parametrize("name", ["tlm", "shallow", "rerank", "ablation", "multitask"])
def test_preflight_gets_every_parameter_of_training_pods(name: str) -> None:
    spec = yaml.safe_load(compile_text(name=name).split("\n---")[0])
    given = spec["root"]["dag"]["tasks"]["preflight"]["inputs"]["parameters"]
    assert {field: given[field].get("componentInputParameter") for field in vars(Pods())} == {
        field: f"train_{field}" for field in vars(Pods())
    }
