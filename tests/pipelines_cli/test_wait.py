"""`submit --wait` and `wait`: exit code 0 for SUCCEEDED alone, and nothing that passes ends the waiting."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.wait import TRACEBACK
from tests.pipelines_cli.standin import Answer, Dropped, StandIn, refusal

QUICK = ("--wait", "--poll-seconds", "0.05", "--timeout", "20")


@pytest.mark.parametrize(
    ("states", "code", "said"),
    [
        (["PENDING", "RUNNING", "SUCCEEDED"], 0, "SUCCEEDED"),
        ([None, "RUNTIME_STATE_UNSPECIFIED", "PAUSED", "RUNNING", "SUCCEEDED"], 0, "SUCCEEDED"),
        (["RUNNING", "FAILED"], 2, "FAILED; see http"),
        (["SKIPPED"], 2, "ended SKIPPED; see http"),
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
    began = time.monotonic()
    done = ask("submit", *QUICK, "--timeout", "0.3", "--poll-seconds", "30")
    assert time.monotonic() - began < 20
    (run,) = api.runs
    assert done.code == 3
    assert f"still RUNNING after 0.3 seconds; run {run} goes on: see {api.url}/#/runs/details/{run}" in done.err
    assert f"or wait again with `wait {run}`" in done.err
    api.states = ["SUCCEEDED"]
    assert ask("wait", run).code == 0


def test_what_passes_does_not_end_the_waiting(ask, api: StandIn) -> None:
    api.states = ["RUNNING", "RUNNING", "SUCCEEDED"]
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
    assert done.err.count("the run goes on, still waiting for it") == 1
    assert done.err.splitlines().count("RUNNING") == 1
    assert done.err.count("the API answers again") == 1


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
    assert "Connection refused); check --host" in done.err


def test_an_api_that_stays_away_ends_with_3(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    api.at_look = lambda number: threading.Thread(target=api.down).start() if number == 2 else None
    done = ask("submit", *QUICK, "--timeout", "4")
    assert done.code == 3
    assert "Connection refused); check --host" in done.err.splitlines()[-1]
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
    assert f"answers 401 to a call with the token from {file}" in done.err


def test_a_token_that_nobody_renews_ends_with_3(ask, api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", "old")
    api.token, api.states = "old", ["RUNNING"]
    api.at_look = lambda number: setattr(api, "token", "new")
    done = ask("submit", *QUICK)
    assert done.code == 3
    assert "answers 401 to a call with the token from KFP_EXISTING_TOKEN" in done.err
    assert "goes on: see" in done.err
    assert len([one for one in api.requests if one.startswith("GET /runs/")]) == 2, "it waited for another token"


def test_a_right_that_is_taken_away_ends_with_3(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    api.fail("GET /runs/", refusal(403, "no get"))
    done = ask("submit", *QUICK)
    assert (done.code, "answers 403: no get" in done.err, "goes on: see" in done.err) == (3, True, True)


def test_a_run_that_was_deleted(ask, api: StandIn) -> None:
    api.states = ["RUNNING"]
    api.at_look = lambda number: api.runs.clear()
    done = ask("submit", *QUICK)
    assert (done.code, "does not exist (any more)" in done.err) == (2, True)


def test_waiting_for_a_run_that_never_was(ask) -> None:
    done = ask("wait", "no-such-run")
    assert (done.code, "Run no-such-run not found" in done.err) == (2, True)


def node(number: int, name: str, phase: str, kind: str = "Pod", *children: int, said: str = "") -> dict[str, Any]:
    """A node of a workflow, as Argo 4 lists it; its name is its path, and its number the end of its pod's name."""
    return {
        "id": f"tlm-ab1-{number}", "name": f"tlm-ab1(0).{name}", "type": kind, "phase": phase, "message": said,
        "templateName": "metadata-0-2-retry-system-container-impl", "startedAt": f"2026-01-01T00:00:{number:02}Z",
        "children": [f"tlm-ab1-{child}" for child in children],
    }  # fmt: skip


EXIT_1 = "main: Error (exit code 1)"


def around(step: str) -> list[dict[str, Any]]:
    """What is around a step that failed: the groups fail with it, its driver was fine, later steps were left out."""
    return [
        node(1, "root", "Failed", "Retry", 2, said="No more retries left"),
        node(2, "root(0)", "Failed", "DAG"),
        node(3, f"root(0).{step}-driver", "Succeeded", "Retry", 4),
        node(4, f"root(0).{step}-driver(0)", "Succeeded"),
        node(90, "root(0).report", "Omitted", "Skipped", said="omitted: depends condition not met"),
    ]


def logged(pod: int) -> str:
    return f"tlm-ab1-metadata-0-2-retry-system-container-impl-{pod}"


def test_a_failed_step_is_named_with_its_error_and_the_end_of_its_log(ask, api: StandIn) -> None:
    api.nodes = [
        *around("index"),
        node(5, "root(0).index(0).executor", "Failed", "Retry", 6, 7, said="No more retries left"),
        node(6, "root(0).index(0).executor(0)", "Failed", said=EXIT_1),
        node(7, "root(0).index(0).executor(1)", "Failed", said=EXIT_1),
    ]
    launcher = "E1123 00:50:11.858514      16 launcher_v2.go:449] Component failed to execute successfully\n"
    executor = 'time=2026-11-23T00:50:12.249Z level=INFO msg="sub-process exited"\nError: exit status 1\n'
    error = "tlm.errors.InputError: field 'text' is missing"
    api.logs[logged(7)] = "\n".join(
        [TRACEBACK, *(f"line {number}" for number in range(50)), error, launcher + executor]
    )
    api.logs[logged(6)] = "the first try"
    api.states = ["FAILED"]
    done = ask("submit", *QUICK)
    assert done.code == 2
    lines = done.err.splitlines()
    assert lines[-22] == "the last lines of index:"
    assert lines[-21:-1] == [*(f"    line {number}" for number in range(31, 50)), f"    {error}"]
    assert "FAILED at index: field 'text' is missing; tried 2 times; see http" in lines[-1]


@pytest.mark.parametrize(("is_ui", "namespace"), [(False, "kubeflow"), (True, "kubeflow"), (True, "ann")])
def test_an_error_that_is_not_ours_keeps_its_kind(ask, api: StandIn, is_ui: bool, namespace: str) -> None:
    api.is_ui = api.many_nodes = is_ui
    api.pods_in, api.multi_user = namespace, namespace == "ann"
    api.nodes = [*around("report"), node(6, "root(0).report(0).executor(0)", "Failed", said=EXIT_1)]
    api.logs[logged(6)] = f"{TRACEBACK}\n  File x\nKeyError: 'gold'\n"
    api.states = ["FAILED"]
    done = ask("submit", *QUICK, "--namespace", namespace)
    assert f"the last lines of report:\n    {TRACEBACK}\n      File x\n    KeyError: 'gold'\n" in done.err
    assert "FAILED at report: KeyError: 'gold'; see http" in done.err


def test_without_a_log_kubernetes_says_why(ask, api: StandIn) -> None:
    killed = node(6, "root(0).train(0).executor(0)", "Failed", said="main: OOMKilled (exit code 137)")
    api.nodes, api.states = [*around("train"), killed], ["FAILED"]
    done = ask("submit", *QUICK)
    assert "FAILED at train: OOMKilled (exit code 137); see http" in done.err
    assert "the last lines" not in done.err
    api.logs[logged(6)] = "train: 12 of 20 steps\n"  # no error, though it looks like one
    assert "FAILED at train: OOMKilled (exit code 137); see http" in ask("submit", *QUICK).err


def test_a_pod_that_was_told_to_end_is_no_fault_of_the_step(ask, api: StandIn) -> None:
    ended = node(6, "root(0).preflight(0).executor(0)", "Failed", said="main: Error (exit code 143)")
    api.nodes, api.states = [*around("preflight"), ended], ["FAILED"]
    given = '[KFP Executor 2026-11-24 11:04:51,930 INFO]: Got executor_input:\n{\n    "inputs": {\n    }\n}\n'
    api.logs[logged(6)] = f"{given}store: can be written to\nError: exit status 143\n"
    said = ask("submit", *QUICK).err
    assert "the last lines of preflight:\n    store: can be written to\n" in said
    assert "FAILED at preflight: its pod was stopped (exit code 143), as when a node is drained; start" in said


def test_a_driver_that_was_lost_is_named(ask, api: StandIn) -> None:
    rejected = "Pod was rejected: The node had condition: [DiskPressure]. "
    api.nodes = [node(1, "root-driver", "Failed", "Retry", 2), node(2, "root-driver(0)", "Failed", said=rejected)]
    api.states = ["FAILED"]
    assert f"FAILED at the driver of root: {rejected[:-2]}; see http" in ask("submit", *QUICK).err


def test_what_a_driver_says_is_told_without_its_call(ask, api: StandIn) -> None:
    """Seen on KFP 2.17.0, after a driver was deleted and ran twice."""
    api.nodes = [node(1, "root(0).advise-driver(0)", "Failed", said=EXIT_1)]
    said = 'failed to get executions in DAG(executionID=114): two tasks have the same task name "preflight_114"'
    call = 'driver.Container(runID=d5fb, taskName="advise", dagExecutionID=114, componentSpec) failed: '
    before = '{"json": 1}\nF1123 01:44:39.0 17 main.go:120] other\n'
    api.logs[logged(1)] = f"{before}F1123 01:44:39.057958      17 main.go:127] KFP driver: {call}{said}\n"
    api.states = ["FAILED"]
    done = ask("submit", *QUICK)
    assert f"FAILED at the driver of advise: {said}; see http" in done.err
    assert "the last lines" not in done.err


def test_steps_side_by_side_are_named_once_and_those_that_were_cured_not(ask, api: StandIn) -> None:
    loop = "root(0).for-loop-1(0).for-loop-1(0)"
    api.nodes = [
        *around("plan"),
        node(10, "root(0).export(0).executor", "Succeeded", "Retry", 11, 12),
        node(11, "root(0).export(0).executor(0)", "Error", said="pod deleted"),
        node(12, "root(0).export(0).executor(1)", "Succeeded"),
        node(30, f"{loop}(1).train(0).executor(0)", "Failed", said=EXIT_1),
        node(9, f"{loop}(0).train(0).executor(0)", "Error", said="pod deleted"),  # the first, but not by its ID
        node(25, f"{loop}(2).evaluate(0).executor(0)", "Failed", said=EXIT_1),
    ]
    api.states = ["FAILED"]
    assert "FAILED at train, evaluate: pod deleted; see http" in ask("submit", *QUICK).err


def test_a_workflow_that_is_gone_leaves_the_link(ask, api: StandIn) -> None:
    api.states = ["FAILED"]
    assert ask("submit", *QUICK).err.splitlines()[-1].startswith("pipelines.run: run ")
    api.nodes = [{"id": "x"}]
    assert " FAILED; see http" in ask("submit", *QUICK).err.splitlines()[-1]


@pytest.mark.parametrize(
    ("states", "history"),
    [(["RUNNING", "CANCELING", "CANCELED"], []), (["FAILED"], ["PENDING", "RUNNING", "CANCELING", "FAILED"])],
)
def test_a_run_that_was_terminated_is_not_started_again(ask, api: StandIn, states: list[str], history) -> None:
    """KFP may call it FAILED; that somebody ended it stands in the history of its states."""
    api.states, api.history = states, history
    done = ask("submit", *QUICK, "--resubmit", "3")
    assert (done.code, len(api.runs)) == (2, 1)
    assert "was terminated; see http" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("history", "state", "code"),
    [(["CANCELING", "SUCCEEDED"], "SUCCEEDED", 0), (["CANCELING", "FAILED", "RUNNING", "FAILED"], "FAILED", 2)],
)
def test_a_run_that_ended_otherwise_was_not_terminated(ask, api: StandIn, history, state: str, code: int) -> None:
    """It was quicker, or somebody pressed Retry later."""
    api.states, api.history = [state], history
    done = ask("submit", *QUICK)
    assert done.code == code
    assert "terminated" not in done.err


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
    assert "FAILED; see http" in done.err.splitlines()[-1]


def test_resubmit_without_wait_calls_nobody(ask, api: StandIn) -> None:
    done = ask("submit", "--resubmit", "1")
    assert (done.code, api.requests) == (2, [])
    assert "--resubmit goes with --wait" in done.err
