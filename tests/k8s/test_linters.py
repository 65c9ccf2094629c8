"""Linters over what no test of behaviour reaches: manifests, shell scripts, workflows, the Dockerfile.

Each is shown to find a planted fault, so that a linter that looks at nothing is noticed.
"""

from pathlib import Path

import pytest

from tests.k8s import tools

WORKFLOWS = sorted((tools.ROOT / ".github/workflows").glob("*.yml"))
SCRIPTS = [*sorted((tools.ROOT / "k8s").rglob("*.sh")), tools.ROOT / ".ci/run", tools.ROOT / ".ci/docker.sh"]
DOCKERFILE = tools.ROOT / "docker/Dockerfile"
# What does not fit: our containers are steps that end, without health checks; the base image is an argument, with an
# exact tag as its default, which checkov does not see through.
CHECKOV = "CKV_DOCKER_2,CKV_DOCKER_7"
HADOLINT = "DL3064"  # takes the name of the folder in which a secret may be mounted for a secret


def yamllint(*paths: Path) -> tuple[str, ...]:
    return ("yamllint", "--strict", "--config-file", ".yamllint.yaml", *map(str, paths))


def shellcheck(*paths: Path) -> tuple[str, ...]:
    return ("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", "--severity=style", *map(str, paths))


def hadolint(*paths: Path) -> tuple[str, ...]:
    return ("hadolint", "--failure-threshold=info", f"--ignore={HADOLINT}", *map(str, paths))


def zizmor(*paths: Path) -> tuple[str, ...]:
    return ("zizmor", "--offline", "--persona=pedantic", "--no-config", *map(str, paths))


def workflow_schema(*paths: Path) -> tuple[str, ...]:
    return ("check-jsonschema", "--builtin-schema=vendor.github-workflows", *map(str, paths))


def actionlint(*paths: Path) -> tuple[str, ...]:
    return ("actionlint", "-shellcheck=", "-pyflakes=", *map(str, paths))


def checkov(framework: str, *paths: Path) -> tuple[str, ...]:
    files = [part for path in paths for part in ("--file", str(path))]
    options = ["--framework", framework, "--skip-check", CHECKOV, "--skip-download", "--compact", "--quiet"]
    return ("checkov", *options, *files)


@pytest.mark.parametrize(
    "command",
    [
        yamllint(tools.ROOT / "k8s", tools.ROOT / ".github"),
        shellcheck(*SCRIPTS),
        hadolint(DOCKERFILE),
        zizmor(*WORKFLOWS),
        workflow_schema(*WORKFLOWS),
        actionlint(*WORKFLOWS),
        checkov("dockerfile", DOCKERFILE),
    ],
    ids=lambda command: command[0],
)
def test_ours_is_clean(command):
    done = tools.run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_checkov_finds_nothing_in_the_overlays(tmp_path):
    built = [tmp_path / f"{overlay}.yaml" for overlay in ("kind", "cluster")]
    for file in built:
        file.write_text(tools.build(tools.ROOT / "k8s/overlays" / file.stem))
    done = tools.run(*checkov("kubernetes", *built))
    assert done.returncode == 0, done.stdout + done.stderr


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n    - {name: x, image: 'x:latest'}\n"
WORKFLOW = "on: {event}\npermissions: {{}}\njobs:\n  x:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: {run}\n"
INJECTION = WORKFLOW.format(event="issues", run="echo ${{ github.event.issue.title }}")


@pytest.mark.parametrize(
    ("linter", "name", "planted", "said"),
    [
        (yamllint, "x.yaml", "a: 1\na: 2\n", "duplication of key"),
        (shellcheck, "x.sh", "#!/usr/bin/env bash\nrm -rf $1/*\n", "SC2086"),
        (hadolint, "Dockerfile", "FROM debian:latest\n", "DL3007"),
        (zizmor, "x.yml", INJECTION, "template-injection"),
        (workflow_schema, "x.yml", WORKFLOW.format(event="pusch", run="true"), "pusch"),
        (actionlint, "x.yml", WORKFLOW.format(event="push", run="echo ${{ matrix.x }}"), "matrix"),
        (lambda path: checkov("kubernetes", path), "x.yaml", POD, "CKV_K8S_14"),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
def test_a_planted_fault_is_found(linter, name, planted, said, tmp_path):
    file = tmp_path / name
    file.write_text(planted)
    done = tools.run(*linter(file))
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_there_is_something_to_look_at():
    assert {file.name for file in WORKFLOWS} == {"ci.yml", "kind.yml"}
    assert {"create-keys.sh", "run.sh", "up.sh"} <= {file.name for file in SCRIPTS}
