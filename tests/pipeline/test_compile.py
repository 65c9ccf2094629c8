"""The compiled pipeline: the same bytes each time, thin bodies only, nothing installed at run time."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

from pipelines.compile.compiled import compile_text, parse
from pipelines.compile.document import replaced
from pipelines.compile.lint import lint
from pipelines.form.parameters import of_this_code, read_parameters
from pipelines.tlm import tlm
from tlm.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    from kfp.compiler import Compiler

    path = tmp_path_factory.mktemp("compiled") / "tlm.yaml"
    Compiler().compile(tlm, str(path))
    return path.read_text()


def test_compiling_twice_gives_the_same_bytes(compiled: str, run_module, tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    run_module("pipelines.run", "compile", "-o", again, env={"PYTHONHASHSEED": "1"})
    assert again.read_text() == compiled


def test_nothing_is_installed_or_cached_at_run_time(compiled: str) -> None:
    assert "pip install" not in compiled
    assert "enableCache" not in compiled


def test_code_in_the_pipeline_is_only_the_thin_bodies(compiled: str) -> None:
    executors = yaml.safe_load(compiled.split("\n---")[0])["deploymentSpec"]["executors"]
    bodies = [executor["container"]["command"][-1] for executor in executors.values()]
    for body in bodies:
        (function,) = [node for node in ast.parse(body).body if isinstance(node, ast.FunctionDef)]
        statements = [node for node in function.body if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom)]
        assert len(statements) <= 6, function.name
        assert not [node for node in ast.walk(function) if isinstance(node, ast.For) and node is not statements[0]]


@pytest.mark.parametrize("path", sorted((ROOT / "components").glob("*.py")), ids=lambda path: path.name)
def test_component_bodies_have_at_most_six_lines(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and any(
            "component" in ast.dump(mark) for mark in function.decorator_list
        ):
            first, last = function.body[1], function.body[-1]  # after the docstring
            code = [line for line in path.read_text().splitlines()[first.lineno - 1 : last.end_lineno] if line.strip()]
            assert len(code) <= 6, f"{function.name}: {len(code)} lines"


def test_all_that_a_step_refers_to_reaches_its_dag(compiled: str) -> None:
    """The driver looks placeholders of resources and of Kubernetes settings up among the inputs of the DAG around."""
    spec, platform = yaml.safe_load_all(compiled)
    configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    seen = set()
    for component in (spec["root"], *spec["components"].values()):
        given = set(component.get("inputDefinitions", {}).get("parameters", {}))
        for task in component.get("dag", {}).get("tasks", {}).values():
            executor = spec["components"][task["componentRef"]["name"]].get("executorLabel")
            resources = spec["deploymentSpec"]["executors"].get(executor, {}).get("container", {}).get("resources", {})
            wanted = set(re.findall(r"inputs\.parameters\['([^']+)'", json.dumps(resources)))
            wanted |= set(re.findall(r'"componentInputParameter": "([^"]+)"', json.dumps(configs.get(executor, {}))))
            assert wanted <= given, executor
            seen |= wanted
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


def test_the_table_in_the_docs_is_that_of_the_pipeline() -> None:
    page = (ROOT / "docs/kubeflow.md").read_text()
    assert replaced(page, tlm.pipeline_func) == page, "run: python -m pipelines.compile.document docs/kubeflow.md"


def test_every_parameter_has_a_default_and_a_description() -> None:
    from docstring_parser import parse

    described = {entry.arg_name for entry in parse(tlm.pipeline_func.__doc__).params}
    inputs = tlm.component_spec.inputs
    assert described == set(inputs)
    assert [name for name, spec in inputs.items() if spec.default is None] == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("run_sedes=1", "parameter 'run_sedes' is not known; did you mean 'run_seeds'?"),
        ("corpus_words=many", "parameter 'corpus_words': 'many' is a str, expected int"),
        ("corpus_words", "--set corpus_words: expected name=value"),
        ("registry_address=registry:8080", "registry_address is 'registry:8080'; expected the address of Kubeflow's"),
        ("registry_address=http://me:key@registry:8080", "parameter 'registry_address' has a password, key or token"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(change: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read_parameters(None, [change], of_this_code("tlm"))
    assert str(error.value).startswith(sentence)


def test_the_sample_parameter_files_are_valid() -> None:
    for path in sorted((ROOT / "pipelines" / "params").glob("*.yaml")):
        assert read_parameters(path, [], of_this_code("tlm"))


def test_both_pipelines_have_the_same_parameters_where_they_mean_the_same() -> None:
    """And the second one compiles, with what KFP asks of it."""
    theirs, ours = of_this_code("ablation"), of_this_code("tlm")
    assert {name for name in theirs if not name.startswith("paper_")} == {
        name for name in ours if name not in ("run_arms", "run_overrides", "run_preset")
    }
    assert all(theirs[name] == ours[name] for name in theirs.keys() & ours.keys())
    text = compile_text(name="ablation")
    assert lint(parse(text, "ablation")) == []
