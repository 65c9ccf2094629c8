"""`schedule`: one recurring run a name, of a version that is there, with parameters that it takes."""

import pytest

from tests.pipelines_cli.standin import Dropped, StandIn, refusal

NIGHTLY = ("--cron", "0 0 3 * * *", "--version", "v1")


@pytest.fixture
def uploaded(ask, api: StandIn):
    assert ask("upload", "--version", "v1").code == 0
    assert ask("upload", "--version", "v2").code == 0
    return ask


def test_a_recurring_run_as_ordered(uploaded, api: StandIn) -> None:
    options = ("--name", "nightly", "--set", "run_seeds=1,2", "--at-once", "2", "--service-account", "tlm-runner")
    done = uploaded("schedule", *NIGHTLY, *options)
    assert done.code == 0, done.err
    (job,) = api.jobs.values()
    (version,) = [one for one in api.versions.values() if one.name == "v1"]
    assert done.out == f"{job.recurring_run_id}\n{api.url}/#/recurringrun/details/{job.recurring_run_id}\n"
    assert job.trigger.cron_schedule.cron == "0 0 3 * * *"
    assert (job.no_catchup, job.max_concurrency, job.mode) == (True, "2", "ENABLE")
    assert job.pipeline_version_reference.pipeline_version_id == version.pipeline_version_id
    assert job.pipeline_version_reference.pipeline_id == version.pipeline_id
    assert job.runtime_config.parameters == {"run_seeds": "1,2"}
    assert job.service_account == "tlm-runner"


def test_the_same_name_again(uploaded, api: StandIn) -> None:
    first = uploaded("schedule", *NIGHTLY)
    again = uploaded("schedule", *NIGHTLY)
    assert (again.code, again.out) == (0, first.out)
    assert "'tlm' is already scheduled like this" in again.err
    for change in (
        ("--cron", "0 0 4 * * *"),
        ("--version", "v2"),
        ("--set", "run_seeds=7"),
        ("--at-once", "3"),
        ("--service-account", "x"),
    ):
        before = list(api.jobs)
        done = uploaded("schedule", *NIGHTLY, *change)
        assert done.code == 0, done.err
        (now,) = api.jobs
        assert [now] != before
        assert f"'tlm' is scheduled anew: deleted the recurring run {before[0]}" in done.err
    assert uploaded("schedule", *NIGHTLY, "--name", "another").code == 0
    assert len(api.jobs) == 2


def test_one_that_was_switched_off_is_made_anew(uploaded, api: StandIn) -> None:
    uploaded("schedule", *NIGHTLY)
    (job,) = api.jobs.values()
    job.status = "DISABLED"
    assert uploaded("schedule", *NIGHTLY).code == 0
    assert [one.status for one in api.jobs.values()] == ["ENABLED"]


def test_what_is_not_there(uploaded, api: StandIn) -> None:
    done = uploaded("schedule", *NIGHTLY, "--version", "v3")
    assert (done.code, "does not have version v3 of the pipeline 'tlm'; `upload` it first" in done.err) == (2, True)
    done = uploaded("schedule", *NIGHTLY, "--pipeline", "tml")
    assert (done.code, "does not have a pipeline 'tml'; `upload` it first" in done.err) == (2, True)
    done = uploaded("schedule", *NIGHTLY, "--set", "run_seds=1")
    assert (done.code, "did you mean 'run_seeds'?" in done.err) == (2, True)
    assert api.jobs == {}


def test_what_the_server_thinks_of_a_cron_line_is_passed_on(uploaded, api: StandIn) -> None:
    said = "Schedule cron is not a supported format(https://godoc.org/github.com/robfig/cron). Error: 25 above 23"
    api.fail("POST /recurringruns", refusal(400, said))
    done = uploaded("schedule", "--cron", "0 0 25 * * *", "--version", "v1")
    assert (done.code, done.err.splitlines()[-1]) == (2, f"pipelines.run: {api.url}: refuses it (400): {said}")


def test_an_order_without_an_answer_is_not_repeated(uploaded, api: StandIn) -> None:
    api.fail("POST /recurringruns", Dropped())
    done = uploaded("schedule", *NIGHTLY)
    assert (done.code, "whether 'tlm' is scheduled is not known, repeat it" in done.err) == (3, True)


def test_five_fields_get_their_seconds(uploaded, api: StandIn) -> None:
    """KFP takes five fields for second to month: '0 3 * * 1' would be every hour in January."""
    done = uploaded("schedule", "--cron", "0 3 * * 1", "--version", "v1")
    assert "read as '0 0 3 * * 1'" in done.err
    assert [job.trigger.cron_schedule.cron for job in api.jobs.values()] == ["0 0 3 * * 1"]


@pytest.mark.parametrize("line", ["0 0 9 ? * 2-6", "0 0,30 8-18/2 1,15 JAN-mar,12 mon-fri", "@daily", "@every 1h30m"])
def test_lines_of_six_fields_and_words_are_sent_as_they_are(uploaded, api: StandIn, line: str) -> None:
    assert uploaded("schedule", "--cron", line, "--version", "v1").code == 0
    assert [job.trigger.cron_schedule.cron for job in api.jobs.values()] == [line]


@pytest.mark.parametrize("line", ["", "* * * *", "* * * * * * *"])
def test_another_number_of_fields_calls_nobody(ask, api: StandIn, line: str) -> None:
    done = ask("schedule", "--cron", line)
    assert (done.code, api.requests) == (2, [])
    assert f"cron line '{line}' has {len(line.split())} fields, expected six (second, minute," in done.err


@pytest.mark.parametrize("page", [1, 100])
def test_what_is_scheduled_is_listed(page: int, uploaded, api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.client.schedule.PAGE", page)
    assert uploaded("schedule", "--list").out == "nothing is scheduled\n"
    uploaded("schedule", *NIGHTLY, "--name", "nightly")
    uploaded("schedule", "--cron", "0 0 3 * * 1", "--version", "v2", "--name", "on-mondays")
    lines = uploaded("schedule", "--list").out.splitlines()
    links = {job.display_name: f"{api.url}/#/recurringrun/details/{key}" for key, job in api.jobs.items()}
    assert sorted(lines) == [
        f"nightly     0 0 3 * * *  ENABLED  {links['nightly']}",
        f"on-mondays  0 0 3 * * 1  ENABLED  {links['on-mondays']}",
    ]


def test_a_schedule_is_ended_by_its_name(uploaded, api: StandIn) -> None:
    for name in ("nightly", "weekly"):
        uploaded("schedule", *NIGHTLY, "--name", name)
    done = uploaded("schedule", "--delete", "--name", "nightly")
    assert done.code == 0, done.err
    assert "deleted the recurring run" in done.err
    assert [job.display_name for job in api.jobs.values()] == ["weekly"]
    done = uploaded("schedule", "--delete", "--name", "weakly")
    assert (done.code, "has no recurring run 'weakly'; did you mean 'weekly'?" in done.err) == (2, True)
    assert len(api.jobs) == 1


@pytest.mark.parametrize("page", [1, 100])
@pytest.mark.parametrize("again", [("--delete",), (*NIGHTLY, "--at-once", "3")])
def test_a_schedule_whose_runs_go_on_is_only_turned_off(
    uploaded, api: StandIn, again: tuple[str, ...], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes deletes the workflows of a recurring run with it (seen on KFP 2.17.0)."""
    monkeypatch.setattr("pipelines.client.schedule.PAGE", page)
    uploaded("schedule", *NIGHTLY)
    (job,) = api.jobs.values()
    for state, started_by in (("RUNNING", job.recurring_run_id), ("SUCCEEDED", job.recurring_run_id), ("RUNNING", "x")):
        assert uploaded("submit").code == 0
        run = list(api.runs.values())[-1]
        run.state, run.recurring_run_id = state, started_by
    done = uploaded("schedule", *again)
    assert done.code == 0, done.err
    assert "turned off the recurring run" in done.err
    assert "a run that it started goes on, and would be deleted with it" in done.err
    assert api.jobs[job.recurring_run_id].status == "DISABLED"
    assert len(api.jobs) == (1 if "--delete" in again else 2)
    next(run for run in api.runs.values() if run.recurring_run_id == job.recurring_run_id).state = "FAILED"
    assert "deleted the recurring run" in uploaded("schedule", "--delete").err
    assert not api.jobs


@pytest.mark.parametrize("options", [(), ("--list", "--delete"), ("--cron", "0 0 3 * * *", "--list")])
def test_one_of_three_things_is_asked_for(ask, api: StandIn, options: tuple[str, ...]) -> None:
    done = ask("schedule", *options)
    assert (done.code, done.err) == (2, "pipelines.run: give one of --cron WHEN, --list and --delete\n")
    assert api.requests == []
