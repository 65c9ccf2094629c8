"""Every overlay is built and validated at the oldest and the newest Kubernetes that KFP 2.17 is tested with."""

import pytest
import yaml

from tests.k8s import tools

OLDEST, NEWEST = "1.33", "1.36"
BUILT = ["overlays/kind", "overlays/cluster"]
EXAMPLE = tools.ROOT / "k8s/examples/secrets.yaml"


def faults(text: str, version: str) -> list[str]:
    done = tools.run("python", tools.HERE / "validate.py", version, *tools.definitions(), stdin=text)
    assert not done.stderr, done.stderr
    return done.stdout.strip().splitlines()


@pytest.fixture(scope="module")
def external_secrets(tmp_path_factory):
    """The component, in a kustomization as a person would write it."""
    component = tools.ROOT / "k8s/components/external-secrets"
    folder = tmp_path_factory.mktemp("external-secrets")
    (folder / "component").mkdir()
    for file in component.iterdir():
        (folder / "component" / file.name).write_bytes(file.read_bytes())
    text = (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ncomponents: [component]\nnamespace: mine\n"
    )
    (folder / "kustomization.yaml").write_text(text)
    return tools.build(folder)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_overlays_and_examples_are_valid(version, external_secrets):
    built = [tools.build(tools.ROOT / "k8s" / overlay) for overlay in BUILT]
    assert faults("\n---\n".join([*built, EXAMPLE.read_text(), external_secrets]), version) == []


def test_both_examples_of_secrets_are_of_the_same_secrets(external_secrets):
    plain = {document["metadata"]["name"] for document in yaml.safe_load_all(EXAMPLE.read_text())}
    external = {document["metadata"]["name"] for document in yaml.safe_load_all(external_secrets)}
    assert plain == external


PLANTED = {
    "misspelt": ("v1", "ConfigMap", "date: {}", "'date' was unexpected"),
    "gone": ("policy/v1beta1", "PodDisruptionBudget", "spec: {}", "find schema"),
    "wrong-type": ("policy/v1", "PodDisruptionBudget", "spec: {selector: []}", "is not of type"),
    "no-such-field": (
        "elasticsearch.k8s.elastic.co/v1",
        "Elasticsearch",
        "spec: {version: 9.5.0, nodeSets: [{name: default, number: 3}]}",
        "'number' was unexpected",
    ),
    "missing": (
        "elasticsearch.k8s.elastic.co/v1",
        "Elasticsearch",
        "spec: {nodeSets: []}",
        "'version' is a required property",
    ),
    "old-version": ("external-secrets.io/v1beta1", "ExternalSecret", "spec: {}", "find schema"),
    "no-such-setting": ("trainer.kubeflow.org/v1alpha1", "TrainJob", "spec: {x: 1}", "'x' was unexpected"),
}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_planted_faults_are_found(version):
    lines = [
        f"{{apiVersion: {group}, kind: {kind}, metadata: {{name: {name}}}, {field}}}"
        for name, (group, kind, field, _) in PLANTED.items()
    ]
    found = faults("\n---\n".join(lines), version)
    for name, (*_, fault) in PLANTED.items():
        assert any(line.startswith(f"{name}: ") and fault in line for line in found), (name, found)


def test_a_kubernetes_that_the_schemas_do_not_know_is_no_success():
    assert "1.99" in faults("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "1.99")[0]
