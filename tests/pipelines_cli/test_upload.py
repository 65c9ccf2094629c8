"""`upload`: a pipeline once, each version once, and never two contents under one name."""

import subprocess
from copy import copy
from pathlib import Path

import pytest

from pipelines import compiled
from tests.pipelines_cli.standin import Answer, StandIn, refusal
from tlm import __version__
from tlm.artifacts import produce
from tlm.errors import InputError


def test_the_first_version_and_the_next(ask, api: StandIn, compiled: Path) -> None:
    done = ask("upload", "--version", "0.1.0-aaa1111")
    assert done.code == 0, done.err
    (pipeline,) = api.pipelines.values()
    (first,) = api.versions.values()
    assert (pipeline.name, pipeline.display_name) == ("tlm", "tlm")
    about = first.pipeline_spec["pipeline_spec"]["pipelineInfo"]["description"].splitlines()[0]
    assert pipeline.description == f"{about} *Pipeline Spec* says what the parameters mean."
    assert (first.name, first.display_name, first.pipeline_id) == (*["0.1.0-aaa1111"] * 2, pipeline.pipeline_id)
    link = f"{api.url}/#/pipelines/details/{pipeline.pipeline_id}/version/{first.pipeline_version_id}"
    assert done.out == f"{first.pipeline_version_id}\n{link}\n"
    assert ask("upload", "--version", "0.1.0-bbb2222").code == 0
    assert (len(api.pipelines), len(api.versions)) == (1, 2)
    assert first.pipeline_spec["pipeline_spec"]["pipelineInfo"]["name"] == "tlm"


def test_a_pipeline_is_called_as_asked(ask, api: StandIn) -> None:
    assert ask("upload", "--name", "mine", "--version", "v1").code == 0
    assert [(one.name, one.display_name) for one in api.pipelines.values()] == [("mine", "mine")]


def test_the_same_version_again_is_no_error(ask, api: StandIn, compiled: Path) -> None:
    first = ask("upload", "--version", "v1")
    again = ask("upload", "--version", "v1")
    assert (again.code, again.out) == (0, first.out)
    assert "version v1 already exists" in again.err
    assert len(api.versions) == 1
    compiled.write_text(compiled.read_text() + "# changed\n")
    other = ask("upload", "--version", "v1")
    assert other.code == 2
    assert "version v1 of 'tlm' exists with other content; commit, or give another --version" in other.err


def test_of_versions_that_are_shown_alike_the_newest_counts(ask, api: StandIn) -> None:
    assert ask("upload", "--version", "v1").code == 0
    (first,) = api.versions.values()
    api.versions["newer"] = newer = copy(first)
    newer.pipeline_version_id = "newer"
    assert ask("upload", "--version", "v1").out.split()[0] == "newer"


def test_an_upload_that_arrived_although_no_answer_came(ask, api: StandIn) -> None:
    assert ask("upload", "--version", "v1").code == 0
    (found,) = api.versions.values()
    api.versions.clear()

    def arrives_late() -> None:
        api.versions[found.pipeline_version_id] = found
        raise Answer(504, "gateway timeout", "text/html")

    api.fail("POST /pipelines/upload_version", arrives_late)  # the second try then meets 409
    done = ask("upload", "--version", "v1")
    assert (done.code, done.out.split()[0]) == (0, found.pipeline_version_id)


def test_a_pipeline_that_another_made_meanwhile(ask, api: StandIn) -> None:
    def another() -> None:
        api.answer("POST", "/pipelines", {}, {"display_name": "tlm", "name": "tlm"})

    api.fail("POST /pipelines", another)
    assert ask("upload", "--version", "v1").code == 0
    assert (len(api.pipelines), len(api.versions)) == (1, 1)


def test_several_users(ask, api: StandIn) -> None:
    api.multi_user = True
    for name in ("ann", "bob", "ann"):
        assert ask("upload", "--namespace", name, "--version", f"v-{name}").code == 0
    assert sorted(one.namespace for one in api.pipelines.values()) == ["ann", "bob"]


def test_an_upload_that_is_refused(ask, api: StandIn) -> None:
    api.fail("POST /pipelines/upload_version", Answer(400, '{"error_message": "Failed to read"}'))
    done = ask("upload", "--version", "v1")
    assert (done.code, "answers 400: Failed to read" in done.err) == (2, True)
    api.fail("GET /pipelines/names", refusal(403, "no get"))
    assert "answers 403: no get" in ask("upload", "--version", "v1").err


def test_a_version_is_called_by_version_and_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(produce, "__file__", str(tmp_path / "tlm" / "artifacts" / "produce.py"))
    monkeypatch.setattr(compiled, "revision", produce.revision.__wrapped__)  # looked up once in a process
    with pytest.raises(InputError, match="name the version with --version"):
        compiled.version_name()
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x")
    (tmp_path / "version.py").write_text("")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x"), ("tag", "-a", "v9", "-m", "x")):
        subprocess.run([*git, *command], check=True)
    short = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert compiled.version_name() == f"{__version__}-{short.strip()}"
    (tmp_path / "version.py").write_text("changed")
    assert compiled.version_name() == f"{__version__}-{short.strip()}-dirty"
