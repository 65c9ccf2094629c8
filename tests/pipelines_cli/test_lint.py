"""The linter: nothing to say of our own pipeline, and of each fault planted in it exactly that one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.compile.compiled import Compiled
from pipelines.compile.lint import lint

Plant = Callable[[dict[str, Any], dict[str, Any]], None]


def container(spec: dict[str, Any], step: str = "export") -> dict[str, Any]:
    return spec["deploymentSpec"]["executors"][f"exec-{step}"]["container"]


def parameters(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["root"]["inputDefinitions"]["parameters"]


def task(spec: dict[str, Any], name: str = "export") -> dict[str, Any]:
    return spec["root"]["dag"]["tasks"][name]


def in_the_loop(spec: dict[str, Any]) -> dict[str, Any]:
    (loop,) = [
        one["dag"]["tasks"] for one in spec["components"].values() if "train" in one.get("dag", {}).get("tasks", {})
    ]
    return loop["train"]


def context(platform: dict[str, Any], step: str = "export") -> dict[str, Any]:
    return platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{step}"]["securityContext"]


def installs(command: str) -> Plant:
    return lambda spec, platform: container(spec).update(command=["sh", "-c", command])


def image(reference: str) -> Plant:
    return lambda spec, platform: container(spec).update(image=reference)


def parameter(name: str, **entry: Any) -> Plant:
    return lambda spec, platform: parameters(spec).update(
        {name: {"parameterType": "STRING", "isOptional": True, **entry}}
    )


def without_limit(kind: str) -> Plant:
    def plant(spec: dict[str, Any], platform: dict[str, Any]) -> None:
        resources = container(spec)["resources"]
        for name in [name for name in resources if name.lower().endswith(f"{kind}limit")]:
            del resources[name]

    return plant


def exit_handler(spec: dict[str, Any], platform: dict[str, Any]) -> None:
    spec["components"]["comp-exit-handler-1"] = {"dag": {"tasks": spec["root"]["dag"]["tasks"]}}
    spec["root"]["dag"]["tasks"] = {"exit-handler-1": {"componentRef": {"name": "comp-exit-handler-1"}}}


def late(spec: dict[str, Any], platform: dict[str, Any]) -> None:
    task(spec)["retryPolicy"] = {"maxRetryCount": 2, "backoffMaxDuration": "3600s"}  # as kfp writes it unasked


FAULTS: list[tuple[str, Plant, str, str]] = [
    ("pip", installs("python3 -m pip install --quiet numpy && run"), "export", "installs packages when it runs"),
    ("pip, options before", installs("pip3 --no-input install x"), "export", "installs packages when it runs"),
    ("uv", installs("uv pip install x"), "export", "installs packages when it runs"),
    ("apt", installs("apt-get -y install gcc"), "export", "installs packages when it runs"),
    (
        "latest",
        image("ghcr.io/x/tlm-data:latest"),
        "export",
        "image 'ghcr.io/x/tlm-data:latest' can change",
    ),
    ("no tag", image("localhost:5000/tlm-data"), "export", "image 'localhost:5000/tlm-data' has no tag"),
    ("no cpu limit", without_limit("cpu"), "export", "has no cpu limit"),
    ("no memory limit", without_limit("memory"), "export", "has no memory limit"),
    ("root", lambda spec, platform: context(platform).pop("runAsNonRoot"), "export", "may run as root"),
    ("user 0", lambda spec, platform: context(platform).update(runAsUser="0"), "export", "may run as root"),
    ("secret", parameter("store_secret_key", defaultValue=""), "parameter 'store_secret_key'", "looks like a secret"),
    ("token", parameter("hub_token", defaultValue=""), "parameter 'hub_token'", "looks like a secret"),
    ("api key", parameter("es_apikey", defaultValue=""), "parameter 'es_apikey'", "looks like a secret"),
    ("None", parameter("corpus_x"), "parameter 'corpus_x'", "has no default, or None"),
    ("no default", parameter("corpus_x", isOptional=False), "parameter 'corpus_x'", "has no default, or None"),
    (
        "secret in env",
        lambda spec, platform: container(spec).update(env=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]),
        "export",
        "holds the secret AWS_SECRET_ACCESS_KEY in plain text",
    ),
    ("cached", lambda spec, platform: task(spec).update(cachingOptions={"enableCache": True}), "export", "is cached"),
    (
        "cached in the loop",
        lambda spec, platform: in_the_loop(spec).update(cachingOptions={"enableCache": True}),
        "train",
        "is cached",
    ),
    ("exit handler", exit_handler, "exit-handler-1", "is an ExitHandler"),
    (
        "time to live",
        lambda spec, platform: platform["platforms"]["kubernetes"].update(
            pipelineConfig={"resourceTtlOnCompletion": 604_800, "workspace": {"size": "1Gi"}}
        ),
        "the pipeline",
        "has resourceTtlOnCompletion, for which KFP 2.16 ignores all limits and secrets",
    ),
    ("kfp's longest", late, "export", "is not retried later than an hour"),
    (
        "no longest",
        lambda spec, platform: task(spec).update(retryPolicy={"maxRetryCount": 1}),
        "export",
        "is not retried later than an hour",
    ),
]


def test_of_ours_there_is_nothing_to_say(ours: Compiled) -> None:
    assert lint(ours) == []


@pytest.mark.parametrize(("name", "plant", "step", "what"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_is_found_and_nothing_else(
    cli, ours: Compiled, tmp_path: Path, name: str, plant: Plant, step: str, what: str
) -> None:
    plant(ours.spec, ours.platform)
    file = tmp_path / "spoilt.yaml"
    file.write_text(yaml.safe_dump_all(ours))
    done = cli("lint", file)
    assert done.code == 2
    (line,) = done.out.splitlines()
    assert line.startswith(f"{file}: {step}: {what}")
    assert line.count(": ") >= 3, "it does not say what to do"


def test_a_pipeline_without_platform_settings_may_run_as_root(ours: Compiled) -> None:
    findings = lint(Compiled(ours.spec, {}))
    assert {finding.split(": ")[1] for finding in findings} == {"may run as root"}
    assert {finding.split(": ")[0] for finding in findings} == set(ours.steps())


def test_names_that_only_look_like_secrets(ours: Compiled) -> None:
    for name in ("tokenizer_kind", "max_tokens", "secretary", "keyboard", "corpus_key_field"):
        parameter(name, defaultValue="")(ours.spec, ours.platform)
    assert lint(ours) == []


def test_a_clean_file_ends_with_0_in_each_form(cli, tmp_path: Path) -> None:
    for options in ((), ("--kubernetes-manifests",)):
        assert cli("compile", "-o", tmp_path / "tlm.yaml", *options).code == 0
        done = cli("lint", tmp_path / "tlm.yaml")
        assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(("text", "said"), [("a: 1\n", "found no compiled pipeline"), ("{", "not valid YAML")])
def test_another_file_is_one_sentence(cli, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "other.yaml"
    done = cli("lint", file)
    assert (done.code, f"{file}: cannot be read" in done.err) == (2, True)
    file.write_text(text)
    done = cli("lint", file)
    assert (done.code, f"{file}: {said}" in done.err, done.err.count("\n")) == (2, True, 1)
