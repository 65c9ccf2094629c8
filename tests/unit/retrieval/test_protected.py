"""Subsets for a task: only those whose passages were freed of its dev and test texts are taken."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from research.fewer_labels import fewer_labels
from research.multitask.merge import merge_subsets
from research.multitask.train import train_multitask
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact, remove
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.examples import examples
from tlm.data.tasks.task import load_task
from tlm.errors import InputError, Interrupted
from tlm.evaluation.report.report import report
from tlm.evaluation.score import baseline as baseline_step
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.mix import mix
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset import protected
from tlm.retrieval.subset.export import export, import_subset
from tlm.retrieval.subset.protected import check_protected, doubts, unprotected
from tlm.serving.distill import distill
from tlm.settings.options import Fields, Filters
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import finetune, train

STEPS = ["train.steps=4", "train.warmup_steps=1", "train.rho1=1", "finetune.epochs=1"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two splits of one task, a corpus that has all its texts, and a subset for each split."""
    folder = tmp_path_factory.mktemp("protected")
    write_tiny(folder, documents=60)
    rows = [(folder / "task" / f"{split}.jsonl").read_text() for split in ("train", "dev", "test")]
    (folder / "all.jsonl").write_text("".join(rows))
    with (folder / "corpus.jsonl").open("a") as corpus:
        corpus.write("".join(rows))
    root = str(folder / "store")
    made = SimpleNamespace(folder=folder, root=root, corpus=load_corpus([str(folder / "corpus.jsonl")], root=root))
    made.index = build_index(made.corpus, root=root)
    made.task, made.other = (
        load_task(str(folder / "all.jsonl"), seed=seed, test_share=0.3, root=root) for seed in (0, 1)
    )
    made.subset, made.others = (subset_for(made, task) for task in (made.task, made.other))
    made.tokenizer = build_tokenizer(made.corpus, made.task, vocab_size=300, root=root)
    return made


def subset_for(world: SimpleNamespace, task: str, **how: bool) -> str:
    return export(retrieve(world.index, task, top_k=5, root=world.root), filters=Filters(**how), root=world.root)


def held_out(task: str) -> set[str]:
    return {row["text"] for row in examples(Artifact.open(task)).to_pylist() if row["split"] in ("dev", "test")}


def opened(*uris: str) -> list[Artifact]:
    return [Artifact.open(uri) for uri in uris]


def test_a_subset_for_another_split_is_refused_wherever_it_meets_the_task(world) -> None:
    subset, task = Artifact.open(world.others), Artifact.open(world.task)
    count = len(held_out(world.task) - held_out(world.other))
    assert count > 20
    assert unprotected(subset, task) == count
    said = rf"{world.others} was made for another split: {count} dev and test texts of {world.task} were not looked for"
    given = {"subset": world.others, "preset": "tiny", "root": world.root}
    checkpoint = train(
        world.task, tokenizer=world.tokenizer, subset=world.subset, preset="tiny", overrides=STEPS, root=world.root
    )
    teacher = baseline(world.task, root=world.root)
    for step in (
        lambda: static(world.task, subset=world.others, root=world.root),
        lambda: train(world.task, tokenizer=world.tokenizer, **given),
        lambda: train_multitask([world.task], tokenizer=world.tokenizer, **given),
        lambda: distill(teacher, checkpoint, world.task, overrides=STEPS, **given),
    ):
        with pytest.raises(InputError, match=said):
            step()


def test_its_own_subset_is_taken_without_a_word(world, capsys) -> None:
    check_protected(Artifact.open(world.subset), Artifact.open(world.task))
    static(world.task, subset=world.subset, root=world.root)
    assert "warning" not in capsys.readouterr().err


def test_texts_count_not_the_task(world) -> None:
    """A task with fewer labels has no other dev and test texts; the whole one has others than that has."""
    fewer = fewer_labels(world.task, per_class=4, root=world.root)
    check_protected(Artifact.open(world.subset), Artifact.open(fewer))
    static(fewer, subset=world.subset, root=world.root)
    lost = held_out(world.task) - held_out(fewer)
    assert unprotected(*opened(subset_for(world, fewer), world.task)) == len(lost) > 0
    rows = [json.loads(line) for line in (world.folder / "all.jsonl").read_text().splitlines()]
    spelled = world.folder / "spelled.jsonl"
    spelled.write_text("".join(json.dumps({**row, "text": row["text"].upper() + "!"}) + "\n" for row in rows))
    again = load_task(str(spelled), seed=0, test_share=0.3, root=world.root)
    assert held_out(again).isdisjoint(held_out(world.task))
    check_protected(Artifact.open(world.subset), Artifact.open(again))


def test_a_merged_subset_is_for_all_its_tasks(world) -> None:
    parts = []
    for name, uri in (("one", world.task), ("two", world.other)):
        folder = world.folder / name
        folder.mkdir()
        for split in ("train", "dev", "test"):
            rows = [row for row in examples(Artifact.open(uri)).to_pylist() if row["split"] == split]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        parts.append(load_task(str(folder), root=world.root))
    merged = Artifact.open(merge_subsets([subset_for(world, task) for task in parts], root=world.root))
    check_protected(merged, *opened(*parts, world.task, world.other))
    trained = train_multitask(
        parts, tokenizer=world.tokenizer, subset=merged.uri, preset="tiny", overrides=STEPS, root=world.root
    )
    assert [doubt for task in opened(*parts) for doubt in doubts(Artifact.open(trained), task)] == []
    third = load_task(str(world.folder / "all.jsonl"), seed=5, test_share=0.3, root=world.root)
    count = len(held_out(third) - held_out(world.task) - held_out(world.other))
    assert unprotected(merged, Artifact.open(third)) == count > 0
    with pytest.raises(InputError, match=f"dev and test texts of {parts[1]} were not looked for"):
        train_multitask(
            parts, tokenizer=world.tokenizer, subset=subset_for(world, parts[0]), preset="tiny", root=world.root
        )


def test_without_the_overlap_filter_only_queries_count(world) -> None:
    """What is retrieved with a test text is refused; that nothing was looked for was the user's choice."""
    plain, others = (subset_for(world, task, overlap=False) for task in (world.task, world.other))
    check_protected(Artifact.open(plain), Artifact.open(world.task))
    asked = {row["text"] for row in examples(Artifact.open(world.other)).to_pylist() if row["split"] == "train"}
    assert unprotected(*opened(others, world.task)) == len(held_out(world.task) & asked) > 0


def test_unlabelled_texts_are_queries_too(world) -> None:
    (world.folder / "held.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in held_out(world.task)))
    (folder := world.folder / "apart").mkdir()
    for split in ("train", "dev", "test"):
        rows = [{"text": f"{split} {kind} words about rye", "label": kind} for kind in ("many", "few")]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    apart = load_task(str(folder), unlabelled=str(world.folder / "held.jsonl"), root=world.root)
    others = subset_for(world, apart, overlap=False)
    assert unprotected(*opened(others, world.task)) == len(held_out(world.task))


def test_second_texts_of_pairs_count(world, tmp_path: Path) -> None:
    tasks = []
    for name, second in (("one", "in its second text"), ("two", "in another second text")):
        folder = tmp_path / name
        folder.mkdir()
        for split in ("train", "dev", "test"):
            rows = [{"text": f"bread and rain {split}", "second": f"{second} {i}", "label": f"{i}"} for i in range(2)]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        tasks.append(load_task(str(folder), fields=Fields(pair_field="second"), root=world.root))
    subset = Artifact.open(subset_for(world, tasks[0]))
    assert [unprotected(subset, task) for task in opened(*tasks)] == [0, 2]


def test_an_imported_subset_without_a_task_is_warned_of_and_a_line_of_the_report(world, capsys) -> None:
    (world.folder / "chosen.jsonl").write_text((world.folder / "corpus.jsonl").read_text())
    loose, bound, other = (
        import_subset(str(world.folder / "chosen.jsonl"), task=task, root=world.root)
        for task in ("", world.task, world.other)
    )
    capsys.readouterr()
    metrics = static(world.task, subset=loose, root=world.root)
    warning = "was imported without a task, so it was not checked against dev and test texts"
    assert f"{loose} {warning}" in capsys.readouterr().err
    metrics_of_bound = static(world.task, subset=bound, root=world.root)
    assert "not checked" not in capsys.readouterr().err
    with pytest.raises(InputError, match="was made for another split"):
        static(world.task, subset=other, root=world.root)
    linear = baseline(world.task, root=world.root)
    for one, expected in ((metrics, True), (metrics_of_bound, False)):
        said = json.loads(Artifact.open(report([linear, one], root=world.root)).path("report.json").read_text())
        assert any("not checked against dev and test texts" in one["sentence"] for one in said["checks"]) == expected


def test_scores_of_such_a_subset_are_not_mixed_and_the_report_says_so(world, monkeypatch) -> None:
    """As versions before this one made them."""
    linear = baseline(world.task, root=world.root)
    with monkeypatch.context() as patch:
        patch.setattr(baseline_step, "check_protected", lambda *_: None)
        metrics = static(world.task, subset=world.others, root=world.root)
    with pytest.raises(InputError, match=f"{metrics} was trained on {world.others}, which was made for another split"):
        mix([linear, metrics], root=world.root)
    mix([linear, static(world.task, subset=world.subset, root=world.root)], root=world.root)
    said = json.loads(Artifact.open(report([linear, metrics], root=world.root)).path("report.json").read_text())
    (leak,) = [one for one in said["checks"] if one["code"] == "TLM001"]
    assert leak["severity"] == "warning"
    assert "dev and test texts were not looked for" in leak["sentence"]


def test_stage_2_on_another_split_is_warned_of(world, capsys) -> None:
    given = {"preset": "tiny", "overrides": STEPS, "root": world.root}
    checkpoint = train(world.other, tokenizer=world.tokenizer, subset=world.others, **given)
    finetune(checkpoint, world.other, **given)
    assert "another split" not in capsys.readouterr().err
    finetune(checkpoint, world.task, **given)
    warning = f"warning: {checkpoint} was trained on {world.others}, which was made for another"
    assert warning in capsys.readouterr().err
    train(world.task, tokenizer=world.tokenizer, subset=world.subset, start=checkpoint, **given)
    assert warning in capsys.readouterr().err


def test_neither_the_teacher_nor_the_start_of_a_student_comes_from_another_split(world) -> None:
    given = {"preset": "tiny", "overrides": STEPS, "root": world.root}
    spoiled = train(world.other, tokenizer=world.tokenizer, subset=world.others, **given)
    clean = train(world.task, tokenizer=world.tokenizer, subset=world.subset, **given)
    pairs = (finetune(spoiled, world.task, **given), clean), (baseline(world.task, root=world.root), spoiled)
    for teacher, start in pairs:
        with pytest.raises(InputError, match=f"was trained on {world.others}, which was made for another split"):
            distill(teacher, start, world.task, **given)


def test_a_store_that_is_gone_is_no_reason_to_trust_a_subset(world, monkeypatch) -> None:
    def gone(*_: Artifact) -> int:
        raise Interrupted("the store is gone")

    monkeypatch.setattr(protected, "unprotected", gone)
    with pytest.raises(Interrupted):
        list(doubts(*opened(world.others, world.task)))


def test_a_task_that_is_gone_is_needed_only_where_another_is_given(world, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    made = SimpleNamespace(root=root, corpus=load_corpus([str(world.folder / "corpus.jsonl")], root=root))
    made.index = build_index(made.corpus, root=root)
    rows, files = (world.folder / "all.jsonl").read_text(), [tmp_path / f"{name}.jsonl" for name in ("one", "two")]
    for file in files:
        file.write_text(rows)
    first, second = (load_task(str(file), seed=s, test_share=0.3, root=root) for s, file in enumerate(files))
    subset, merged = opened(own := subset_for(made, first), merge_subsets([own, subset_for(made, second)], root=root))
    task, other = opened(first, second)
    remove(task.store, task.folder_name)
    check_protected(subset, task)
    check_protected(merged, other)
    with pytest.raises(InputError, match="which is gone"):
        check_protected(subset, other)
