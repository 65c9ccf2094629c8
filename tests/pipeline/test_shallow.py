"""The pipeline without a network: from files to a report, in the data image, with the first pipeline's parameters."""

import json
import uuid
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from components.base import DATA_IMAGE, TRAIN_IMAGE
from pipelines.compiled import build, compile_text, of_this_code
from pipelines.form import Parallelism
from tests.pipeline.test_run import arguments, artifacts
from tests.servers.model_registry import StandIn, serving
from tests.tiny import in_files, write_rows, write_tiny
from tests.unit.test_project import pins
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.runs.plan import NOTHING_RETRIEVED

ROOT = Path(__file__).parents[2]
ARMS = ("task-only", "random", "bm25", "classifier", "dense", "dsir", "hybrid")  # all that need no network


def missing_where_light() -> list[str]:
    """Return the modules that `make install` has, and `make install-light` does not."""
    light = {"pip", "setuptools", "tlm-kubeflow", *pins("requirements-light.txt")}
    owners = {name: map(canonicalize_name, found) for name, found in packages_distributions().items()}
    return [name for name, found in owners.items() if name.isidentifier() and light.isdisjoint(found)]


@pytest.mark.slow
def test_the_light_installation_goes_from_files_to_a_report(run_module: Callable, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    for module in missing_where_light():
        (tmp_path / "absent" / module).mkdir(parents=True)
        (tmp_path / "absent" / module / "__init__.py").write_text(f"raise ImportError('there is no {module} here')\n")
    path = {"PYTHONPATH": f"{tmp_path / 'absent'}:{ROOT}"}
    with pytest.raises(AssertionError, match="there is no torch here"):
        run_module("torch", env=path)
    run_module("tests.tiny", env=path)  # which `python -m k8s.check.data` needs
    given = arguments(tmp_path, "store", "embedded", ",".join(ARMS), "0")
    done = run_module("pipelines.run", "local", "--pipeline", "shallow", *given, env=path)
    report = Artifact.open(done.stdout.strip().splitlines()[-1], "report")
    told = json.loads(report.path("report.json").read_text())
    (model,) = (line.removeprefix("Model: ") for line in done.stdout.splitlines() if line.startswith("Model: "))
    assert Artifact.open(model).manifest.kind == "model"
    warning, results = done.stdout.index("**Warning:** dev has 18 examples"), done.stdout.index("\n## Results\n")
    assert warning < results < done.stdout.index("\n## Checks\n\n- **Note:** ")
    rows = [(group["kind"], group["text"]) for group in told["groups"]]
    assert sorted(rows) == sorted(
        [("linear", ""), *(("static", text) for text in ARMS), *(("static + linear", text) for text in ARMS)]
    )
    assert {one["question"] for one in told["differences"]} == {"ahead of the linear model?", "ahead of other text?"}
    assert {step["arm"] for step in told["evidence"]} == {*ARMS} - {"task-only"}
    page = report.path("report.html").read_text()
    assert "What bm25 retrieved" in page
    assert "masked-LM" not in page


@pytest.mark.slow
def test_where_nothing_is_retrieved_the_report_says_so_and_has_the_linear_model(
    run_module: Callable, tmp_path: Path
) -> None:
    """With networks to train on that text, the run ends."""
    write_tiny(tmp_path)
    write_rows(tmp_path / "other.jsonl", [{"text": "ψωμί και αλάτι", "source": "Greek"}])
    given = arguments(tmp_path, "store", "embedded", "bm25,random", "0", corpus="other.jsonl")
    done = run_module("pipelines.run", "local", "--pipeline", "shallow", *given)
    told = json.loads(Artifact.open(done.stdout.strip().splitlines()[-1], "report").path("report.json").read_text())
    assert {group["name"] for group in told["groups"]} == {"linear", "static-task-only", "static-task-only + linear"}
    assert told["findings"].count(NOTHING_RETRIEVED) == 1
    assert "holds no hit" in done.stderr
    refused = run_module("pipelines.run", "local", *given, code=2)
    assert "holds no hit: no passage has a word of the queries" in refused.stderr


@pytest.mark.slow
def test_random_text_is_drawn_for_each_seed_and_all_else_made_once(run_module: Callable, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    given = arguments(tmp_path, "store", "embedded", "random,bm25,task-only", "0,1,2,3")
    done = run_module("pipelines.run", "local", "--pipeline", "shallow", *given)
    told = json.loads(Artifact.open(done.stdout.strip().splitlines()[-1], "report").path("report.json").read_text())
    repeats = {group["name"]: (group["draws"], len(group["test"]["values"])) for group in told["groups"]}
    once = [f"static-{text}{mixed}" for text in ("bm25", "task-only") for mixed in ("", " + linear")]
    assert repeats == {
        "linear": (0, 1), "static-random": (4, 4), "static-random + linear": (4, 4), **dict.fromkeys(once, (0, 1))
    }  # fmt: skip
    subsets = [one.details["arm"] for one in artifacts(str(tmp_path / "store"), "subset")]
    assert sorted(subsets) == ["bm25", *["random"] * 4]
    assert [one["low"] for one in told["differences"] if "random" in one["second"]] != [None]
    assert all(group["test"]["low"] is not None for group in told["groups"])
    assert "run_seeds: str [Default: '0,1,2,3,4']" in compile_text(name="shallow")


@pytest.mark.slow
def test_tomorrow_s_run_says_what_changed_since_today_s(run_module: Callable, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    given = ["local", "--pipeline", "shallow", *arguments(tmp_path, "store", "embedded", "bm25", "0")]
    today = run_module("pipelines.run", *given).stdout.strip().splitlines()[-1]
    train = tmp_path / "task" / "train.jsonl"
    lines = train.read_text().splitlines(keepends=True)
    train.write_text("".join(lines[1:]))
    more = ["--set", f"report_against={today}", "--set", "run_overrides=retrieve.share=classes"]
    tomorrow = Artifact.open(run_module("pipelines.run", *given, *more).stdout.strip().splitlines()[-1], "report")
    found = json.loads(tomorrow.path("report.json").read_text())["since"]
    (row,) = [row for row in found["data"]["splits"] if row["split"] == "train"]
    assert (row["removed"], row["added"], row["relabelled"]) == (1, 0, 0)
    assert found["tests"]["before"] == found["tests"]["now"] == found["tests"]["both"] > 0
    shares = [one.details.get("share") for one in artifacts(str(tmp_path / "store"), "hits")]
    assert sorted(shares, key=str) == [None, "classes"]


def test_vectors_in_elasticsearch_serve_dense_and_hybrid(
    run_module: Callable, tmp_path: Path, elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", elasticsearch_url)
    write_tiny(tmp_path)
    given = arguments(tmp_path, "store", "elasticsearch", "bm25,dense,hybrid", "0")
    named = ("--set", f"index_name=vectors-{uuid.uuid4().hex[:8]}", "--set", "index_vectors=true")
    run_module("pipelines.run", "local", "--pipeline", "shallow", *given, *named)
    root = str(tmp_path / "store")
    (index,) = artifacts(root, "index")
    assert index.details["vectors"]
    subsets = {one.details["arm"]: one.details["passages"] for one in artifacts(root, "subset")}
    assert subsets.keys() == {"bm25", "dense", "hybrid"}
    assert min(subsets.values()) > 0


@pytest.mark.slow
def test_with_a_registry_the_best_model_is_registered_once(run_module: Callable, tmp_path: Path) -> None:
    write_tiny(tmp_path)
    given = ["local", "--pipeline", "shallow", *arguments(tmp_path, "store", "embedded", "bm25", "0")]
    registry = StandIn("v1alpha3")
    with serving(registry) as url:
        without = run_module("pipelines.run", *given)
        assert registry.calls == []
        assert "register" not in without.stderr, "a step without a registry"
        named = [*given, "--set", f"registry_address={url}", "--set", "registry_model=weather"]
        done = run_module("pipelines.run", *named)
        assert f"model registry {url}: answers" in done.stderr
        posted = [call for call in registry.calls if call.startswith("POST")]
        assert len(posted) == 3
        run_module("pipelines.run", *named)
        assert [call for call in registry.calls if call.startswith("POST")] == posted
    (model,), (version,), (artifact,) = registry.entries.values()
    report = Artifact.open(done.stdout.strip().splitlines()[-1], "report")
    assert model["name"] == "weather"
    assert version["customProperties"]["report"]["string_value"] == report.uri
    assert artifact["modelSourceId"]
    assert artifact["modelSourceName"].startswith("tlm-shallow")
    assert "{{" not in json.dumps(artifact), "a placeholder that was not filled in"


@pytest.mark.slow
def test_a_corpus_that_several_pods_load_gives_the_same_report(run_module: Callable, tmp_path: Path) -> None:
    """Two files, each cut in two; each pod takes every other piece. All steps after them find the same inputs."""
    write_tiny(tmp_path)
    (tmp_path / "corpus").mkdir()
    for name, text in in_files(tmp_path, 2).items():
        (tmp_path / "corpus" / name).write_text(text)
    found = []
    for store, pods in (("one", 1), ("several", 2)):
        given = arguments(tmp_path, store, "embedded", "bm25", "0", corpus="corpus")
        run_module("pipelines.run", "local", "--pipeline", "shallow", "--data-pods", pods, *given)
        kinds = ("corpus", "hits", "subset", "metrics")
        found.append({one.folder_name: one.content for kind in kinds for one in artifacts(str(tmp_path / store), kind)})
    assert found[0] == found[1]
    assert len(artifacts(str(tmp_path / "several"), "corpus-plan")[0].details["parts"]) == 4


def test_only_the_branch_of_published_models_needs_more_than_the_data_image() -> None:
    spec = yaml.safe_load(compile_text(name="shallow").split("\n---")[0])
    images = {name: one["container"]["image"] for name, one in spec["deploymentSpec"]["executors"].items()}
    assert {name: image for name, image in images.items() if image != DATA_IMAGE} == {"exec-embed": TRAIN_IMAGE}
    within = {name: one["dag"]["tasks"] for name, one in spec["components"].items() if "dag" in one}
    (branch,) = [name for name, tasks in within.items() if "embed" in tasks]
    (begun,) = [one for tasks in within.values() for one in tasks.values() if one["componentRef"]["name"] == branch]
    assert begun["triggerPolicy"]["condition"] == "inputs.parameter_values['pipelinechannel--run_published'] != ''"


def test_it_takes_the_parameters_of_the_first_pipeline() -> None:
    """So one file of parameters does for both."""
    assert of_this_code("shallow").keys() == of_this_code("tlm").keys()


def test_it_is_not_for_several_nodes() -> None:
    with pytest.raises(InputError, match="trains no network; leave --nodes out"):
        build("shallow", Parallelism(nodes=2))
