"""`tlm kserve-manifest`: valid for KServe's definitions; the files at its address are what the runtimes load."""

from pathlib import Path

import boto3
import numpy as np
import pytest
import yaml

from tests.k8s import policies
from tests.k8s.test_schemas import NEWEST, OLDEST, faults
from tests.toys_training import checkpoint, model, rows, task
from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.stores.store import FORBIDDEN
from tlm.errors import InputError
from tlm.evaluation.predict.predictor import open_predictor
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.serving.serve import DRAIN_SECONDS, VERSION_DIGITS, default_port, manifest

TLM = {"runtime": "tlm", "image": "example.org/tlm-serve:1"}
TEXTS = ["the judge", "cell", "ship wave harbour " * 40]


@pytest.fixture(scope="module")
def toys(tmp_path_factory) -> dict[str, Artifact]:
    """An encoder of single texts with its metrics, a linear model's metrics, and a model of numbers."""
    root = tmp_path_factory.mktemp("toys")
    labelled, numbers = task(root), task(root, rows(regression=True), "pearson", labels=False)
    encoder = model(root, checkpoint(root, labelled), labelled, "finetune.epochs=4")
    return {
        "encoder": encoder,
        "metrics": Artifact.open(evaluate(encoder.uri, labelled, device="cpu")),
        "linear": Artifact.open(baseline(labelled)),
        "numbers": model(root, checkpoint(root, numbers), numbers, "finetune.epochs=1"),
    }


@pytest.fixture
def stored(toys, s3_root) -> dict[str, str]:
    """Their URIs on S3."""
    local, store = Path(toys["encoder"].store.root), home(s3_root, ())
    for path in local.glob("[a-z]*/*/**/*"):
        if path.is_file() and not path.is_relative_to(local / "progress"):
            store.add(f"{path.relative_to(local)}", path)
    return {name: f"{s3_root}/{one.folder_name}" for name, one in toys.items()}


def served(text: str) -> tuple[dict, dict]:
    service, policy = yaml.safe_load_all(text)
    return service, policy


def downloaded(address: str, folder: Path) -> Path:
    """What is at an S3 address, as KServe's storage initializer puts it into a folder."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    client = boto3.client("s3")
    for item in client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]:
        target = folder / item["Key"].removeprefix(f"{prefix}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, item["Key"], str(target))
    return folder


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_both_runtimes_are_valid(stored, version):
    own = manifest(stored["linear"], name="b", runtime="tlm", image="example.org/tlm-serve:1", service_account="reader")
    assert faults(f"{manifest(stored['encoder'], name='a', namespace='here')}\n---\n{own}", version) == []


def test_it_is_yaml_that_people_read(stored):
    assert "&id" not in manifest(stored["encoder"], name="a")


def test_a_wrong_field_would_be_found(stored):
    text = manifest(stored["encoder"], name="a").replace("storageUri", "storageURL")
    assert "storageURL" in faults(text, NEWEST)[0]


def test_transformers_loads_what_is_at_the_address_and_predicts_alike(stored, toys, tmp_path):
    from transformers import pipeline

    service, _ = served(manifest(stored["metrics"], name="a"))
    predictor = service["spec"]["predictor"]["model"]
    assert {"--model_name=a", "--dtype=float32", "--return_probabilities"} <= {*predictor["args"]}
    folder = downloaded(predictor["storageUri"], tmp_path / "models")
    (length,) = (int(one.partition("=")[2]) for one in predictor["args"] if one.startswith("--max_model_len="))
    theirs = pipeline("text-classification", model=str(folder), top_k=None)
    answers = theirs(TEXTS, truncation=True, max_length=length)
    ours, _ = open_predictor(toys["encoder"].path("model"), "cpu")
    expected = ours.predict(TEXTS)
    found = [[{one["label"]: one["score"] for one in answer}[label] for label in ours.labels] for answer in answers]
    assert np.abs(np.array(found) - expected).max() < 1e-4


def test_our_own_server_says_which_answers_are_unsure(stored):
    args = [
        served(manifest(stored["linear"], name="b", **TLM, **given))[0]["spec"]["predictor"]["containers"][0]["args"]
        for given in ({}, {"at_least": 0.875})
    ]
    assert args[1] == [*args[0], "--at-least", "0.875"]


def test_both_runtimes_have_what_is_asked_for(stored):
    given = {"name": "b", "namespace": "mine", "service_account": "reader", "cpu": "2", "memory": "3Gi"}
    for which, runtime in (("encoder", {}), ("linear", TLM)):
        service, policy = served(manifest(stored[which], **given, **runtime))
        assert {service["metadata"]["namespace"], policy["metadata"]["namespace"]} == {"mine"}
        assert service["metadata"]["annotations"] == {"serving.kserve.io/deploymentMode": "Standard"}
        predictor = service["spec"]["predictor"]
        assert predictor["serviceAccountName"] == "reader"
        container = predictor["containers"][0] if runtime else predictor["model"]
        assert container["resources"] == {key: {"cpu": "2", "memory": "3Gi"} for key in ("requests", "limits")}


def test_the_pod_of_our_own_server_meets_the_restricted_profile(stored):
    pod = served(manifest(stored["linear"], name="b", **TLM))[0]["spec"]["predictor"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    assert pod["securityContext"].items() >= policies.RESTRICTED_POD.items()
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["automountServiceAccountToken"] is False
    forbidden = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    assert container["securityContext"] == {**forbidden, "capabilities": {"drop": ["ALL"]}}
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/tmp"}]  # all that it can write to
    assert volume["emptyDir"]["sizeLimit"] == "1Gi"


def test_our_own_server_is_asked_where_it_listens_and_may_finish(stored, toys):
    service, policy = served(manifest(stored["linear"], name="b", **TLM))
    pod = service["spec"]["predictor"]
    (container,), (port,) = pod["containers"], policy["spec"]["ingress"][0]["ports"]
    version = toys["linear"].input("model").content[:VERSION_DIGITS]
    given = {"--host": "0.0.0.0", "--port": "8080", "--name": "b", "--model-version": version}
    assert dict(zip(container["args"][::2], container["args"][1::2], strict=True)) == given
    assert (port, container["ports"][0]["containerPort"]) == ({"port": 8080, "protocol": "TCP"}, 8080)
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {one["port"] for one in asked.values()} == {8080}
    assert [one["path"].rpartition("/")[2] for one in asked.values()] == ["live", "live", "ready"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert 0 < pause < pod["terminationGracePeriodSeconds"] - DRAIN_SECONDS


def test_our_own_server_loads_what_is_at_the_address(stored, toys, tmp_path):
    service, _ = served(manifest(stored["linear"], name="b", runtime="tlm", image="example.org/tlm-serve:1"))
    (container,) = service["spec"]["predictor"]["containers"]
    startup = container["startupProbe"]  # the liveness probe would end a pod that takes half a minute to load its model
    assert startup["periodSeconds"] * startup["failureThreshold"] == 600
    (address,) = (one["value"] for one in container["env"] if one["name"] == "STORAGE_URI")
    (threads,) = (one["valueFrom"] for one in container["env"] if one["name"] == "TLM_THREADS")
    assert threads == {"resourceFieldRef": {"resource": "limits.cpu"}}  # Kubernetes rounds it up to whole CPUs
    found, _ = open_predictor(downloaded(address, tmp_path / "models"), "cpu")
    expected, _ = open_predictor(toys["linear"].input("model").path("model"), "cpu")
    assert (found.predict(TEXTS) == expected.predict(TEXTS)).all()


def test_the_address_has_the_digest_of_the_files(stored, toys):
    """So the files under a service that runs never change."""
    service, _ = served(manifest(stored["encoder"], name="a"))
    address = service["spec"]["predictor"]["model"]["storageUri"]
    (entry,) = toys["encoder"].entries("model/config.json")
    assert address == f"{stored['encoder']}/{entry.name.rpartition('/')[0]}"
    assert address.rpartition("/")[2] != "model"


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("http://store.mine", 80),
        ("http://store.mine/", 80),
        ("https://store.mine", 443),
        ("http://store.mine:9000", 9000),
        ("https://[fd00::1]:9000/path", 9000),
        ("", 443),
    ],
)
def test_the_port_of_the_store_is_that_of_its_address(monkeypatch, address, port):
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    assert default_port() == port
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other.mine:1")  # of all services; S3's own counts first
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
    assert default_port() == (port if address else 1)


def test_pods_reach_the_store_and_names_alone(stored, s3_server):
    _, policy = served(manifest(stored["encoder"], name="a"))
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert sorted(ports) == sorted([53, 53, int(s3_server.url.rpartition(":")[2])])
    assert policy["spec"]["podSelector"]["matchLabels"] == {"serving.kserve.io/inferenceservice": "a"}
    service, policy = served(manifest(stored["encoder"], name="a", store_port=8333))  # behind a Service at another port
    _, old, new = policy["spec"]["egress"][1]["to"]
    assert {*old["ipBlock"]["except"], *new["ipBlock"]["except"]} == {str(network) for network in FORBIDDEN}
    assert {"namespaceSelector", "podSelector"} == policy["spec"]["egress"][0]["to"][0].keys()
    assert policy["spec"]["egress"][1]["ports"] == [{"port": 8333, "protocol": "TCP"}]
    assert service["spec"]["predictor"]["labels"] == {"sidecar.istio.io/inject": "false"}


@pytest.mark.parametrize(
    ("which", "settings", "sentence"),
    [
        ("linear", {}, "of the family 'tf-idf', which transformers does not load; use --runtime tlm"),
        ("numbers", {}, "predicts a number, but KServe's runtime answers with classes; use --runtime tlm"),
        ("encoder", {"name": "My_Model"}, "name is 'My_Model'; expected at most 40 lower-case letters"),
        ("encoder", {"name": "a" * 41}, "expected at most 40"),
        ("encoder", {"runtime": "tlm"}, "--runtime tlm, and only that, needs an image"),
        ("encoder", {"image": "x"}, "--runtime tlm, and only that, needs an image"),
        ("encoder", {"at_least": 0.9}, "at_least is 0.9, but KServe's runtime marks no answer as unsure"),
        ("numbers", {"at_least": 0.9, **TLM}, "the model answers with numbers; --at-least needs one label a text"),
        ("encoder", {"store_port": 90000}, "store_port is 90000; expected 0 to 65535"),
        ("encoder", {"at_least": 2.0, **TLM}, "at_least is 2.0; expected a probability from 0 to 1"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(stored, which, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        manifest(stored[which], **{"name": "a", **settings})


def test_a_model_on_this_machine_is_out_of_a_cluster_s_reach(toys):
    with pytest.raises(InputError, match="is not on S3, where a cluster can read it"):
        manifest(toys["encoder"].uri, name="a")


def test_a_model_that_reads_both_ends_of_long_texts_is_refused_by_kserve_s_runtime(tmp_path, s3_root, monkeypatch):
    labelled = task(tmp_path)
    encoder = model(tmp_path, checkpoint(tmp_path, labelled, "model.cut=head+tail"), labelled, "finetune.epochs=1")
    monkeypatch.setattr("tlm.serving.serve.storage_uri", lambda model: "s3://bucket/model")
    with pytest.raises(InputError, match="reads head and tail of long texts, which only `tlm` cuts so; use --runtime"):
        manifest(encoder.uri, name="a")
    assert "storageUri" not in manifest(encoder.uri, name="a", **TLM)


def test_a_model_that_reads_marked_spans_first_is_refused_by_kserve_s_runtime(tmp_path, s3_root, monkeypatch):
    marked = task(tmp_path, [(f"[[ a ]] and << {text} >>", *rest) for text, *rest in rows()])
    encoder = model(tmp_path, checkpoint(tmp_path, marked), marked, "finetune.epochs=1")
    monkeypatch.setattr("tlm.serving.serve.storage_uri", lambda model: "s3://bucket/model")
    with pytest.raises(InputError, match="reads marked spans first, which only `tlm` prepares so; use --runtime tlm"):
        manifest(encoder.uri, name="a")
