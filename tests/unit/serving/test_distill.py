"""`distill`: its loss by another way, what the teacher is asked, what the student reads, and the cost that is told."""

import json
import re
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F

from tests.searchable import corpus_of, docstrings
from tests.toys import Row
from tests.toys_training import SMALL, checkpoint, model, passages, rows, task
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Recipe
from tlm.data.passages import passages as passages_of
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.predictor import open_predictor
from tlm.evaluation.report.findings import TEACHER
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate, stages_of
from tlm.evaluation.score.mix import mix
from tlm.serving import distill as teaching
from tlm.serving.distill import answers, distill, soft_labels
from tlm.serving.export_onnx import export_onnx
from tlm.serving.student import Distillation
from tlm.settings.options import Compute
from tlm.settings.sections import Finetune
from tlm.training.device import to_device
from tlm.training.input.batches import collate, split
from tlm.training.input.texts import Examples
from tlm.training.input.tokenize import tokenize, tokens_for
from tlm.training.model import build
from tlm.training.model.losses import classification_loss, distillation_loss

THINNER = "model.layers=1"
GIVEN = {"preset": "tiny", "compute": Compute("cpu")}
RHO1 = 2


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("distill")


@pytest.fixture(scope="module")
def labelled(root):
    return task(root)


@pytest.fixture(scope="module")
def linear(root, labelled):
    """The metrics of a teacher that needs no training."""
    return baseline(labelled, root=str(root))


@pytest.fixture(scope="module")
def thin(root, labelled):
    """The student's stage 1."""
    return checkpoint(root, labelled, THINNER)


def taught(teacher: str, start: Artifact, examples: str, *overrides: str, **more) -> Artifact:
    changed = [*SMALL, "finetune.epochs=3", "finetune.evaluations=2", *overrides]
    return Artifact.open(distill(teacher, start.uri, examples, overrides=changed, **{**GIVEN, **more}))


@pytest.fixture(scope="module")
def student(root, linear, thin, labelled):
    return taught(linear, thin, labelled, subset=passages(root, "subset"))


# ---- the loss


@pytest.fixture(scope="module")
def batch(thin, labelled):
    """A model, its examples, and a batch of six."""
    read = Examples.open(Artifact.open(labelled), thin.input("task_tokens"), 48)
    return build.load(thin.path("model")).eval(), read, np.arange(6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_loss_is_that_of_the_library_but_for_the_teacher_s_entropy(batch, temperature):
    net, read, chosen = batch
    told = np.random.default_rng(0).dirichlet(np.ones(3), len(read.labels)).astype(np.float32)
    whole = collate(read.texts, chosen, told)
    inputs, *parts = (to_device(one, torch.device("cpu")) for one in (whole, *split(whole, 4)))
    _, logits = net(inputs, inputs.ids, tokens=False, classes=True)
    taught_by = torch.softmax(torch.from_numpy(told[chosen]).double().log() / temperature, 1)
    log_student = torch.log_softmax(logits.double() / temperature, 1)
    divergence = F.kl_div(log_student, taught_by, reduction="batchmean")
    entropy = -(taught_by * taught_by.log()).sum(1).mean()
    found = distillation_loss(net, inputs, temperature)
    assert found.total.item() == pytest.approx((temperature**2 * (divergence + entropy)).item(), rel=1e-4)
    in_parts = sum(distillation_loss(net, part, temperature).total.item() for part in parts)
    assert in_parts == pytest.approx(found.total.item(), rel=1e-4)


def test_a_teacher_that_is_sure_is_a_label(batch):
    net, read, chosen = batch
    told = np.eye(3, dtype=np.float32)[read.labels]
    soft, hard = (to_device(collate(read.texts, chosen, one), torch.device("cpu")) for one in (told, read.labels))
    expected = classification_loss(net, hard).total.item()
    assert distillation_loss(net, soft, 1.0).total.item() == pytest.approx(expected, rel=1e-5)


# ---- the teacher


def with_more() -> list[Row]:
    """The task with 24 texts that have no label."""
    return [*rows(), *((f"{text} too", None, None, UNLABELLED) for text, *_ in rows()[:24])]


def test_the_teacher_is_asked_about_train_and_what_has_no_label_only(root, linear, monkeypatch, capsys):
    monkeypatch.setattr("tlm.progress.LOG_EVERY_SECONDS", 0.0)
    teacher, opened = Artifact.open(linear).input("model"), Artifact.open(task(root, with_more()))
    labels = soft_labels(teacher, opened, "cpu", str(root))
    found, table = answers(labels), examples(opened).to_pydict()
    asked = np.isin(table["split"], ["train", UNLABELLED])
    assert np.isnan(found[~asked]).all()
    texts = [text for text, chosen in zip(table["text"], asked, strict=True) if chosen]
    expected = open_predictor(teacher.path("model"), "cpu")[0].predict(texts)
    assert np.allclose(found[asked], expected, atol=1e-6)
    assert labels.counts == {"texts": len(texts)}
    shown = re.findall(r"asking the teacher about the task: (\d+) of (\d+) texts", capsys.readouterr().err)
    assert shown[-1] == (str(len(found)), str(len(found)))  # texts without a label come last


def test_it_goes_on_where_it_was_killed(root, linear, monkeypatch):
    monkeypatch.setattr(teaching, "CHUNK", 16)
    monkeypatch.setattr(teaching, "SAVE_SECONDS", 0.0)
    teacher = Artifact.open(linear).input("model")
    subset = Artifact.open(corpus_of(list(docstrings()[:101]), str(root)))  # two files, of 50 and 51 passages
    asked = []

    class Killed(Exception):
        pass

    def opening(folder, device):
        predictor, place = open_predictor(folder, device)
        predict_all = predictor.predict

        def predicted(texts, pairs=None, label=""):
            asked.append(len(texts))
            if len(asked) == 4:
                raise Killed
            return predict_all(texts, pairs, label)

        predictor.predict = predicted
        return predictor, place

    texts = [text for found in passages_of(subset, ["text"]) for text in found["text"].to_pylist()]
    whole = open_predictor(teacher.path("model"), "cpu")[0].predict(texts)
    monkeypatch.setattr(teaching, "open_predictor", opening)
    with pytest.raises(Killed):
        soft_labels(teacher, subset, "cpu", str(root))
    again = soft_labels(teacher, subset, "cpu", str(root))
    assert asked == [16, 16, 16, 2, 2, 16, 16, 16, 3]  # 48 texts were saved, the fourth part was not
    assert np.allclose(answers(again), whole, atol=1e-6)
    assert not list(root.glob("progress/**/manifest.json"))


# ---- the student


def test_it_reads_rho1_batches_of_passages_for_each_of_the_task(student, root, linear, thin, labelled):
    alone = taught(linear, thin, labelled)
    assert student.details["cost"]["steps"] == (1 + RHO1) * alone.details["cost"]["steps"]
    own = student.details["chosen"]
    assert own == {"teacher": "baseline", "passages": 120, "temperature": own["temperature"]}
    assert alone.details["chosen"]["passages"] == 0
    for one in (student, alone):
        found = pq.read_table(one.path("curve.parquet")).to_pydict()
        assert all(np.isfinite(found["ce"]))
        assert sum(found["tokens"]) == one.details["cost"]["tokens"]


@pytest.mark.parametrize("retrieved", [True, False])
def test_it_reads_each_text_once_an_epoch_with_the_answer_to_it(root, thin, retrieved):
    """Passages and texts without a label, rho1 batches for each of the task. Here the answer is the text's number."""
    whole, subset = Artifact.open(task(root, with_more())), passages(root, "subset")
    tokens = tokens_for(thin, whole, str(root))
    inputs = {"checkpoint": thin, "task": whole, "task_tokens": tokens}
    told = [np.arange(108, dtype=np.float32)[:, None]]
    if retrieved:
        words = tokens.input("tokenizer").uri
        inputs["subset_tokens"] = Artifact.open(tokenize(subset, words, root=str(root)))
        told = [np.arange(1000, 1120, dtype=np.float32)[:, None], *told]
    external = [*range(84, 108), *(range(1000, 1120) if retrieved else ())]
    orders = []
    for seed in (0, 1):
        settings = {"seed": seed, "temperature": 1.0, "rho1": RHO1}
        own = Finetune(batch=8, epochs=2, lr=1e-3)
        work = Distillation(Recipe("model", "distill", 0, settings, inputs), own, told)
        assert work.steps == (1 + RHO1) * 2 * 48 / 8
        read = np.array([work.batch(step).labels[:, 0] for step in range(work.steps)], int).reshape(-1, 1 + RHO1, 8)
        orders.append(read[:, :RHO1].ravel()[: len(external)].tolist())
        assert Counter(orders[-1]) == dict.fromkeys(external, 1)
        assert Counter(read[:, RHO1].ravel().tolist()) == dict.fromkeys(range(48), 2)
    assert orders[0] != orders[1]


def test_it_learns_what_the_teacher_says_and_not_the_labels(root, thin):
    """The labels are turned round in the student's task, and its teacher has not seen that."""
    right = task(root)
    teacher = model(root, checkpoint(root, right), right, "finetune.epochs=30", "finetune.lr=3e-3")
    turned = [(text, pair, {"bio": "law", "law": "bio"}.get(gold, gold), split) for text, pair, gold, split in rows()]
    wrong = task(root, [*turned[:48], *rows()[48:]])  # only in train
    start = checkpoint(root, wrong, THINNER)
    learned = taught(teacher.uri, start, wrong, "finetune.epochs=30", "finetune.lr=3e-3")
    labels = [gold for _, _, gold, split in rows() if split == "test"]
    texts = [text for text, _, _, split in rows() if split == "test"]
    of_teacher, of_student = (
        [row["label"] for row in predict(one.uri, texts, device="cpu")] for one in (teacher, learned)
    )
    assert np.mean(np.array(of_teacher) == labels) > 0.7
    assert np.mean(np.array(of_student) == of_teacher) > 0.7


def test_the_same_student_twice_and_another_with_another_seed(root, student, linear, thin, labelled, tmp_path):
    subset = passages(tmp_path, "subset")
    again_task = task(tmp_path)
    start = checkpoint(tmp_path, again_task, THINNER)
    again = taught(baseline(again_task, root=str(tmp_path)), start, again_task, subset=subset)
    assert again.content == student.content
    for change in ({"seed": 5}, {"temperature": 3.0}):
        assert taught(linear, thin, labelled, subset=passages(root, "subset"), **change).content != student.content
    fewer = taught(linear, thin, labelled, "finetune.epochs=2", subset=passages(root, "subset"))
    assert fewer.manifest.key != student.manifest.key


def test_a_student_of_so_many_steps_is_not_named_by_epochs(linear, thin, labelled):
    steps = "finetune.steps=4"
    one, other = (taught(linear, thin, labelled, steps, f"finetune.epochs={epochs}") for epochs in (1, 2))
    assert one.uri == other.uri
    assert one.run()["preset"] == "tiny"
    assert steps in one.run()["overrides"]


def test_pairs(root, monkeypatch):
    monkeypatch.setattr(teaching, "CHUNK", 16)
    labelled = task(root, rows(pair=True))
    start, teacher = checkpoint(root, labelled, THINNER), model(root, checkpoint(root, labelled), labelled)
    learned = taught(teacher.uri, start, labelled)
    assert all(np.isfinite(pq.read_table(learned.path("curve.parquet"))["ce"].to_numpy()))
    assert Artifact.open(evaluate(learned.uri, labelled, device="cpu")).details["arm"] == "student"


def test_its_card_says_who_taught_it(student):
    card = " ".join((student.path("model") / "README.md").read_text(encoding="utf-8").split())
    assert "what a teacher (baseline) answered to the training texts and to 120 passages" in card


def test_it_is_an_encoder_like_any_other(root, student, labelled):
    small = Artifact.open(export_onnx(student.uri, root=str(root)))
    found = [
        [row["label"] for row in predict(one.uri, ["cell gene", "the judge", "ship of fish"], device="cpu")]
        for one in (student, small)
    ]
    assert found[0] == found[1]
    assert Artifact.open(evaluate(small.uri, labelled, device="cpu")).details["stage"] == "distillation"


# ---- cost, and its place in a report


def test_its_cost_has_its_teacher_s(root, labelled, thin, linear):
    big = model(root, checkpoint(root, labelled), labelled)
    mixture = mix([evaluate(big.uri, labelled, device="cpu"), linear])
    learned = taught(mixture, thin, labelled)
    stages = stages_of(learned)
    assert list(stages) == [
        "teacher, bm25, stage 1", "teacher, bm25, stage 2", "teacher, baseline, baseline",
        "stage 1", "distillation",
    ]  # fmt: skip
    metrics = Artifact.open(evaluate(learned.uri, labelled, device="cpu"))
    cost = json.loads(metrics.path("metrics.json").read_text())["cost"]
    assert cost["teacher, bm25, stage 2"] == big.details["cost"]
    assert cost["distillation"] == learned.details["cost"]
    same = taught(evaluate(big.uri, labelled, device="cpu"), big.input("checkpoint"), labelled)
    assert list(stages_of(same)) == ["teacher, stage 2", "stage 1", "distillation"]  # stage 1 is that of both
    seeds = [evaluate(model(root, checkpoint(root, labelled, seed=seed), labelled).uri, labelled) for seed in (0, 1)]
    of_both = taught(mix([*seeds, linear]), thin, labelled)
    assert [name for name in stages_of(of_both) if "stage 2" in name] == [
        "teacher, bm25, stage 2", "teacher, bm25, stage 2 (2)",
    ]  # fmt: skip


def test_a_report_finds_the_teacher_among_arms_of_one_name(root, labelled, thin):
    """A small encoder that was fine-tuned on labels has the arm of the teacher, and is not the teacher."""
    big, small = model(root, checkpoint(root, labelled), labelled), model(root, thin, labelled)
    ones = [taught(big.uri, thin, labelled), big, small]
    told = json.loads(
        Artifact.open(report([evaluate(one.uri, labelled, device="cpu") for one in ones]))
        .path("report.json")
        .read_text()
    )
    models = {group["name"]: group["models"] for group in told["groups"]}
    pairs = [(one["first"], one["second"]) for one in told["differences"] if one["question"] == TEACHER]
    assert [[models[name] for name in pair] for pair in pairs] == [[[one.manifest.key] for one in ones[:2]]]


def test_a_report_adds_up_the_seeds_of_a_student_of_mixtures(root, labelled, linear):
    """Each seed has a teacher of its own."""
    metrics = []
    for seed in (0, 1):
        big = model(root, checkpoint(root, labelled, seed=seed), labelled)
        teacher = mix([evaluate(big.uri, labelled, device="cpu"), linear])
        learned = taught(teacher, checkpoint(root, labelled, THINNER, seed=seed), labelled)
        metrics.append(evaluate(learned.uri, labelled, device="cpu"))
    told = json.loads(Artifact.open(report([*metrics, linear])).path("report.json").read_text())
    (group,) = (group for group in told["groups"] if group["kind"] == "student")
    assert group["seeds"] == [0, 1]
    assert set(group["stages"]) == {
        "teacher, bm25, stage 1", "teacher, bm25, stage 2", "teacher, baseline, baseline", "stage 1", "distillation",
    }  # fmt: skip


def test_a_report_asks_whether_it_is_as_good_as_its_teacher(root, labelled, student, linear):
    metrics = evaluate(student.uri, labelled, device="cpu")
    told = json.loads(Artifact.open(report([metrics, linear])).path("report.json").read_text())
    assert {group["name"] for group in told["groups"]} == {"linear", "student"}  # the better on dev first
    questions = {(one["first"], one["second"]) for one in told["differences"]}
    assert questions == {("student", "linear")}


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; expected a number above 0, at most 100"),
        ({"overrides": ["train.rho1=inf"]}, "train.rho1 is inf; expected the number of batches of passages"),
        ({"seed": -2}, "seed is -2; expected -1 or more"),
        ({"preset": "pokcet"}, "pokcet"),
    ],
)
def test_wrong_settings_are_one_sentence(linear, thin, labelled, change, message):
    with pytest.raises(InputError, match=message):
        distill(linear, thin.uri, labelled, **{**GIVEN, **change})


def test_wrong_inputs_are_one_sentence(root, linear, thin, labelled):
    pairs = task(root, rows(pair=True))
    of_pairs = model(root, checkpoint(root, pairs), pairs)
    with pytest.raises(InputError, match=r"has pairs of texts, and a passage is one text; leave out --subset"):
        distill(of_pairs.uri, thin.uri, pairs, subset=passages(root, "subset"), **GIVEN)
    numbers = task(root, rows(regression=True), "pearson", labels=False)
    with pytest.raises(InputError, match=r"gives the 3 classes bio, law, sea but .* has a number"):
        distill(linear, thin.uri, numbers, **GIVEN)
