"""What is compiled, to the byte: a change of the pipeline shows as a change of the golden file."""

import difflib
from pathlib import Path

import pytest
import yaml

from pipelines.compiled import parse
from tests.pipelines_cli.conftest import GOLDEN


def test_the_golden_file(cli, tmp_path: Path) -> None:
    file = tmp_path / "tlm.yaml"
    assert cli("compile", "-o", file, "--images", GOLDEN / "images.json").code == 0
    now, before = file.read_text(), (GOLDEN / "tlm.yaml").read_text()
    changes = list(difflib.unified_diff(before.splitlines(), now.splitlines(), "golden", "now", lineterm="", n=1))
    assert not changes, "\n".join([*changes[:60], "If this is meant: make generated"])
    assert now == before


def test_for_2_15_nothing_is_left_that_it_does_not_know(cli, tmp_path: Path) -> None:
    file = tmp_path / "tlm.yaml"
    assert cli("compile", "-o", file, "--images", GOLDEN / "images.json", "--kfp-2-15").code == 0
    usual, old = parse((GOLDEN / "tlm.yaml").read_text()), parse(file.read_text())
    assert ["securityContext" in str(one) for one in (usual, old)] == [True, False]
    for name, task in usual.tasks():
        task["taskInfo"]["name"] = name
    assert old.spec == usual.spec


def test_the_manifests_hold_the_same_pipeline(cli, tmp_path: Path) -> None:
    file = tmp_path / "new" / "manifests.yml"
    options = ("--kubernetes-manifests", "--namespace", "kubeflow", "--version", "0.1.0-abc1234")
    assert cli("compile", "-o", file, "--images", GOLDEN / "images.json", *options).code == 0
    pipeline, version = yaml.safe_load_all(file.read_text())
    assert [one["apiVersion"] for one in (pipeline, version)] == ["pipelines.kubeflow.org/v2beta1"] * 2
    assert (pipeline["kind"], pipeline["metadata"]) == ("Pipeline", {"name": "tlm", "namespace": "kubeflow"})
    assert (version["kind"], version["metadata"]) == (
        "PipelineVersion",
        {"name": "tlm-0.1.0-abc1234", "namespace": "kubeflow"},
    )
    assert version["spec"]["pipelineName"] == "tlm"
    assert parse(file.read_text()) == parse((GOLDEN / "tlm.yaml").read_text())


def test_the_resources_of_another_pipeline_have_its_name(cli, tmp_path: Path) -> None:
    file = tmp_path / "manifests.yaml"
    options = ("--kubernetes-manifests", "--version", "v1", "--pipeline", "multitask")
    assert cli("compile", "-o", file, "--images", GOLDEN / "images.json", *options).code == 0
    pipeline, version = yaml.safe_load_all(file.read_text())
    assert (pipeline["metadata"]["name"], pipeline["spec"]["displayName"]) == ("tlm-multitask", "TLM for several tasks")
    assert (version["metadata"]["name"], version["spec"]["pipelineName"]) == ("tlm-multitask-v1", "tlm-multitask")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-o", "tlm.json"), "--output tlm.json: must end in .yaml"),
        (
            ("-o", "/proc/no/tlm.yaml", "--images", GOLDEN / "images.json"),
            "/proc/no: No such file or directory; fix that, then repeat",
        ),
        (
            ("-o", "s3://bucket/tlm.yaml", "--images", GOLDEN / "images.json"),
            "s3:/bucket/tlm.yaml is not on this machine; name a file or folder here",
        ),
        (
            ("-o", "x.yaml", "--kubernetes-manifests", "--version", "A_B"),
            "'tlm-A_B' is no name for a Kubernetes resource",
        ),
    ],
)
def test_wrong_options_are_one_sentence(cli, monkeypatch, tmp_path: Path, options, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("compile", *options)
    assert (done.code, sentence in done.err, done.err.count("\n")) == (2, True, 1)
