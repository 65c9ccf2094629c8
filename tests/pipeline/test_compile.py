"""The compiled pipelines: the same bytes each time, thin bodies only, and nothing that a cluster would object to."""

import ast
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components import data, training
from components.base import TRAIN_IMAGE
from pipelines.compiled import (
    MADE_BY,
    Compiled,
    check_reachable,
    compile_text,
    of_this_code,
    parse,
    read_parameters,
    reference_fault,
)
from pipelines.form import ONE_OF_EACH, Parallelism
from pipelines.steps import DAY, ELASTICSEARCH_SECRETS, LONG, NEEDS, WEEK
from research.components import multitask, paper, reranking
from tlm.errors import InputError

ROOT = Path(__file__).parents[2]
ON_MORE = [
    ("tlm", Parallelism(2, 3)),
    ("shallow", Parallelism(1, 2)),
    ("rerank", Parallelism(4)),
    ("multitask", Parallelism(1, 2)),
]
EVERY = [*((name, ONE_OF_EACH) for name in MADE_BY), *ON_MORE]
SECRETS = {"password", "passphrase", "secret", "token", "credential", "credentials", "key", "keys", "apikey"}
NAME = re.compile(r"[a-z]([-a-z0-9]{0,55}[a-z0-9])?")  # a label of Kubernetes, with what KFP adds to the names of runs


@pytest.fixture(scope="module", params=EVERY, ids=lambda one: f"{one[0]}-{one[1].nodes}-{one[1].data_pods}")
def pipeline(request: pytest.FixtureRequest) -> Compiled:
    """Each pipeline, on one machine and on more."""
    name, machines = request.param
    return parse(compile_text(name=name, machines=machines), name)


def steps(pipeline: Compiled) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Name, task, container and Kubernetes settings of each step."""
    settings = pipeline.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for name, task in pipeline.tasks():
        executor = pipeline.spec["components"][task["componentRef"]["name"]].get("executorLabel")
        if executor:
            container = pipeline.spec["deploymentSpec"]["executors"][executor]["container"]
            yield name, task, container, settings[executor]


def test_every_container_is_that_of_a_step(pipeline: Compiled) -> None:
    """So the tests below see all of them."""
    assert (
        len(list(steps(pipeline)))
        == len(pipeline.spec["deploymentSpec"]["executors"])
        >= (1 if pipeline.name == "tlm-predict" else 8)
    )


def test_no_step_installs_packages(pipeline: Compiled) -> None:
    for name, _, container, _ in steps(pipeline):
        *shell, _ = container["command"]
        assert shell[:2] == ["sh", "-ec"], name
        assert not re.search(r"\b(install|add|sync|pip|apt)\b", " ".join(shell)), name


def test_every_image_has_an_exact_version(pipeline: Compiled) -> None:
    assert {
        name: fault for name, _, container, _ in steps(pipeline) if (fault := reference_fault(container["image"]))
    } == {}


def test_every_step_has_limits_and_runs_as_nobody(pipeline: Compiled) -> None:
    for name, _, container, settings in steps(pipeline):
        assert container["resources"].keys() >= {"resourceCpuLimit", "resourceMemoryLimit"}, name
        context = settings["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"]) == (True, "65532"), name


def test_no_secret_is_a_parameter_or_a_plain_variable(pipeline: Compiled) -> None:
    parameters = pipeline.spec["root"]["inputDefinitions"]["parameters"]
    assert [name for name in parameters if SECRETS & set(name.split("_"))] == []
    assert [name for name, _, container, _ in steps(pipeline) if "env" in container] == []


def test_every_parameter_has_a_default_but_what_nobody_can_guess(pipeline: Compiled) -> None:
    """The form in the UI cannot be sent without a value."""
    parameters = pipeline.spec["root"]["inputDefinitions"]["parameters"]
    required = {name for name, entry in parameters.items() if entry.get("defaultValue") is None}
    wanted = {"predict_model", "predict_source", "predict_to"} if pipeline.name == "tlm-predict" else set()
    assert required == wanted


def test_what_steps_need_is_said_of_components() -> None:
    """Under another name, a step would silently get the limits of all others, or no key."""
    made = (one for module in (data, training, multitask, paper, reranking) for one in vars(module).values())
    names = {one.component_spec.name for one in made if hasattr(one, "component_spec")}
    told = "pipelines/steps.py names components that there are not; they are called as their functions, with -"
    assert {*NEEDS, *LONG, *ELASTICSEARCH_SECRETS} - names == set(), told


def test_every_step_but_the_first_is_retried_for_a_week(pipeline: Compiled) -> None:
    """Without a maximum of its own, KFP does not retry a step later than an hour after its first start."""
    for name, task, _, settings in steps(pipeline):
        if name == "preflight":
            assert "retryPolicy" not in task
            continue
        policy = task["retryPolicy"]
        assert (policy["maxRetryCount"] >= 2, policy["backoffMaxDuration"]) == (True, f"{WEEK}s"), name
        assert int(settings["activeDeadlineSeconds"]) in (DAY, WEEK), name


def test_settings_are_checked_first_and_the_task_is_read_before_the_corpus(pipeline: Compiled) -> None:
    """Hours of the corpus would come before an error in either."""
    if pipeline.name == "tlm-predict":
        return
    tasks = pipeline.spec["root"]["dag"]["tasks"]
    before = {name: {*task.get("dependentTasks", ())} for name, task in tasks.items()}
    assert [name for name, found in before.items() if not found] == ["preflight"]
    for name in before.keys() & {"load-corpus", "plan-corpus"}:
        assert before[name] & {"load-task", "load-tasks"}


def test_the_numbers_of_machines_are_those_in_the_name(pipeline: Compiled) -> None:
    named = {what: int(count) for count, what in re.findall(r"(\d+)-(?:data-)?(nodes|pods)", pipeline.name)}
    given = [(what, inputs_of(task)[what]) for _, task in pipeline.tasks() for what in ("nodes", "pods")
             if "runtimeValue" in inputs_of(task).get(what, {})]  # fmt: skip
    assert {what: one["runtimeValue"]["constant"] for what, one in given} == named
    shown = pipeline.spec["pipelineInfo"]["displayName"].partition(" on ")[2]
    assert re.findall(r"\d+", shown) == [str(count) for count in named.values()]


def test_steps_that_train_have_gpus_and_a_week(pipeline: Compiled) -> None:
    for name, task, container, settings in steps(pipeline):
        on_gpus = container["image"] == TRAIN_IMAGE and "gpus" in inputs_of(task) and name != "train-on-nodes"
        assert ("accelerator" in container["resources"]) == on_gpus, name
        if name != "preflight":
            week = on_gpus or name == "train-on-nodes"
            assert int(settings["activeDeadlineSeconds"]) == (WEEK if week else DAY), name


def test_steps_that_search_have_a_key_and_only_those_that_fill_an_index_may_write(pipeline: Compiled) -> None:
    keys = {name: [one["secretName"] for one in settings.get("secretAsVolume", []) if "elastic" in one["secretName"]]
            for name, _, _, settings in steps(pipeline)}  # fmt: skip
    reader, writer = "tlm-elasticsearch-reader", "tlm-elasticsearch-writer"
    searching = {name for name, task in pipeline.tasks() if "index" in inputs_of(task)} | {"select", "rerank"}
    for name, found in keys.items():
        own = {"preflight": [writer, reader], "index": [writer]}.get(name, [reader] if name in searching else [])
        assert found == own, name


def test_names_fit_into_labels(pipeline: Compiled) -> None:
    assert [name for name in (pipeline.name, *dict(pipeline.tasks())) if not NAME.fullmatch(name)] == []


def test_kubeflow_caches_no_step_and_shows_all(pipeline: Compiled) -> None:
    """Its cache may return artifacts that are gone, and its page hides the steps in an exit handler."""
    assert [name for name, task in pipeline.tasks() if task.get("cachingOptions")] == []
    assert [name for name in pipeline.spec["components"] if "exit-handler" in name] == []


def test_the_pipeline_has_no_settings_that_kfp_2_16_does_not_know(pipeline: Compiled) -> None:
    """It would then ignore all limits and secrets without a word."""
    assert pipeline.platform["platforms"]["kubernetes"].keys() == {"deploymentSpec"}


def test_the_switches_of_the_filters_reach_every_step_that_filters(pipeline: Compiled) -> None:
    switches = ("near_duplicates", "overlap")
    filtering = [inputs for _, task in pipeline.tasks() if switches[0] in (inputs := inputs_of(task))]
    assert bool(filtering) == (not pipeline.name.startswith(("tlm-rerank", "tlm-predict")))
    for inputs, switch in itertools.product(filtering, switches):
        given = inputs[switch]["componentInputParameter"]
        assert given.removeprefix("pipelinechannel--") == f"export_{switch}"


def inputs_of(task: dict[str, Any]) -> dict[str, Any]:
    return task.get("inputs", {}).get("parameters", {})


RENAMED = {  # parameters, and the inputs of steps that they become under another name
    "compared_with": {"report"}, "index_name": {"index"}, "paper_models": {"folder"}, "paper_scale": {"preset"},
    "registry_address": {"registry"},
}  # fmt: skip


def given_to(task: dict[str, Any]) -> dict[str, str]:
    """Where the inputs of a step come from: parameters of the pipeline, or outputs of steps."""
    sources = {name: one.get("componentInputParameter", "") for name, one in inputs_of(task).items()}
    return {name: source.removeprefix("pipelinechannel--") for name, source in sources.items()}


def test_an_input_of_a_step_is_the_parameter_of_its_name_and_no_constant(pipeline: Compiled) -> None:
    parameters = pipeline.spec["root"]["inputDefinitions"]["parameters"]
    for step, task, *_ in steps(pipeline):
        given = given_to(task)
        constant = {name for name, one in inputs_of(task).items() if "{{" not in str(one) and "runtimeValue" in one}
        fixed = {"arms", "engine", "overrides"} if step == "preflight" else {"nodes", "pods"}
        assert constant <= {"network", *fixed}, step
        if "network" in constant:
            assert inputs_of(task)["network"]["runtimeValue"]["constant"] != pipeline.name.startswith("tlm-shallow")
        for name, source in given.items():
            if source in parameters and not name.startswith("pipelinechannel--"):
                assert name in {source, source.partition("_")[2], *RENAMED.get(source, ())}, step
        assert {name: given[name] for name in given.keys() & parameters} == {n: n for n in given.keys() & parameters}


def test_the_preflight_checks_what_that_of_the_first_pipeline_checks(pipeline: Compiled, compiled: str) -> None:
    tasks = {name: given_to(task) for name, task in pipeline.tasks()}
    first = {name: given_to(task) for name, task in parse(compiled, "tlm").tasks()}["preflight"]
    parameters = pipeline.spec["root"]["inputDefinitions"]["parameters"]
    wanted = {name: source for name, source in first.items() if source in parameters}
    assert pipeline.name == "tlm-predict" or tasks["preflight"].items() >= wanted.items()


@pytest.fixture(scope="module")
def compiled() -> str:
    return compile_text()


def test_code_in_the_pipeline_is_only_the_thin_bodies(compiled: str) -> None:
    executors = yaml.safe_load(compiled.split("\n---")[0])["deploymentSpec"]["executors"]
    bodies = [executor["container"]["command"][-1] for executor in executors.values()]
    for body in bodies:
        (function,) = [node for node in ast.parse(body).body if isinstance(node, ast.FunctionDef)]
        statements = [node for node in function.body if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom)]
        assert len(statements) <= 6, function.name
        assert not [node for node in ast.walk(function) if isinstance(node, ast.For) and node is not statements[0]]


def test_a_step_uses_all_that_it_is_given(pipeline: Compiled) -> None:
    for name, _, container, _ in steps(pipeline):
        (function,) = [one for one in ast.parse(container["command"][-1]).body if isinstance(one, ast.FunctionDef)]
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        assert {one.arg for one in function.args.args} <= used, name


def test_all_that_a_step_refers_to_reaches_its_dag(compiled: str) -> None:
    """The driver finds placeholders of resources among the step's inputs, of Kubernetes' settings among its DAG's."""
    spec, platform = yaml.safe_load_all(compiled)
    configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    seen = set()
    for component in (spec["root"], *spec["components"].values()):
        given = set(component.get("inputDefinitions", {}).get("parameters", {}))
        for task in component.get("dag", {}).get("tasks", {}).values():
            executor = spec["components"][task["componentRef"]["name"]].get("executorLabel")
            resources = spec["deploymentSpec"]["executors"].get(executor, {}).get("container", {}).get("resources", {})
            used = set(re.findall(r"inputs\.parameters\['([^']+)'", json.dumps(resources)))
            inputs = inputs_of(task)
            assert used <= inputs.keys(), executor
            settings = json.dumps([configs.get(executor), inputs])
            wanted = set(re.findall(r'"componentInputParameter": "([^"]+)"', settings))
            assert wanted <= given, executor
            seen |= used | wanted
    assert {name.removeprefix("pipelinechannel--") for name in seen} >= {
        "train_gpus",
        "train_memory",
        "train_tolerations",
    }


@pytest.mark.parametrize("name", ["tlm", "shallow", "rerank", "ablation"])
def test_without_a_registry_no_pod_registers(name: str) -> None:
    """The step is alone in a DAG that begins only if there is an address, and nothing waits for it."""
    spec = yaml.safe_load(compile_text(name=name).split("\n---")[0])
    within = {component: set(one["dag"]["tasks"]) for component, one in spec["components"].items() if "dag" in one}
    (inner,) = [component for component, tasks in within.items() if "register" in tasks]
    assert within[inner] == {"register"}
    tasks = spec["root"]["dag"]["tasks"]
    ((outer, begun),) = [(task, one) for task, one in tasks.items() if one["componentRef"]["name"] == inner]
    assert begun["triggerPolicy"] == {"condition": "inputs.parameter_values['pipelinechannel--registry_address'] != ''"}
    assert begun["inputs"]["parameters"]["pipelinechannel--registry_address"] == {
        "componentInputParameter": "registry_address"
    }
    assert spec["root"]["inputDefinitions"]["parameters"]["registry_address"]["defaultValue"] == ""
    assert not [task for task, one in tasks.items() if outer in one.get("dependentTasks", [])]


def test_a_published_model_is_to_be_had_where_pods_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name on the Hub, or from S3, but not from a folder of this machine."""
    check_reachable({"run_published": "bert-base-uncased, owner/name,s3://bucket/model"})
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    for place in ("mine", "./other", "/models/other", "a/b/c"):
        with pytest.raises(InputError, match=f"parameter 'run_published': pods do not see '{place}' of this machine"):
            check_reachable({"run_published": f"owner/name,{place}"})


def test_the_sample_parameter_files_are_valid() -> None:
    for path in sorted((ROOT / "pipelines" / "params").glob("*.yaml")):
        assert read_parameters(path, [], of_this_code("tlm"))


@pytest.mark.parametrize(
    ("pipeline", "change", "says"),
    [
        ("tlm", "corpus_words=0", "corpus_words is 0; expected 1 or more words per passage"),
        ("shallow", "report_gpu_hour=-1", "report_gpu_hour is -1.0; expected a number, 0 or more"),
        ("multitask", "task_text_field=label", "task_text_field and label_field are both 'label'"),
        ("predict", "predict_likeliest=-1", "predict_likeliest is -1; expected 0 or more"),
        ("predict", "predict_at_least=2", "predict_at_least is 2.0; expected a probability from 0 to 1"),
    ],
)
def test_a_number_that_a_step_would_refuse_is_refused_before_the_run(pipeline: str, change: str, says: str) -> None:
    known = of_this_code(pipeline)
    required = [f"{name}=s3://bucket/x" for name, parameter in known.items() if parameter.required]
    read_parameters(None, required, known)
    with pytest.raises(InputError, match=f"^{says}"):
        read_parameters(None, [*required, change], known)


def test_both_pipelines_have_the_same_parameters_where_they_mean_the_same() -> None:
    theirs, ours = of_this_code("ablation"), of_this_code("tlm")
    assert {name for name in theirs if not name.startswith("paper_")} == {
        name for name in ours if not name.startswith("run_") or name == "run_seeds"
    } - {"report_against"}
    assert all(theirs[name] == ours[name] for name in theirs.keys() & ours.keys())
