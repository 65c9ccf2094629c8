"""The pipeline without a network: from files to a report, in the data image, with the first pipeline's parameters."""

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.utils import canonicalize_name

from components.base import DATA_IMAGE, TRAIN_IMAGE
from pipelines.compiled import build, compile_text, of_this_code
from pipelines.form import Parallelism
from tests.pipeline.conftest import run_in
from tests.pipeline.test_rerank import after
from tests.pipeline.test_run import arguments, artifacts
from tests.servers.model_registry import StandIn, serving
from tests.tiny import in_files, write_rows, write_tiny
from tests.unit.project.test_project import pins
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.runs.plan import NOTHING_RETRIEVED
from tlm.settings.selectors import RETRIEVED

ROOT = Path(__file__).parents[2]
ARMS = ("task-only", *RETRIEVED)  # all that need no network


def missing_where_light() -> list[str]:
    """Return the modules that `make install` has, and `make install-light` does not."""
    light = {"pip", "setuptools", "tlm-kubeflow", *pins("requirements-light.txt")}
    owners = {name: map(canonicalize_name, found) for name, found in packages_distributions().items()}
    return [name for name, found in owners.items() if name.isidentifier() and light.isdisjoint(found)]


class Ran(NamedTuple):
    """A run that several tests look at: its folder, what it printed, its report, and what of it is compared."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    report: str
    made: dict[str, str]


def ran(folder: Path, *given: str, **how: Any) -> Ran:
    done = run_in(folder, "pipelines.run", "local", "--pipeline", "shallow", *given, **how)
    return Ran(folder, done, done.stdout.strip().splitlines()[-1], made_in(folder / "store"))


def made_in(store: Path) -> dict[str, str]:
    """Names and contents of artifacts from the corpus to the scores."""
    kinds = ("corpus", "hits", "subset", "metrics")
    return {one.folder_name: one.content for kind in kinds for one in artifacts(str(store), kind)}


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All arms, with three seeds, where what the light installation lacks cannot be imported."""
    folder = tmp_path_factory.mktemp("light")
    write_tiny(folder)
    for module in missing_where_light():
        (folder / "absent" / module).mkdir(parents=True)
        (folder / "absent" / module / "__init__.py").write_text(f"raise ImportError('there is no {module} here')\n")
    path = {"PYTHONPATH": f"{folder / 'absent'}:{ROOT}"}
    with pytest.raises(AssertionError, match="there is no torch here"):
        run_in(folder, "torch", env=path)
    run_in(folder, "tests.tiny", env=path)  # which `python -m k8s.check.data` needs
    return ran(folder, *arguments(folder, "store", "embedded", ",".join(ARMS), "0,1,2"), env=path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """BM25's text alone, from two files, each large enough to be loaded in two parts."""
    folder = tmp_path_factory.mktemp("plain")
    write_tiny(folder)
    (folder / "corpus").mkdir()
    for name, text in in_files(folder, 2).items():
        (folder / "corpus" / name).write_text(text)
    return ran(folder, *arguments(folder, "store", "embedded", "bm25", "0", corpus="corpus"))


@pytest.mark.slow
def test_the_light_installation_goes_from_files_to_a_report(light: Ran) -> None:
    done, report = light.done, Artifact.open(light.report, "report")
    told = json.loads(report.path("report.json").read_text())
    (model,) = (line.removeprefix("Model: ") for line in done.stdout.splitlines() if line.startswith("Model: "))
    assert Artifact.open(model).manifest.kind == "model"
    assert "## Checks" not in done.stdout, "three seeds are enough"
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
def test_random_text_is_drawn_for_each_seed_and_all_else_made_once(light: Ran) -> None:
    told = json.loads(Artifact.open(light.report, "report").path("report.json").read_text())
    repeats = {group["name"]: (group["draws"], len(group["test"]["values"])) for group in told["groups"]}
    drawn = ("random", "dsir")  # the classifier's sample is the whole of a tiny corpus
    times = {text: (3, 3) if text in drawn else (0, 1) for text in ARMS}
    mixed = {f"static-{text}{more}": found for text, found in times.items() for more in ("", " + linear")}
    assert repeats == {"linear": (0, 1), **mixed}
    subsets = [one.details["arm"] for one in artifacts(str(light.folder / "store"), "subset")]
    assert sorted(subsets) == sorted([*ARMS[1:], *drawn, *drawn])
    assert [one["low"] is None for one in told["differences"] if "random" in one["second"]] == [False]
    assert all(group["test"]["low"] is not None for group in told["groups"])
    assert "run_seeds: str [Default: '0,1,2,3,4']" in compile_text(name="shallow")


@pytest.mark.slow
def test_tomorrow_s_run_says_what_changed_since_today_s(plain: Ran, tmp_path: Path) -> None:
    for name in ("corpus", "task"):
        shutil.copytree(plain.folder / name, tmp_path / name)
    train = tmp_path / "task" / "train.jsonl"
    lines = train.read_text().splitlines(keepends=True)
    train.write_text("".join(lines[1:]))
    given = arguments(tmp_path, plain.folder / "store", "embedded", "bm25", "0", corpus="corpus")
    more = ["--set", f"report_against={plain.report}", "--set", "run_overrides=retrieve.share=classes"]
    tomorrow = Artifact.open(ran(tmp_path, *given, *more).report, "report")
    found = json.loads(tomorrow.path("report.json").read_text())["since"]
    (row,) = [row for row in found["data"]["splits"] if row["split"] == "train"]
    assert (row["removed"], row["added"], row["relabelled"]) == (1, 0, 0)
    assert found["tests"]["before"] == found["tests"]["now"] == found["tests"]["both"] > 0
    shares = [one.details.get("share") for one in artifacts(str(plain.folder / "store"), "hits")]
    assert sorted(shares, key=str) == [None, "classes"]


@pytest.mark.slow
def test_with_a_registry_the_best_model_is_registered_once(plain: Ran) -> None:
    assert "register" not in plain.done.stderr, "a step without a registry"
    given = arguments(plain.folder, "store", "embedded", "bm25", "0", corpus="corpus")
    registry = StandIn("v1alpha3")
    with serving(registry) as url:
        named = [*given, "--set", f"registry_address={url}", "--set", "registry_model=weather"]
        run = ran(plain.folder, *named)
        assert f"model registry {url}: answers" in run.done.stderr
        posted = [call for call in registry.calls if call.startswith("POST")]
        assert len(posted) == 3
        ran(plain.folder, *named)
        assert [call for call in registry.calls if call.startswith("POST")] == posted
    (model,), (version,), (artifact,) = registry.entries.values()
    assert model["name"] == "weather"
    assert version["customProperties"]["report"]["string_value"] == run.report == plain.report
    assert artifact["modelSourceId"]
    assert artifact["modelSourceName"].startswith("tlm-shallow")
    assert "{{" not in json.dumps(artifact), "a placeholder that was not filled in"


@pytest.mark.slow
def test_a_corpus_that_several_pods_load_gives_the_same_report(plain: Ran, tmp_path: Path) -> None:
    """Two files, each cut in two; each pod takes every other piece. All steps after them find the same inputs."""
    given = arguments(plain.folder, "store", "embedded", "bm25", "0", corpus="corpus")
    assert ran(tmp_path, "--data-pods", "2", *given).made == plain.made
    assert {name.partition("/")[0] for name in plain.made} == {"corpus", "hits", "subset", "metrics"}
    assert len(artifacts(str(tmp_path / "store"), "corpus-plan")[0].details["parts"]) == 4


@pytest.mark.slow
def test_its_report_has_no_network_that_chooses_text(plain: Ran) -> None:
    """Pipeline `rerank` needs one that was trained on BM25's text."""
    refused = run_in(plain.folder, "pipelines.run", "local", *after(plain.report), code=2)
    assert "there is none; train bm25" in refused.stderr
    assert "Traceback" not in refused.stderr


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


def test_its_description_is_its_own() -> None:
    about = yaml.safe_load(compile_text(name="shallow").split("\n---")[0])["pipelineInfo"]["description"]
    assert about.startswith("Compare a linear model of the task with static word vectors")


def test_it_is_not_for_several_nodes() -> None:
    with pytest.raises(InputError, match="trains no network; leave --nodes out"):
        build("shallow", Parallelism(nodes=2))
