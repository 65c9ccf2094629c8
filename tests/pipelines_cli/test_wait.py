"""`submit --wait` and `wait`: exit code 0 for SUCCEEDED alone, and nothing that passes ends the waiting."""

import datetime
import threading
import time
from pathlib import Path

import kfp_server_api as kfp
import pytest

from tests.pipelines_cli.standin import Answer, Dropped, StandIn, refusal

QUICK = ("--wait", "--poll-seconds", "0.05", "--timeout", "20")


@pytest.mark.parametrize(
    ("states", "code", "said"),
    [
        (["PENDING", "RUNNING", "SUCCEEDED"], 0, "SUCCEEDED"),
        ([None, "RUNTIME_STATE_UNSPECIFIED", "PAUSED", "RUNNING", "SUCCEEDED"], 0, "SUCCEEDED"),
        (["RUNNING", "FAILED"], 2, "FAILED: see http"),
        (["RUNNING", "CANCELING", "CANCELED"], 2, "ended CANCELED: see http"),
        (["SKIPPED"], 2, "ended SKIPPED: see http"),
    ],
)
def test_the_exit_code_tells_how_it_ended(ask, api: StandIn, states: list[str], code: int, said: str) -> None:
    api.states = states
    done = ask("submit", *QUICK)
    assert done.code == code
    assert said in done.err.splitlines()[-1]
    assert f"/#/runs/details/{next(iter(api.runs))}" in done.out
    assert api.looks == len(states)


def test_a_time_that_is_over_ends_with_3(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    done = ask("submit", *QUICK, "--timeout", "0.3")
    (run,) = api.runs
    assert done.code == 3
    assert f"still RUNNING after 0.3 seconds; run {run} goes on: see {api.url}/#/runs/details/{run}" in done.err
    assert f"or wait on with `wait {run}`" in done.err
    api.states = ["SUCCEEDED"]
    assert ask("wait", run).code == 0


def test_what_passes_does_not_end_the_waiting(ask, api: StandIn) -> None:
    api.states = ["RUNNING", "SUCCEEDED"]
    passing = (
        refusal(500),
        Answer(503, "no healthy upstream", "text/plain"),
        Answer(404, "default backend - 404", "text/plain"),
        Answer(200, "<html>starting</html>", "text/html"),
        Dropped(),
        refusal(429),
    )
    api.fail("GET /runs/", *passing)
    done = ask("submit", *QUICK)
    assert done.code == 0
    assert done.err.count("the run goes on, and so does waiting") == 1
    assert "the API answers again" in done.err


def test_a_restart_of_the_api_is_waited_for(ask, api: StandIn) -> None:
    def bounce() -> None:
        api.down()
        time.sleep(0.3)
        api.states = ["SUCCEEDED"]
        api.up()

    api.states = ["RUNNING"]
    api.at_look = lambda number: threading.Thread(target=bounce).start() if number == 2 else None
    done = ask("submit", *QUICK)
    assert done.code == 0, done.err
    assert "cannot be reached (Connection refused)" in done.err


def test_an_api_that_stays_away_ends_with_3(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    api.at_look = lambda number: threading.Thread(target=api.down).start() if number == 2 else None
    done = ask("submit", *QUICK, "--timeout", "4")
    assert done.code == 3
    assert "cannot be reached (Connection refused)" in done.err.splitlines()[-1]
    assert f"run {next(iter(api.runs))} goes on" in done.err
    api.up()


def test_a_token_that_expires_is_read_again(ask, api: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    api.token = "old"
    api.states = ["RUNNING"] * 4 + ["SUCCEEDED"]

    def expire(number: int) -> None:
        if number == 2:
            api.token = "new"
            threading.Timer(0.3, file.write_text, ["new"]).start()  # the kubelet is late

    api.at_look = expire
    done = ask("submit", *QUICK, "--token-file", file)
    assert done.code == 0, done.err
    assert f"does not accept the token from {file} (401)" in done.err


def test_a_token_that_nobody_renews_ends_with_3(ask, api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "old")
    api.token, api.states = "old", ["RUNNING"]
    api.at_look = lambda number: setattr(api, "token", "new")
    done = ask("submit", *QUICK)
    assert done.code == 3
    assert "does not accept the token from KFP_EXISTING_TOKEN (401)" in done.err
    assert "goes on: see" in done.err


def test_a_right_that_is_taken_away_ends_with_3(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    api.fail("GET /runs/", refusal(403, "no get"))
    done = ask("submit", *QUICK)
    assert (done.code, "forbids it (403): no get" in done.err, "goes on: see" in done.err) == (3, True, True)


def test_a_run_that_was_deleted(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    api.at_look = lambda number: api.runs.clear()
    done = ask("submit", *QUICK)
    assert (done.code, "does not exist (any more)" in done.err) == (2, True)


def test_waiting_for_a_run_that_never_was(ask) -> None:
    done = ask("wait", "no-such-run")
    assert (done.code, "Run no-such-run not found" in done.err) == (2, True)


def node(name: str, second: int, state: str = "FAILED", *children: str) -> kfp.V2beta1PipelineTaskDetail:
    return kfp.V2beta1PipelineTaskDetail(
        display_name=name,
        state=state,
        start_time=datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC),
        child_tasks=[kfp.PipelineTaskDetailChildTask(pod_name=child) for child in children],
    )


def groups(step: str) -> list[kfp.V2beta1PipelineTaskDetail]:
    """The nodes around a failed step, as Argo has them."""
    return [node("tlm-ab1", 0), node("root", 1, "FAILED", "tlm-ab1-7"), node(f"{step}-driver", 4, "SUCCEEDED")]


def test_a_failed_step_is_named_and_its_log_shown(ask, api: StandIn) -> None:
    tries = [node("executor(0)", 9), node("executor(1)", 20)]
    retried = node("executor", 9, "FAILED", "tlm-ab1-100", "tlm-ab1-101")
    another = node("executor", 3, "SUCCEEDED", "tlm-ab1-50")
    api.details = [*groups("index"), retried, another, *tries, node("index", 8, "FAILED", "tlm-ab1-99")]
    api.logs["tlm-ab1-retry-system-container-impl-101"] = "\n".join(f"line {number}" for number in range(50))
    api.logs["tlm-ab1-retry-system-container-impl-100"] = "the first try"
    api.states = ["FAILED"]
    done = ask("submit", *QUICK)
    assert done.code == 2
    lines = done.err.splitlines()
    assert lines[-22] == "the last lines of index:"
    assert lines[-21:-1] == [f"    line {number}" for number in range(30, 50)]
    assert "FAILED at index: see" in lines[-1]


@pytest.mark.parametrize("is_ui", [False, True])
def test_a_step_without_retries_shows_its_log_too(ask, api: StandIn, is_ui: bool) -> None:
    api.is_ui = is_ui
    api.details = [*groups("report"), node("executor", 9), node("report", 8, "FAILED", "tlm-ab1-99")]
    api.logs["tlm-ab1-system-container-impl-99"] = "tlm.errors.InputError: no metrics\n"
    api.states = ["FAILED"]
    done = ask("submit", *QUICK)
    assert "the last lines of report:\n    tlm.errors.InputError: no metrics\n" in done.err


def test_failures_side_by_side_and_of_a_driver(ask, api: StandIn) -> None:
    api.details = [
        *groups("plan"),
        node("for-loop-1", 3),
        node("train", 9),
        node("train", 9),
        node("evaluate-driver", 7),
    ]
    api.states = ["FAILED"]
    done = ask("submit", *QUICK)
    assert "FAILED at evaluate, train: see" in done.err
    assert "the last lines" not in done.err


def test_a_run_that_failed_is_started_again_as_often_as_asked(ask, api: StandIn) -> None:
    api.states = ["RUNNING", "FAILED", "RUNNING", "FAILED", "RUNNING", "SUCCEEDED"]
    done = ask("submit", *QUICK, "--resubmit", "2", "--run-name", "nightly")
    assert done.code == 0, done.err
    assert [run.display_name for run in api.runs.values()] == ["nightly"] * 3
    assert done.out.count("/#/runs/details/") == 3
    assert [line.rpartition("; ")[2] for line in done.err.splitlines() if "starting it again" in line] == [
        "starting it again, 2 times left",
        "starting it again, 1 time left",
    ]


def test_the_last_failure_is_the_result(ask, api: StandIn) -> None:
    api.states = ["FAILED"]
    done = ask("submit", *QUICK, "--resubmit", "1")
    assert (done.code, len(api.runs)) == (2, 2)
    assert "FAILED: see http" in done.err.splitlines()[-1]


def test_a_cancelled_run_is_not_started_again(ask, api: StandIn) -> None:
    api.states = ["CANCELED"]
    done = ask("submit", *QUICK, "--resubmit", "3")
    assert (done.code, len(api.runs)) == (2, 1)


def test_resubmit_without_wait_calls_nobody(ask, api: StandIn) -> None:
    done = ask("submit", "--resubmit", "1")
    assert (done.code, api.requests) == (2, [])
    assert "--resubmit goes with --wait" in done.err
