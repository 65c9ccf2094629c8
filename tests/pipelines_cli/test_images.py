"""Images from a file: exact references only, and the pipeline runs in them wherever it runs."""

import json
import runpy
from pathlib import Path

import pytest
from google.protobuf import json_format

from components import base
from components.base import DATA_IMAGE, TRAIN_IMAGE
from pipelines.compiled import build, load_images, reference_fault, use_images
from tlm.errors import InputError
from tlm.training.distributed.launch import LOCKS

DIGEST = "sha256:" + "0123456789abcdef" * 4
GOOD = {"data": "localhost:5000/a/tlm-data:0.1.0-abc1234-dirty", "train": f"registry.example/tlm-train@{DIGEST}"}


@pytest.mark.parametrize("reference", [*GOOD.values(), "tlm-data:1", f"a/b:1@{DIGEST}", "127.0.0.1:5000/x_y/z:v1"])
def test_exact_references(reference: str) -> None:
    assert reference_fault(reference) == ""


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "ghcr.io/x/tlm-data:latest",
            "'ghcr.io/x/tlm-data:latest' is :latest, which can change; give an exact tag or a digest",
        ),
        ("ghcr.io/x/tlm-data", "is :latest, which can change; give an exact tag or a digest"),
        ("localhost:5000/tlm-data", "is :latest, which can change; give an exact tag or a digest"),
        ("tlm-data@sha256:12", "is no image reference; write repository:tag or repository@sha256:digest"),
        ("tlm data:1", "is no image reference"),
        (None, "None is no image reference"),
    ],
)
def test_what_may_become_another_image_is_refused(tmp_path: Path, reference: str, said: str) -> None:
    file = tmp_path / "images.json"
    file.write_text(json.dumps({**GOOD, "data": reference}))
    with pytest.raises(InputError) as error:
        load_images(file)
    assert str(error.value).startswith(f"{file}: image 'data': ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"data": "a:1", "trian": "b:1"}', "the image 'train' is missing; expected both 'data' and 'train'"),
        ("data: a:1\n", "the image 'train' is missing; expected both 'data' and 'train'"),
        (
            "- a:1\n",
            "expected a mapping with 'data' and 'train', as `make images` writes it to build/images.json, found a list",
        ),
        ("{", "not valid YAML or JSON"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "images.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as error:
        load_images(file)
    assert str(error.value).startswith(f"{file}: {said}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "command", [("compile", "-o", "tlm.yaml"), ("upload", "--version", "v1"), ("submit",), ("local",)], ids=" ".join
)
def test_every_command_that_takes_images_refuses_latest(
    cli, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("TLM_THREADS", LOCKS):  # which `local` sets
        monkeypatch.setenv(variable, "1")
    Path("images.json").write_text(json.dumps({**GOOD, "train": "ghcr.io/x/tlm-train:latest"}))
    done = cli(*command, "--images", "images.json")
    said = "image 'train': 'ghcr.io/x/tlm-train:latest' is :latest, which can change; give an exact tag or a digest"
    assert (done.code, done.err, done.out) == (2, f"pipelines.run: images.json: {said}\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["images.json"]


def test_the_image_that_serves_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    file.write_text(json.dumps({**GOOD, "serve": "localhost:5000/a/tlm-serve:0.1.0"}))
    assert load_images(file) == GOOD


def test_every_step_runs_in_the_image_of_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("".join(f"{kind}: {reference}\n" for kind, reference in GOOD.items()))
    tlm = build("tlm")
    before = json_format.MessageToJson(tlm.pipeline_spec)
    changed = build("tlm")
    use_images(changed, file)
    own = {DATA_IMAGE: GOOD["data"], TRAIN_IMAGE: GOOD["train"]}
    old, new = (
        {name: executor["container"]["image"] for name, executor in spec.deployment_spec["executors"].items()}
        for spec in (tlm.pipeline_spec, changed.component_spec.implementation.graph)
    )
    assert new == {name: own[image] for name, image in old.items()}
    assert set(new.values()) == set(GOOD.values())
    assert json_format.MessageToJson(tlm.pipeline_spec) == before, "the pipeline itself was changed"


def test_an_empty_registry_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file of variables names it without a value."""
    monkeypatch.setenv("TLM_IMAGES", "")
    made = runpy.run_path(str(Path(base.__file__)))
    assert made["DATA_IMAGE"].startswith("ghcr.io/tlm-kubeflow/tlm-data:")
