"""`submit`: nothing leaves before all is checked, what the API refuses is one sentence, and time is bounded."""

import time
from pathlib import Path

import pytest
import yaml

from pipelines import client
from pipelines.client import ApiError, find
from pipelines.compiled import load_images
from tests.pipelines_cli.conftest import GOLDEN
from tests.pipelines_cli.standin import Answer, Dropped, StandIn, hang, refusal


def test_a_run_starts_as_ordered(ask, api: StandIn, compiled: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("run_seeds: '0,1'\ncorpus_words: 64\ntrain_node_selector: {gpu: 'true'}\n")
    options = ("--experiment", "night's+100%", "--run-name", "first", "--pipeline-root", "s3://b/kfp")
    done = ask("submit", "--params", values, "--set", "run_seeds=7", *options, "--service-account", "tlm-runner")
    assert done.code == 0, done.err
    (run,) = api.runs.values()
    (experiment,) = api.experiments.values()
    assert done.out == f"{run.run_id}\n{api.url}/#/runs/details/{run.run_id}\n"
    assert experiment.display_name == "night's+100%"
    assert (run.display_name, run.experiment_id) == ("first", experiment.experiment_id)
    assert run.service_account == "tlm-runner"
    assert run.runtime_config.parameters == {
        "run_seeds": "7",
        "corpus_words": 64,
        "train_node_selector": {"gpu": "true"},
    }
    assert run.runtime_config.pipeline_root == "s3://b/kfp"
    spec, platform = yaml.safe_load_all(compiled.read_text())
    assert run.pipeline_spec == {"pipeline_spec": spec, "platform_spec": platform}


def test_another_pipeline_of_this_code(cli, api: StandIn) -> None:
    named = ("--host", api.url, "--pipeline", "multitask", "--images", GOLDEN / "images.json")
    assert cli("submit", *named, "--set", "task_paths=s3://tlm/one,s3://tlm/two").code == 0
    assert cli("upload", *named, "--version", "v1").code == 0
    ((run,), (pipeline,)) = api.runs.values(), api.pipelines.values()
    assert run.pipeline_spec["pipeline_spec"]["pipelineInfo"]["name"] == pipeline.name == "tlm-multitask"
    assert run.display_name.startswith("tlm-multitask 20")
    executors = run.pipeline_spec["pipeline_spec"]["deploymentSpec"]["executors"].values()
    assert {one["container"]["image"] for one in executors} == {*load_images(GOLDEN / "images.json").values()}


def test_a_file_is_a_pipeline_already(ask, api: StandIn) -> None:
    done = ask("submit", "--pipeline", "ablation")
    assert (done.code, api.requests) == (2, [])
    assert "--pipeline ablation is for this code's pipelines, not for --file" in done.err


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("a: 1\n", "found no compiled pipeline"), ("{", "not valid YAML")]
)
def test_another_file_calls_nobody(cli, api: StandIn, tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "other.yaml"
    if text is not None:
        file.write_text(text)
    done = cli("submit", "--host", api.url, "--file", file)
    assert (done.code, f"{file}: {said}" in done.err, done.err.count("\n"), api.requests) == (2, True, 1, [])


def test_an_experiment_is_found_again(ask, api: StandIn) -> None:
    name = ("--experiment", "100%+x 'y' %41")
    assert [ask("submit", *name).code, ask("submit", *name).code] == [0, 0]
    assert len(api.experiments) == 1
    assert len(api.runs) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("run_sedes=1", "parameter 'run_sedes' is not known; did you mean 'run_seeds'?"),
        ("run\x1bsedes\n=1", r"parameter 'run\x1bsedes\n' is not known; did you mean 'run_seeds'?"),
        ("corpus_words=many", "parameter 'corpus_words': 'many' is a str, expected int"),
        ("corpus_words=1.5", "parameter 'corpus_words': 1.5 is a float, expected int"),
        ("train_tolerations={}", "parameter 'train_tolerations': {} is a dict, expected list"),
        ("train_tolerations=[2024-01-01]", "cannot be written as JSON; write plain values"),
        ("registry_address=registry:8080", "registry_address is 'registry:8080'; expected the address of Kubeflow's"),
        ("registry_address=http://me:key@registry:8080", "parameter 'registry_address' has a password, key or token"),
        ("corpus_paths=https://me:k/ey@host/x", "parameter 'corpus_paths' has a password, key or token"),
        ("corpus_paths=https://me:k#ey@host/x", "parameter 'corpus_paths' has a password, key or token"),
        ("corpus_paths=https://me:k ey@host/x", "parameter 'corpus_paths' has a password, key or token"),
        ("export_overlap=", "parameter 'export_overlap' has no value; leave it out"),
        ("corpus_words=[", "--set corpus_words=[: not valid YAML"),
        ("corpus_words", "--set corpus_words: expected name=value"),
        ("run_preset=pockett", "preset 'pockett' is unknown; did you mean 'pocket'?"),
        ("run_arms=bm25,randon", "arms: 'randon' is no arm; did you mean 'random'?"),
        ("run_seeds=0;1", "seeds: '0;1' is no whole number"),
        ("run_overrides=auto train.rh1=3", "setting 'train.rh1' is unknown; did you mean 'train.rho1'?"),
        ("index_engine=elastic", "engine 'elastic' is unknown; expected embedded or elasticsearch"),
        ("index_name=My corpus", "name 'My corpus' is no index name"),
        ("registry_model=\n", r"the registered model's name is '\n'"),
        ("task_metric=makro_f1", "unknown metric 'makro_f1'; did you mean 'macro_f1'?"),
        ("task_problem=regresion", "unknown problem 'regresion'; did you mean 'regression'?"),
        ("task_max_rejected=-1", "task_max_rejected is -1; expected 0 or more"),
        ("task_path=paper:sciercc", "no task of that name; did you mean 'paper:scierc'?"),
    ],
)
def test_a_wrong_parameter_calls_nobody(ask, api: StandIn, change: str, sentence: str) -> None:
    done = ask("submit", "--set", change)
    assert done.code == 2
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert api.requests == []


@pytest.mark.parametrize("option", ["--host", "--ui-host"])
def test_a_password_in_an_address_is_neither_used_nor_shown(ask, api: StandIn, option: str) -> None:
    done = ask("submit", option, api.url.replace("://", "://admin:hunter2@"))
    assert done.code == 2
    assert "has a password in it; give a token by --token-file" in done.err
    assert "hunter2" not in done.err + done.out
    assert api.requests == []


def test_a_missing_parameter_calls_nobody(ask, api: StandIn, compiled: Path) -> None:
    spec, platform = yaml.safe_load_all(compiled.read_text())
    del spec["root"]["inputDefinitions"]["parameters"]["task_path"]["defaultValue"]
    del spec["root"]["inputDefinitions"]["parameters"]["task_path"]["isOptional"]
    compiled.write_text(yaml.safe_dump_all([spec, platform]))
    done = ask("submit")
    assert (done.code, api.requests) == (2, [])
    assert "missing, without a default: task_path; give --set task_path=…" in done.err
    assert ask("submit", "--set", "task_path=s3://x").code == 0


def test_no_cache_holds_for_every_task(ask, api: StandIn, compiled: Path) -> None:
    compiled.write_text(compiled.read_text().replace("cachingOptions: {}", "cachingOptions: {enableCache: true}"))
    assert "enableCache" in compiled.read_text()
    assert ask("submit", "--no-cache").code == 0
    (run,) = api.runs.values()
    assert "enableCache" not in str(run.pipeline_spec)


def test_without_an_address(cli, compiled: Path) -> None:
    done = cli("submit", "--file", compiled)
    assert (done.code, "give --host http://…, or set KF_PIPELINES_ENDPOINT" in done.err) == (2, True)
    for address in ("kfp.example", "http://[kfp", "http://localhost:port"):
        done = cli("submit", "--file", compiled, "--host", address)
        assert (done.code, f"--host is '{address}'; expected https://host:port" in done.err) == (2, True)


def test_inside_a_cluster_the_address_is_that_of_kubeflow_s_own_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    found = find("", "https://kubeflow.example/pipeline/")
    assert found == ("http://ml-pipeline.kubeflow.svc.cluster.local:8888", "https://kubeflow.example/pipeline")


def test_the_address_may_come_from_the_environment(cli, api, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", api.url)
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "https://kubeflow.example/pipeline")
    done = cli("submit", "--file", compiled)
    (run,) = api.runs
    assert done.out.splitlines()[1] == f"https://kubeflow.example/_/pipeline/#/runs/details/{run}"


def test_several_users_need_a_namespace(ask, api: StandIn) -> None:
    api.multi_user = True
    done = ask("submit")
    assert (done.code, "give a namespace with --namespace" in done.err, api.runs) == (2, True, {})
    done = ask("submit", "--namespace", "ann", "--ui-host", "https://kubeflow.example/pipeline/")
    assert done.code == 0, done.err
    assert [one.namespace for one in api.experiments.values()] == ["ann"]
    assert "https://kubeflow.example/_/pipeline/?ns=ann#/runs/details/" in done.out
    assert ask("submit", "--namespace", "ann").code == 0
    assert (len(api.experiments), len(api.runs)) == (1, 2)


def test_a_dashboard_s_address_may_have_its_frame(ask, api: StandIn) -> None:
    done = ask("submit", "--ui-host", "https://kubeflow.example/_/pipeline/")
    assert "https://kubeflow.example/_/pipeline/#/runs/details/" in done.out


def test_a_namespace_is_not_sent_where_there_is_one_user(ask, api: StandIn) -> None:
    assert ask("submit", "--namespace", "kubeflow").code == 0
    assert [one.namespace for one in api.experiments.values()] == [None]


def test_tokens(ask, api: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.token = "right"
    said = "answers 401 to a call with no token: the token is not valid; give a valid token with --token-file FILE"
    assert said in ask("submit").err
    file = tmp_path / "token"
    done = ask("submit", "--token-file", file)
    assert (done.code, f"{file}: the token cannot be read" in done.err) == (2, True)
    file.write_bytes(b"\xff")
    assert f"{file}: the token cannot be read" in ask("submit", "--token-file", file).err
    file.write_text("wrong\n")
    done = ask("submit", "--token-file", file)
    assert (done.code, f"answers 401 to a call with the token from {file}: the token" in done.err) == (2, True)
    file.write_text("right\n")
    assert ask("submit", "--token-file", file).code == 0
    file.write_text("right\nof a file of credentials")
    done = ask("submit", "--token-file", file)
    assert (done.code, f"{file} holds no token; expected one line without spaces" in done.err) == (2, True)
    assert "right" not in done.err
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "wrong")
    assert "the token from KFP_EXISTING_TOKEN" in ask("submit").err
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "right")
    assert ask("submit").code == 0


def test_in_a_pod_its_own_token_and_namespace_count(
    ask, api: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.token, api.multi_user = "mine", True
    for name, text in (("PROJECTED_TOKEN", "mine\n"), ("OWN_NAMESPACE", "ann\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(client, name, tmp_path / name)
    assert ask("submit").code == 0
    assert [one.namespace for one in api.experiments.values()] == ["ann"]


def test_a_private_authority_is_trusted_if_it_is_named(cli, compiled: Path, certificate: Path) -> None:
    api = StandIn(certificate)
    given = ("submit", "--host", api.url, "--file", compiled)
    done = cli(*given)
    assert (done.code, "cannot be reached" in done.err, "certificate" in done.err) == (2, True, True)
    assert cli(*given, "--ca-file", certificate).code == 0
    api.down()


LOGIN = Answer(302, "", "text/html", location="https://dex.example/login")
PAGE = Answer(200, "<html>log in</html>", "text/html")


@pytest.mark.parametrize(
    ("request_", "fault", "sentence"),
    [
        ("GET /healthz", Answer(404, "not found", "text/plain"), "answers 404: Not Found, not as Kubeflow Pipelines 2"),
        ("GET /healthz", LOGIN, "answers 302: Found, not as Kubeflow Pipelines 2 does; check --host"),
        ("GET /healthz", PAGE, "answers with text/html, not as Kubeflow Pipelines 2 does; check --host and"),
        ("GET /experiments", Answer(200, '{"experiments": 3}'), "answers something unreadable"),
        ("GET /experiments", Answer(200, '{"total_size": "many"}'), "answers something unreadable"),
        ("GET /experiments", refusal(403, "no get in ann"), "answers 403: no get in ann; ask for the right"),
        ("POST /runs", refusal(400, "no such thing"), "answers 400: no such thing"),
        ("POST /runs", refusal(404, "Experiment e not found"), "Experiment e not found"),
        ("POST /runs", refusal(500, "no service account"), "answers 500: no service account; look at"),
        (
            "POST /runs",
            refusal(500, 'unknown field "securityContext"'),
            "; it is older than 2.16: `python -m pipelines",
        ),
    ],
)
def test_what_the_api_refuses_is_one_sentence(ask, api: StandIn, request_: str, fault: Answer, sentence: str) -> None:
    api.fail(request_, fault, fault)  # an experiment is looked for twice
    done = ask("submit", "--experiment", "e")
    assert done.code == 2
    assert sentence in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_server_that_recovers_is_asked_again(ask, api: StandIn) -> None:
    api.fail("GET /healthz", refusal(408), refusal(429))
    api.fail("GET /experiments", refusal(503), Dropped())
    api.fail("POST /experiments", Answer(502, "bad gateway", "text/html"))
    assert ask("submit").code == 0
    assert api.requests.count("GET /experiments") == 4  # the last one to see whether the lost POST had arrived
    assert len(api.runs) == 1


def test_an_experiment_that_another_made_meanwhile(ask, api: StandIn) -> None:
    def another() -> None:
        api.answer("POST", "/experiments", {}, {"display_name": "tlm"})

    api.fail("POST /experiments", another)  # ours then meets 409
    assert ask("submit").code == 0
    assert len(api.experiments) == len(api.runs) == 1


def test_an_archived_experiment_is_refused(ask, api: StandIn) -> None:
    assert ask("submit").code == 0
    next(iter(api.experiments.values())).storage_state = "ARCHIVED"
    done = ask("submit")
    assert (done.code, "the experiment 'tlm' is archived" in done.err) == (2, True)


@pytest.mark.parametrize("fault", [Dropped(), Answer(504, "gateway timeout", "text/html"), hang(1.5)])
def test_a_start_without_an_answer_is_not_repeated(ask, api: StandIn, fault) -> None:
    api.fail("POST /runs", fault)
    done = ask("submit", "--run-name", "nightly", "--call-timeout", "0.5")
    assert done.code == 3
    assert "the run may have begun all the same: look for 'nightly' in the UI" in done.err
    assert api.requests.count("POST /runs") == 1


def test_a_start_that_did_not_reach_the_server_is_no_doubtful_one(ask, api: StandIn) -> None:
    api.fail("POST /experiments", api.down)
    done = ask("submit")
    assert (done.code, "cannot be reached" in done.err, api.runs) == (2, True, {})


@pytest.mark.parametrize(
    ("status", "passes"), [(0, True), (400, False), (404, False), (408, True), (429, True), (500, True), (503, True)]
)
def test_which_answers_may_be_others_later(status: int, passes: bool) -> None:
    assert ApiError("said", status).may_pass == passes


def test_a_silent_server_does_not_hold_us(ask, api: StandIn) -> None:
    api.fail("GET /healthz", hang(3), hang(3), hang(3))
    began = time.monotonic()
    done = ask("submit", "--call-timeout", "0.3")
    assert (done.code, "did not answer (Read timed out. (read timeout=0.3))" in done.err) == (2, True)
    assert time.monotonic() - began < 2.5


def test_kfp_s_own_client_takes_the_stand_in_for_kubeflow(ask, api: StandIn, compiled: Path) -> None:
    """The stand-in is tested here; and what we send is what kfp's client sends."""
    import kfp

    client = kfp.Client(host=api.url, namespace="kubeflow")
    started = client.create_run_from_pipeline_package(str(compiled), arguments={"run_seeds": "1"}, run_name="x")
    assert client.wait_for_run_completion(started.run_id, timeout=10).state == "SUCCEEDED"
    assert ask("submit", "--set", "run_seeds=1").code == 0
    theirs, ours = api.runs.values()
    assert (ours.pipeline_spec, ours.runtime_config) == (theirs.pipeline_spec, theirs.runtime_config)
    pipeline = client.pipelines.pipeline_service_create_pipeline({"display_name": "tlm", "name": "tlm"})
    version = client.upload_pipeline_version(str(compiled), "v1", pipeline_id=pipeline.pipeline_id, description="d")
    assert version.pipeline_version_id in api.versions


def test_files_of_this_machine_are_refused_before_any_call(ask, api: StandIn) -> None:
    done = ask("submit", "--set", "corpus_paths=s3://b/corpus/,my/corpus.jsonl")
    assert done.code == 2
    assert "parameter 'corpus_paths': pods do not see 'my/corpus.jsonl' of this machine; give s3://…" in done.err
    for name in ("task_unlabelled_path", "report_against"):
        assert f"'{name}': pods do not see 'my/place' of this machine" in ask("submit", "--set", f"{name}=my/place").err
    assert api.runs == {}
    assert ask("submit", "--set", "corpus_paths=paper:bert", "--set", "task_path=glue:mnli").code == 0
