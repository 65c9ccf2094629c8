"""Models in Kubeflow's Model Registry: what is registered, once whatever happens on the way, and what is said if not.

``TLM_TEST_MODEL_REGISTRY_URL`` names a real registry; without it, there is a stand-in for each version of the API.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from urllib3 import PoolManager
from urllib3.exceptions import SSLError

from research.multitask.report import report_multitask
from tests.k8s import tools
from tests.servers.faulty import HALF, HANG_UP, LOST, RESET, Answer, Request, Weather, faulty
from tests.servers.model_registry import StandIn, serving
from tests.toys import make, make_task
from tests.unit.evaluation.test_mix import LABELS, SPLITS, Store, encoder, rows_of
from tlm.artifacts.artifact import Artifact, remove
from tlm.errors import InputError, Interrupted
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.imported import import_predictions
from tlm.runs import registry as client
from tlm.runs.preflight import preflight
from tlm.runs.registry import register

ROOT = Path(__file__).parents[2]
GIVEN = os.environ.get("TLM_TEST_MODEL_REGISTRY_URL", "")


@pytest.fixture(scope="module", params=["given"] if GIVEN else ["v1alpha3", "v1"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if GIVEN:
        yield GIVEN
    else:
        with serving(StandIn(request.param)) as found:
            yield found


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY", client.RETRY.new(backoff_factor=0))
    monkeypatch.delenv(client.SECRET, raising=False)


@pytest.fixture
def name() -> str:
    return f"tests/{uuid.uuid4()} «ü»"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def made(store: Store) -> str:
    """A report on the linear model, a static one, and their mixture."""
    mixed = store.mixed(store.baseline, store.static).uri
    return report([store.baseline, store.static, mixed], root=str(store.root))


def get(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def entries(url: str, name: str) -> dict[str, list[dict[str, Any]]]:
    """All that the registry has of a model, read without our client."""
    base = client.Registry(url).url
    model = get(f"{base}/registered_model?name={quote(name)}")
    versions = get(f"{base}/registered_models/{model['id']}/versions")["items"]
    artifacts = [one for each in versions for one in get(f"{base}/model_versions/{each['id']}/artifacts")["items"]]
    return {"models": [model], "versions": versions, "artifacts": artifacts}


def without_times(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """What is the same in every registry."""
    own = {"id", "registeredModelId", "createTimeSinceEpoch", "lastUpdateTimeSinceEpoch", "name"}
    return {kind: [{key: one[key] for key in one.keys() - own} for one in found[kind]] for kind in found}


# What is registered


def test_the_model_that_the_report_names_is_there(url: str, name: str, made: str, store: Store) -> None:
    told = json.loads(Artifact.open(made).path("report.json").read_text())
    address = register(made, address=f"{url}/", name=name, run="run-1", run_name="Monday's")
    found = entries(url, name)
    (version,), (artifact,) = found["versions"], found["artifacts"]
    assert get(address) == version
    best = Artifact.open(store.baseline)
    assert told["findings"][0].startswith("Use the linear model: ")  # although others are better on dev
    model = best.input("model")
    assert version["name"] == model.content[:12]
    assert version["description"] == told["findings"][0]
    values = {
        key: next(v for k, v in one.items() if k != "metadataType") for key, one in version["customProperties"].items()
    }
    assert values.pop("tlm")
    assert values.pop("checks").split(", ") == list(dict.fromkeys(check["code"] for check in told["checks"]))
    assert values == {
        "model": model.uri, "content": model.content, "report": made, "task": "toy", "arm": told["best"]["name"],
        "seed": "0", "metric": "macro_f1", "dev": best.details["dev"], "test": best.details["test"],
        "provenance": f"tlm provenance {model.uri}",
    }  # fmt: skip
    assert artifact["modelFormatName"] == "tlm"
    wanted = {"Kind": "kfp", "Class": "pipelinerun", "Id": "run-1", "Name": "Monday's"}
    assert {part: artifact[f"modelSource{part}"] for part in wanted} == wanted
    folder = Path(urllib.request.url2pathname(artifact["uri"].removeprefix("file://")))
    texts = ["alpha sea", "beta grass"]
    assert list(predict(str(folder), texts)) == list(predict(best.uri, texts))


def test_of_several_seeds_it_is_the_best_on_dev(url: str, name: str, store: Store) -> None:
    seeds = [Artifact.open(encoder(store.root, store.task, seed)) for seed in (-2, -1, 1)]  # the sign of the head
    assert len({one.details["dev"] for one in seeds}) > 1, "the test tells nothing"
    register(report([one.uri for one in seeds], root=str(store.root)), address=url, name=name)
    best = max(seeds, key=lambda one: one.details["dev"])
    (version,), (artifact,) = (entries(url, name)[kind] for kind in ("versions", "artifacts"))
    assert version["customProperties"]["seed"]["int_value"] == str(best.details["seed"])
    assert version["customProperties"]["content"]["string_value"] == best.input("model").content
    assert artifact["modelFormatName"] == "transformers"
    assert "modelSourceKind" not in artifact, "it was no pipeline's run"


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({"tlm_onnx": {"file": "model.onnx"}, "transformers_version": "5.1.0"}, {"modelFormatName": "onnx"}),
        ({"transformers_version": "5.1.0"}, {"modelFormatName": "transformers", "modelFormatVersion": "5.1.0"}),
    ],
    ids=["onnx", "transformers"],
)
def test_the_format_is_that_of_the_folder(
    url: str, name: str, store: Store, config: dict[str, Any], form: dict[str, str]
) -> None:
    scored = Artifact.open(store.static)

    def write_model(draft: Any) -> None:
        (draft.folder / "model").mkdir()
        (draft.folder / "model" / "config.json").write_text(json.dumps(config))

    def write_metrics(draft: Any) -> None:
        for file in ("metrics.json", "predictions.parquet"):
            shutil.copy(scored.path(file), draft.folder / file)
        draft.details.update(scored.details, of=form["modelFormatName"])  # metrics of equal content have one report

    model = make("model", store.root, write_model, config)
    metrics = make("metrics", store.root, write_metrics, config, {"model": model, "task": store.task})
    register(report([metrics], root=str(store.root)), address=url, name=name)
    (artifact,) = entries(url, name)["artifacts"]
    assert {key: artifact[key] for key in artifact if key.startswith("modelFormat")} == form


def test_on_s3_it_is_an_address_of_s3(url: str, name: str, s3_root: str) -> None:
    import boto3

    store = Store(s3_root)  # type: ignore[arg-type]
    register(report([store.baseline], root=s3_root), address=url, name=name)
    (version,), (artifact,) = (entries(url, name)[kind] for kind in ("versions", "artifacts"))
    assert artifact["uri"].startswith(f"{s3_root}/model/")
    bucket, _, folder = artifact["uri"].removeprefix("s3://").partition("/")
    stored = boto3.client("s3").get_object(Bucket=bucket, Key=f"{folder}/config.json")["Body"].read()
    assert json.loads(stored)["labels"] == LABELS
    assert version["customProperties"]["report"]["string_value"].startswith(f"{s3_root}/report/")


def test_the_model_is_called_as_the_task_by_default(made: str) -> None:
    with serving(StandIn("v1")) as url:
        register(made, address=url)
        assert [one["name"] for one in entries(url, "toy")["models"]] == ["toy"]


def test_the_official_client_reads_it(made: str) -> None:
    code = (
        "import sys, json; from model_registry import ModelRegistry\n"
        "api = ModelRegistry('http://127.0.0.1', int(sys.argv[1]), author='', is_secure=False)\n"
        "version, = api.get_model_versions('sciences'); artifact = api.get_model_artifact('sciences', version.name)\n"
        "print(json.dumps([api.get_registered_model('sciences').name, version.name, version.description,\n"
        "    version.custom_properties, artifact.uri, artifact.model_format_name, artifact.model_source_id]))\n"
    )
    with tools.or_missing():
        packages = tools.packages(Path(__file__).with_name("requirements-registry.txt"))
    with serving(StandIn("v1alpha3", "v1")) as url:
        register(made, address=url, name="sciences", run="run-7")
        (version,), (artifact,) = (entries(url, "sciences")[kind] for kind in ("versions", "artifacts"))
        command = [sys.executable, "-W", "ignore", "-c", code, url.rpartition(":")[2]]
        environment = {**os.environ, "PYTHONPATH": str(packages)}
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    model, called, description, properties, *rest = json.loads(said.splitlines()[-1])
    assert (model, called, description) == ("sciences", version["name"], version["description"])
    assert properties["report"] == made
    assert (type(properties["dev"]), type(properties["seed"])) == (float, int)
    assert rest == [artifact["uri"], "tlm", "run-7"]


# Once, whatever happens


def test_again_nothing_is_changed(url: str, name: str, made: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = register(made, address=url, name=name, run="run-1")
    before = entries(url, name)
    assert register(made, address=url, name=name, run="run-2", run_name="the next") == first
    assert entries(url, name) == before
    assert capsys.readouterr().err.splitlines()[-1].endswith("was registered already")


def test_another_model_is_another_version(url: str, name: str, made: str, store: Store) -> None:
    alone = report([store.static], root=str(store.root))
    addresses = {register(one, address=url, name=name) for one in (made, alone)}
    found = entries(url, name)
    assert [len(found[kind]) for kind in ("models", "versions", "artifacts")] == [1, 2, 2]
    assert len(addresses) == 2


@pytest.mark.parametrize("kept", [True, False], ids=["carried out", "not carried out"])
@pytest.mark.parametrize("moment", [1, 2, 3])
def test_killed_between_two_calls_and_repeated(url: str, name: str, made: str, moment: int, kept: bool) -> None:
    """SIGKILL when the first, second or third entry is on its way, which the registry gets or does not get."""
    process: list[subprocess.Popen[bytes]] = []
    posts = 0

    def kill(request: Request) -> int | None:
        nonlocal posts
        posts += request.method == "POST"
        if request.method != "POST" or posts != moment:
            return None
        os.kill(process[0].pid, signal.SIGKILL)
        return LOST if kept else HANG_UP

    with faulty(url, kill) as proxy:
        command = [sys.executable, "-m", "tlm.cli", "register", made, "--address", proxy, "--name", name]
        process.append(subprocess.Popen(command, cwd=ROOT))
        assert process[0].wait(60) == -signal.SIGKILL
    if kept:  # the answer is lost, but the registry may still be writing
        time.sleep(0.2)
    register(made, address=url, name=name)
    found, whole = entries(url, name), f"{name} whole"
    register(made, address=url, name=whole)
    assert [len(found[kind]) for kind in ("models", "versions", "artifacts")] == [1, 1, 1]
    assert without_times(found) == without_times(entries(url, whole))


def test_several_at_once_make_one_entry_each(url: str, name: str, made: str) -> None:
    start, addresses = threading.Barrier(6), []

    def call() -> None:
        start.wait()
        addresses.append(register(made, address=url, name=name))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(addresses), len(set(addresses))) == (6, 1)
    assert [len(found) for found in entries(url, name).values()] == [1, 1, 1]


@pytest.mark.parametrize("seed", range(4))
def test_trouble_on_the_way_is_sat_out(url: str, name: str, made: str, seed: int) -> None:
    weather = Weather(seed, [HANG_UP, RESET, LOST, HALF, 500, 503], share=0.35)
    with faulty(url, weather) as proxy:
        register(made, address=proxy, name=name)
    assert sum(weather.given.values()) > 0
    assert [len(found) for found in entries(url, name).values()] == [1, 1, 1]


@pytest.mark.parametrize("kind", ["registered_model", "model_version"])
def test_what_is_archived_stays_so_and_is_warned_of(kind: str, made: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Else people wait for a model that the registry's page does not list."""
    registry = StandIn("v1")
    with serving(registry) as url:
        register(made, address=url)
        assert "archived" not in capsys.readouterr().err
        (entry,) = registry.entries[kind]
        entry["state"] = "ARCHIVED"
        register(made, address=url)
    warning = f"warning: the {kind.rpartition('_')[2]} '{entry['name']}' is archived in the registry, and stays so"
    assert f"{warning}; restore it there" in capsys.readouterr().err
    assert entry["state"] == "ARCHIVED"


def test_another_place_of_the_same_model_is_warned_of(
    url: str, name: str, store: Store, made: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(made, address=url, name=name)
    before = entries(url, name)
    moved = shutil.copytree(store.root, tmp_path / "moved")
    register(f"{moved}/report/{Artifact.open(made).manifest.key}", address=url, name=name)
    assert entries(url, name) == before
    said, there = capsys.readouterr().err, before["artifacts"][0]["uri"]
    assert f"warning: the registry knows the same model at {there}, and keeps that address" in said
    assert f"if the model is gone from there, change it in the registry to file://{moved}/model/" in said


# What is said


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("", "registry_address is ''; expected the address of Kubeflow's Model Registry without a path"),
        ("model-registry:8080", "registry_address is 'model-registry:8080'; expected the address"),
        ("http://127.0.0.1:80/api", "without a path"),
        ("http://me:secret@127.0.0.1:80", "registry_address is 'http://…@127.0.0.1:80'; expected the address"),
        ("ftp://127.0.0.1", "expected the address"),
        ("http://169.254.169.254", "an address where clouds serve credentials"),
        ("http://models.invalid:8080", "without TLS anybody on the network"),
        ("https://models.invalid:8443", "but there is no host of this name; correct the address"),
    ],
)
def test_a_wrong_address_is_one_sentence(made: str, address: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        register(made, address=address)
    assert sentence in str(error.value)
    assert "secret" not in str(error.value)


def test_nobody_at_the_address(made: str) -> None:
    with serving(StandIn("v1")) as url:
        pass
    for call in (lambda: register(made, address=url), lambda: preflight(registry=url, root=str(Path(made).parents[1]))):
        with pytest.raises(Interrupted, match=r"at http://127\.0\.0\.1:\d+ does not answer \(Connection refused\)"):
            call()


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (Answer(200, b"<!doctype html><title>Login</title>"), InputError, "what answers there (200) is not Kubeflow's"),
        (Answer(302), InputError, "refused a call (302)"),
        (Answer(404, b"404 page not found"), InputError, "what answers there (404) is not Kubeflow's Model Registry"),
        (Answer(401), InputError, "refuses access (401); put a valid token into the file token of the folder TLM_"),
        (Answer(403, b"RBAC: access denied"), InputError, "refuses access (403)"),
        (Answer(422, b'{"message": "no"}'), InputError, "refused a call (422 no); fix that, then repeat"),
        (Answer(500, b'{"message": "disk full"}'), Interrupted, "keeps failing (500 disk full); look at its log"),
        (Answer(503, b"no healthy upstream"), Interrupted, "keeps failing (503)"),
        (HANG_UP, Interrupted, "does not answer (Remote end closed connection without response)"),
    ],
)
def test_what_the_server_says_is_one_sentence(made: str, answer: Any, kind: type[Exception], sentence: str) -> None:
    registry = StandIn("v1")
    with serving(registry) as url, faulty(url, lambda request: answer) as proxy:
        for call in (lambda: register(made, address=proxy), lambda: client.Registry(proxy).check()):
            with pytest.raises(kind) as error:
                call()
            assert sentence in str(error.value)
    assert registry.calls == []


def test_nobody_is_followed_elsewhere(made: str) -> None:
    """A redirect could lead the token away."""
    registry, elsewhere = StandIn("v1"), StandIn("v1")
    with serving(registry) as url, serving(elsewhere) as other:
        registry.moved_to = other
        with pytest.raises(InputError, match=r"what answers there \(302\) is not Kubeflow's Model Registry"):
            register(made, address=url)
    assert elsewhere.calls == []


def test_a_name_that_is_taken_but_not_shown(made: str) -> None:
    def hidden(request: Request) -> int | None:
        return 409 if request.method == "POST" else None

    with serving(StandIn("v1")) as url, faulty(url, hidden) as proxy, pytest.raises(Interrupted, match="does not show"):
        register(made, address=proxy)


@pytest.mark.parametrize("called", [" ", "a\nb", "n" * 201])
def test_a_name_that_no_registry_takes(made: str, called: str) -> None:
    registry = StandIn("v1")
    with serving(registry) as url, pytest.raises(InputError, match="expected 1 to 200 printable characters"):
        register(made, address=url, name=called)
    assert not any(call.startswith("POST") for call in registry.calls)


def test_a_registry_without_tls(made: str) -> None:
    with serving(StandIn("v1")) as url, pytest.raises(InputError, match=r"TLS fails there .* give an http:// address"):
        register(made, address=url.replace("http:", "https:"))


def test_a_token_and_a_private_authority(
    made: str, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = StandIn("v1")
    registry.token = "a-token"
    monkeypatch.setenv(client.SECRET, str(tmp_path))
    with serving(registry, certificate) as url:
        with pytest.raises(InputError, match=r"TLS fails there \(.*CERTIFICATE_VERIFY_FAILED.*ca\.crt"):
            register(made, address=url)
        (tmp_path / "ca.crt").write_text("no certificate")
        with pytest.raises(InputError, match=r"ca\.crt holds no certificate \(.*\); expected PEM"):
            register(made, address=url)
        (tmp_path / "ca.crt").write_bytes(certificate.read_bytes())
        with pytest.raises(InputError, match=r"refuses access \(401\)"):
            register(made, address=url)
        (tmp_path / "token").write_text("two words\n")
        with pytest.raises(InputError, match="holds no token; expected one line") as error:
            register(made, address=url)
        assert "two words" not in str(error.value)
        (tmp_path / "token").write_text("a-token\n")
        assert register(made, address=url).startswith(f"{url}/api/model_registry/v1/model_versions/")


@pytest.mark.usefixtures("certificate")  # which needs openssl, too
def test_a_private_authority_needs_no_extensions(made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 3.13 on, Python demands some that older Elasticsearch, EKS and MicroK8s do not give theirs."""
    monkeypatch.setenv(client.SECRET, str(tmp_path))
    monkeypatch.setattr(ssl, "create_default_context", partial(strict, ssl.create_default_context))
    with serving(StandIn("v1"), signed(tmp_path)) as url:
        usual = PoolManager(ssl_context=ssl.create_default_context(cafile=tmp_path / "ca.crt"))
        with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            usual.request("GET", url, retries=False)
        assert register(made, address=url).startswith(url)


def strict(make: Callable[..., ssl.SSLContext], **given: Any) -> ssl.SSLContext:
    context = make(**given)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def signed(folder: Path) -> Path:
    """A certificate of the authority ``ca.crt``, which says nothing of what its key is for, with its key beside it."""
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tlm"]
    subprocess.run([*new, "-x509", "-keyout", "ca.key", "-out", "ca.crt"], cwd=folder, check=True, capture_output=True)
    subprocess.run([*new, "-keyout", "key.pem", "-out", "new.csr"], cwd=folder, check=True, capture_output=True)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    sign = "openssl x509 -req -in new.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out cert.pem"
    subprocess.run(sign.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


def broken(change: Callable[[Artifact], None]) -> Callable[[Path], str]:
    """A report of a store of its own, of which something is gone."""

    def make(root: Path) -> str:
        store = Store(root)
        uri = report([store.baseline], root=str(root))
        change(Artifact.open(store.baseline))
        return uri

    return make


def imported(root: Path) -> str:
    store = Store(root)
    rows = [{"id": f"e{number}", "label": "red"} for number in range(len(SPLITS))]
    (root / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return report([import_predictions(str(root / "answers.jsonl"), store.task, name="llm", root=str(root))])


def on_two_tasks(root: Path) -> str:
    store = Store(root)
    other = make_task(root, rows_of(numbers=False), "macro_f1", LABELS, name="other")
    return report_multitask([store.baseline, baseline(other, root=str(root))], root=str(root))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (broken(lambda one: remove(one.store, one.input("model").folder_name)), "which is gone; run its step again"),
        (broken(lambda one: remove(one.store, one.folder_name)), "which is gone; run its step again"),
        (on_two_tasks, "is on several tasks; give the report of one task"),
        (imported, "'llm' is of imported predictions, so there is no model to register"),
    ],
    ids=["no model", "no metrics", "several tasks", "imported"],
)
def test_a_report_whose_model_is_not_there(make: Callable[[Path], str], sentence: str, tmp_path: Path) -> None:
    registry = StandIn("v1")
    with serving(registry) as url, pytest.raises(InputError) as error:
        register(make(tmp_path / "store"), address=url)
    assert sentence in str(error.value)
    assert not any(call.startswith("POST") for call in registry.calls)


def test_preflight_says_that_the_registry_answers(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preflight(registry=url, root=str(tmp_path))
    assert f"model registry {url}: answers" in capsys.readouterr().err
