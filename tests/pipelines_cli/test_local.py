"""What a person sees of a pipeline that runs on this machine, and how its parameters are read."""

import io
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from kfp.dsl import HTML, Markdown, Metrics
from kfp.dsl import Artifact as Output

from components import data
from pipelines import local
from pipelines.compiled import of_this_code, read_parameters
from pipelines.form import Parallelism
from research.components import multitask
from tests.tiny import refused, write_rows
from tests.toy_reports import toy_world
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus, plan_corpus
from tlm.data.tasks.task import load_task
from tlm.errors import NO_TORCH, InputError, Interrupted
from tlm.evaluation.report.report import report
from tlm.settings.options import Fields, Layout, Prices, Problem
from tlm.training.input.tokenizer import build_tokenizer


def test_what_a_step_puts_out_is_not_shown_a_second_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The step says it, and kfp.local lists it as an output, in one piece; other steps may write around it."""
    transcript = local.Transcript(log := io.StringIO())
    outputs = ["10:00:01.3 - INFO - Task \x1b[96m'advise'\x1b[0m outputs:", "    reasons: 'K: the paper's rules."]
    outputs += ["It's small.'", "    query: 'full'", "    top_k: 5"]
    pieces = ["10:00:00.1 - INFO - Executing task 'advise'\n", "    K: the paper's rules.\n", "    top_k: 5\n", "    "]
    pieces += ["\n".join([*outputs, ""]), "of another step\n", "-" * 80 + "\n"]
    for piece in pieces:
        transcript.write(piece)
    assert capsys.readouterr().err.splitlines() == [
        "▸ advise", "    K: the paper's rules.", "    top_k: 5", "    of another step"
    ]  # fmt: skip
    assert log.getvalue() == "".join(pieces)


def test_no_handler_outlives_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """kfp.local leaves one where steps ran in parallel; boto3 then logged to a closed file, with a traceback."""

    def pipeline() -> None:
        logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
        logging.getLogger().setLevel(logging.INFO)
        raise RuntimeError

    monkeypatch.setattr(local, "OUTPUTS", tmp_path)
    before = logging.getLogger().handlers[:], logging.getLogger().level
    with pytest.raises(Interrupted):
        local._run_pipeline(pipeline, {}, lambda: None)
    assert (logging.getLogger().handlers, logging.getLogger().level) == before


def test_an_error_is_said_again_if_other_steps_went_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "OUTPUTS", tmp_path)
    failing = ["10:00:00.1 - INFO - Executing task 'load-corpus'", "tlm.errors.InputError: x is absent; check it"]
    failing += ["10:00:00.1 - ERROR - Task 'load-corpus' finished with status FAILURE"]

    def said(*lines: str) -> str:
        def pipeline() -> None:
            sys.stdout.write("\n".join(lines) + "\n")
            raise RuntimeError

        return refused(local._run_pipeline, pipeline, {}, lambda: None)

    assert "a step failed: its error is shown above (all" in said(*failing)
    on = "10:00:09.1 - INFO - Executing task 'baseline'"
    for also in ((), ("tlm.errors.Interrupted: no space left",)):
        assert "a step failed: x is absent; check it (all output is in" in said(*failing, on, *also)
    assert "a step failed: it was changed (all output is in" in said("tlm.errors.Damaged: it was changed", on)


def test_a_step_that_ends_without_a_word_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where the shell around it is killed, or its container; no error is said to be above then."""
    monkeypatch.setattr(local, "OUTPUTS", tmp_path)

    def said(*lines: str) -> str:
        def pipeline() -> None:
            sys.stdout.write("\n".join(["10:00:00.1 - INFO - Executing task 'train'", *lines, ended, ""]))
            raise RuntimeError

        with pytest.raises(Interrupted) as caught:
            local._run_pipeline(pipeline, {}, lambda: None)
        return str(caught.value)

    ended = "10:00:00.1 - ERROR - Task 'train' finished with status FAILURE"
    by_docker = "10:00:00.1 - ERROR - Task train-2 failed with exception: no GPU"
    assert said(by_docker).startswith("a step failed: its error is shown above (all")
    assert said("train: 3 steps").startswith("a step failed: it ended without an error, perhaps killed (all")
    assert said("Traceback:", "TypeError: no").startswith("a step failed: its error is shown above (all")


def test_in_the_folder_of_a_group_a_colleague_can_run_the_pipeline_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local, "OUTPUTS", tmp_path / "local_outputs")
    monkeypatch.setattr(local, "_daemon", MagicMock())
    tmp_path.chmod(0o2775)
    with pytest.raises(Interrupted, match="a step failed"):
        local._run_pipeline(Mock(side_effect=RuntimeError), {}, lambda: None)
    with local.hardened_runner(tmp_path / "with containers/containers", "bridge", gpus=False):
        pass
    assert {folder.stat().st_mode & 0o7777 for folder in tmp_path.iterdir()} == {0o2775}


@pytest.mark.parametrize(
    "shell", ["Killed", "/bin/sh: line 1:   321 Killed: 9     python -m kfp", "sh: line 9: 8 Killed"]
)
def test_a_step_that_the_kernel_kills_is_said_in_a_sentence(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the shell of kfp.local alone: the process has no time to say anything."""
    transcript = local.Transcript(io.StringIO())
    transcript.write(f"10:00:00.1 - INFO - Executing task 'train'\n    {shell}\n")
    said = "the step was killed, perhaps for lack of memory; free some, or give it more"
    assert transcript.fault == ("Interrupted", said)
    assert capsys.readouterr().err.splitlines() == ["▸ train", f"    {said}"]


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("OSError: [Errno 28] No space left on device", ""),
        ("OSError: [Errno 28] No space left on device: 'folder/model' -> 'store/model'", " (store/model)"),
        ("OSError: [Errno 122] Disk quota exceeded: 'store/model'", " (store/model)"),
        ("OSError: 100000 requested and 768 written", ""),
        (": 3: printf: printf: I/O error", f" ({tempfile.gettempdir()})"),  # of dash
        (": line 3: printf: write error: No space left on device", f" ({tempfile.gettempdir()})"),
        (": 3: cannot create /tmp/a/step.py: No space left on device", f" ({tempfile.gettempdir()})"),
        ("mktemp: failed to create directory via template '/tmp/X': No space left on device", " (/tmp/X)"),
    ],
)
def test_a_disk_that_fills_up_in_a_step_is_a_sentence(
    error: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript = local.Transcript(io.StringIO())
    transcript.write(f"Traceback (most recent call last):\n  File x\n{error}\n\n")
    transcript.write("During handling of the above exception, another exception occurred:\n")
    said = f"no space left on the disk{named}; free some, then repeat"
    assert transcript.fault == ("Interrupted", said)
    assert capsys.readouterr().err.splitlines() == [f"    {said}"]


def test_a_message_about_a_users_label_is_no_full_disk() -> None:
    transcript = local.Transcript(io.StringIO())
    transcript.write("warning: the label 'printf: I/O error' has one text\n")
    assert transcript.fault is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "corpus_paths: [a.txt, b.txt]",
            "'corpus_paths': ['a.txt', 'b.txt'] is a list, expected str; write 'a.txt,b.txt'",
        ),
        ("run_seeds: 1_0", "'run_seeds': 10 is an int, expected str; write it in quotes"),
        ("store_root: s3://me:key@bucket", "'store_root' has a password, key or token in it"),
        ("report_gpu_hour: .nan", "'report_gpu_hour': nan cannot be written as JSON"),
        ("report_gpu_hour: true", "'report_gpu_hour': True is a bool, expected float"),
    ],
)
def test_a_wrong_line_in_a_file_of_parameters_is_one_sentence_with_the_file(
    line: str, said: str, tmp_path: Path
) -> None:
    (file := tmp_path / "my.yaml").write_text(f"{line}\n")
    assert refused(read_parameters, file, [], of_this_code("tlm")).startswith(f"{file}: parameter {said}")


def test_the_password_of_the_environment_is_refused_and_a_word_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "my.yaml").write_text("store_root: s3://my-test/abcd1234\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")  # as LocalStack has it
    assert read_parameters(file, [], of_this_code("tlm"))["store_root"] == "s3://my-test/abcd1234"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcd1234")
    said = refused(read_parameters, file, [], of_this_code("tlm"))
    assert said.startswith(f"{file}: parameter 'store_root' has a password, key or token in it")


def test_a_parameter_that_a_file_gives_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    (file := tmp_path / "my.yaml").write_text("run_seeds: '0'\ncorpus_paths: a.txt\n# more\nrun_seeds: '1'\n")
    said = refused(read_parameters, file, [], of_this_code("tlm"))
    assert said == f"{file}, line 4: 'run_seeds' for the second time; keep one line"


def refused_here(name: str, given: dict[str, Any] | None = None) -> str:
    return refused(local.run_pipeline, given or {}, None, "bridge", name, Parallelism())


def test_steps_share_the_cores_of_this_process_and_not_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, or where Slurm gives 6 cores of 64: 32 threads for each step would take turns on them."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "6")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setenv("TLM_THREADS", "")  # as good as not set
    refused_here("no such pipeline")
    assert os.environ["TLM_THREADS"] == "3"


def test_without_a_store_of_its_own_a_run_takes_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TLM_THREADS", "1")
    monkeypatch.setenv(local.LOCKS, str(tmp_path / "local_outputs"))
    monkeypatch.setenv("TLM_ROOT", str(tmp_path / "mine"))
    with pytest.raises(InputError, match="a step failed: its error is shown above"):
        local.run_pipeline({"corpus_paths": "none", "task_path": "none"}, None, "bridge", "shallow", Parallelism())
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "local_outputs"}


def test_a_folder_that_cannot_be_written_to_is_one_sentence(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("TLM_THREADS", local.LOCKS):  # which `local` sets
        monkeypatch.setenv(variable, "1")
    (tmp_path / "local_outputs").write_text("a file")
    done = cli("local", "--pipeline", "shallow", "--set", "corpus_paths=none", "--set", "task_path=none")
    said = f"pipelines.run: {tmp_path}/local_outputs: File exists; fix that, then repeat\n"
    assert (done.code, done.err) == (2, said)


def test_images_network_and_pods_of_a_run_are_those_given(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr(local, "run_pipeline", lambda *given: runs.append(given))
    for more in ((), ("--docker",), ("--docker", "--images", "my.json", "--network", "host", "--data-pods", "3")):
        assert cli("local", "--pipeline", "shallow", "--set", "run_seeds=7", *more).code == 0
    ran = [
        ({"run_seeds": "7"}, images, "bridge", "shallow", Parallelism()) for images in (None, Path("build/images.json"))
    ]
    assert runs == [*ran, ({"run_seeds": "7"}, Path("my.json"), "host", "shallow", Parallelism(data_pods=3))]


def test_containers_see_all_gpus_and_write_to_their_folders_alone(tmp_path: Path) -> None:
    given = local.hardened(tmp_path, "bridge", gpus=True)
    assert [one["Count"] for one in given["device_requests"]] == [-1]
    assert (given["read_only"], local.hardened(tmp_path, "bridge", gpus=False)["device_requests"]) == (True, [])
    owner = tmp_path.stat()
    assert given["user"] == f"{owner.st_uid}:{owner.st_gid}" != "0:0"


def test_the_container_of_a_colleague_is_in_the_group_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Docker leaves out all groups but the user's first, so that it could not write there; it gets no other one."""
    monkeypatch.setattr(os, "getuid", lambda: 5000)
    shared = tmp_path.stat().st_gid
    for groups, given in (([shared + 1, shared], [shared]), ([shared + 1], [])):
        monkeypatch.setattr(os, "getgroups", lambda groups=groups: groups)
        assert local.hardened(tmp_path, "bridge", gpus=False)["group_add"] == given


def test_a_corpus_and_a_task_must_be_named() -> None:
    assert "parameter 'corpus_paths' is missing; give it with --set" in refused_here("shallow")
    given = {"corpus_paths": "corpus.txt"}
    assert "parameter 'task_path' is missing" in refused_here("shallow", given)
    assert "parameter 'task_paths' is missing" in refused_here("multitask", given)


def test_networks_are_refused_at_once_where_pytorch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "neural networks need PyTorch, which is not installed here" in refused_here("tlm")
    assert "parameter 'corpus_paths' is missing" in refused_here("shallow")
    published = {"run_published": "my/model"}
    assert "neural networks need PyTorch" in refused_here("shallow", published)


def test_a_step_that_lacks_pytorch_ends_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """`predict` sees only in its step that the model is a network."""
    shown = local.Transcript(io.StringIO())
    shown.write("    Traceback (most recent call last):\n      File one\n")
    shown.write("    ModuleNotFoundError: No module named 'torch'\n")
    assert shown.fault == ("InputError", NO_TORCH)
    assert capsys.readouterr().err == f"    {NO_TORCH}\n"


def test_paths_of_a_corpus_may_have_spaces_around_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"passage {name}\n")
    fields = {"text_field": "text", "id_field": "", "source_field": "", "license_field": "", "words": 100}
    given = {"paths": f"{tmp_path}/a.txt , {tmp_path}/b.txt", **fields, "root": str(tmp_path / "root")}
    assert len(data.plan_corpus.python_func(**given, pods=1)) == 1
    made = data.load_corpus.python_func(**given, counts=Metrics())
    assert Artifact.open(made).counts["passages"] == 2


def test_the_components_of_corpus_task_and_tokenizer_pass_every_setting_on(tmp_path: Path) -> None:
    """What they make is what the steps make of the same settings."""
    root, files = str(tmp_path / "root"), tmp_path / "task"
    for split in ("train", "dev", "test", "more"):
        rows = [{"a": f"{split} {n}", "b": f"other {n}", "c": "x;y" if n else "x", "d": f"{split}{n}", "e": "by",
                 "f": "here"} for n in range(4)]  # fmt: skip
        write_rows((tmp_path if split == "more" else files) / f"{split}.jsonl", rows)
    path, more = str(files), str(tmp_path / "more.jsonl")
    named = {"text_field": "a", "pair_field": "b", "label_field": "c", "label_separator": ";", "group_field": "d"}
    how = {"metric": "macro_f1", "problem": "classification"}
    given = {"files": "", "unlabelled_path": more, "max_rejected": 0, "root": root, "counts": Metrics()}
    made = data.load_task.python_func(path, **named, **how, **given)
    task = load_task(path, fields=Fields(**named), problem=Problem(**how), unlabelled=more, root=root)
    assert made == task
    write_rows(files / "train.jsonl", [{"a": "", "b": "x", "c": "x", "d": "y"}, *rows])
    with pytest.raises(InputError, match=r"1 of 13 rows cannot be used .*, more than 0 and "):
        data.load_task.python_func(path, **named, **how, **given)
    layout = {"text_field": "a", "id_field": "d", "source_field": "f", "license_field": "e", "words": 50}
    made = data.load_corpus.python_func(more, **layout, root=root, counts=Metrics())
    assert made == load_corpus([more], layout=Layout(**layout), root=root)
    (planned,) = data.plan_corpus.python_func(more, **layout, pods=1, root=root)
    assert [planned] == plan_corpus([more], layout=Layout(**layout), pods=1, root=root)
    size = {"kind": "bpe", "vocab_size": 320}
    assert data.tokenizer.python_func(made, task, **size, root=root) == build_tokenizer(made, task, **size, root=root)
    shared = multitask.shared_tokenizer.python_func(made, [task, task], **size, root=root)
    assert shared == build_tokenizer(made, task, **size, more_tasks=[task], root=root)


def test_the_component_of_the_report_passes_prices_and_notes_on(tmp_path: Path) -> None:
    root = str(tmp_path)
    runs = [toy_world(tmp_path).metrics("bm25", seed, 0.6) for seed in (0, 1)]
    prices = {"gpu_hour": 1.0, "cpu_hour": 2.0, "kilowatt_hour": 3.0, "grams_per_kwh": 4.0}
    pages = [kind(uri=f"{tmp_path}/{name}") for name, kind in (("html", HTML), ("md", Markdown), ("nb", Output))]
    said = {"missing": "one\ntwo", "notes": "three", "against": runs[0]}
    made = data.report.python_func(runs[0], runs[1:], root, *pages, **prices, **said)
    notes = ["one", "two", "three"]
    assert made == report(runs, prices=Prices(**prices), notes=notes, against=runs[0], root=root)


def test_a_terminal_shows_the_answer_and_a_table_without_the_words_about_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = report([toy_world(tmp_path).metrics("bm25", seed, 0.6) for seed in (0, 1)], root=str(tmp_path))
    local._print_report(made)
    assert "| Model | " in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    local._print_report(made)
    shown = capsys.readouterr().out
    assert "Use bm25: " in shown
    assert "Bold:" not in shown
    assert "|" not in shown
