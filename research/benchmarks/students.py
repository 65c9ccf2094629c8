"""Students of an encoder and of a mixture, on the demo and SciERC (`TLM_DEV_DATA`): scores beside theirs, and speed."""

import os
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from research.benchmarks.measure import compare, per_cpu_second
from research.benchmarks.row import Result, Row, against, limit, need
from research.benchmarks.serving import one_by_one, together
from research.benchmarks.training_data import dev_data, mixed_corpus
from tlm.artifacts.artifact import Artifact
from tlm.settings.options import Fields, Layout

TEXTS = 400
ENCODER, MIXTURE, LABELS = "the encoder", "the mixture", "the same network taught by labels"
BEHIND, TIMES, OTHERWISE = 1.0, 3.0, 2.0
WITH, WITHOUT = "with passages", "without passages"


class Material(NamedTuple):
    """URIs of what all seeds of a task share, and the settings of its models.

    Attributes:
        name: Of the task.
        task: The task.
        subset: BM25's text.
        tokenizer: The vocabulary.
        shallow: Metrics of the models without a network.
        preset: Settings of the teacher.
        student: Settings that make it a student.
        seeds: How many seeds.
    """

    name: str
    task: str
    subset: str
    tokenizer: str
    shallow: tuple[str, str]
    preset: str
    student: list[str]
    seeds: int


def run(quick: bool) -> list[Result]:
    """Seeds of two teachers, and of the students of each. Finished steps are found in TLM_ROOT, if it is set."""
    data = dev_data(quick)
    need("torch", "onnxruntime")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        root = os.environ.get("TLM_ROOT") or folder
        for material in (of_demo(Path(folder), root), scierc(data, root)):
            scored: dict[str, list[str]] = defaultdict(list)
            for seed in range(material.seeds):
                for name, metrics in trained(material, seed).items():
                    scored[name].append(metrics)
            results += [*behind(material.name, scored), *speeds(material, scored), *int8(material.name, scored)]
    return results


def scierc(data: Path, root: str) -> Material:
    """SciERC with the mixed corpus."""
    from tlm.data.tasks.task import load_task

    task = load_task(str(data / "scierc"), root=root)
    return prepare("SciERC", mixed_corpus(data, root), task, "pocket", 50, seeds=3)


def of_demo(folder: Path, root: str) -> Material:
    """The demo's task and corpus."""
    from demo.__main__ import write
    from tlm.data.corpus.load import load_corpus
    from tlm.data.tasks.task import load_task

    write(folder / "data")
    corpus = load_corpus(
        [str(folder / "data" / "corpus.jsonl.gz")], layout=Layout(source_field="source", words=64), root=root
    )
    task = load_task(str(folder / "data" / "service-kinds"), fields=Fields(group_field="service"), root=root)
    return prepare("the demo", corpus, task, "demo", 150, seeds=5)


def prepare(name: str, corpus: str, task: str, preset: str, top_k: int, seeds: int) -> Material:
    """BM25's text for a task, and the models without a network."""
    from tlm.evaluation.score.baseline import baseline, static
    from tlm.retrieval.retrieve import retrieve
    from tlm.retrieval.search.index import build_index
    from tlm.retrieval.subset.export import export
    from tlm.settings import presets
    from tlm.training.input.tokenizer import build_tokenizer

    subset = export(retrieve(build_index(corpus), task, top_k=top_k))
    tokenizer = build_tokenizer(corpus, task, vocab_size=presets.resolve(preset).tokenizer.vocab_size)
    small = presets.resolve("pocket-student").model
    changed = [f"model.{part}={getattr(small, part)}" for part in ("hidden", "layers", "heads", "intermediate")]
    return Material(
        name, task, subset, tokenizer, (baseline(task), static(task, subset=subset)), preset, changed, seeds
    )


def trained(material: Material, seed: int) -> dict[str, str]:
    """Metrics of one seed's teachers and students, by name."""
    from tlm.evaluation.score.evaluate import evaluate
    from tlm.evaluation.score.mix import mix
    from tlm.serving.distill import distill
    from tlm.settings import presets
    from tlm.training.stages import finetune, train

    task, subset, preset, student = material.task, material.subset, material.preset, material.student
    large, small = (
        train(task, tokenizer=material.tokenizer, subset=subset, preset=preset, overrides=changed, seed=seed)
        for changed in ([], student)
    )
    encoder = evaluate(finetune(large, task, preset=preset), task)
    found = {ENCODER: encoder, MIXTURE: mix([encoder, *material.shallow])}
    epochs, rho1 = presets.resolve(preset).finetune.epochs, presets.resolve(preset).train.rho1
    as_long = [*student, f"finetune.epochs={epochs * (1 + int(rho1)):g}"]
    for name, teacher in list(found.items()):
        for way, given in ((WITH, {"subset": subset, "overrides": student}), (WITHOUT, {"overrides": as_long})):
            taught = distill(teacher, small, task, preset=preset, **given)
            found[student_of(name, way)] = evaluate(taught, task)
    return found | {LABELS: evaluate(finetune(small, task, preset=preset, overrides=student), task)}


def student_of(teacher: str, way: str) -> str:
    """The name of a student."""
    return f"student of {teacher}, {way}"


def behind(task: str, scored: dict[str, list[str]]) -> list[Result]:
    """Differences on test between each student and its teacher, and with and without passages, in points."""
    from tlm.evaluation.report.findings import score_text
    from tlm.evaluation.report.runs import grouped
    from tlm.evaluation.score.intervals import difference, with_interval

    arms = {name: grouped([Artifact.open(one) for one in metrics])[0].on("test") for name, metrics in scored.items()}
    teachers = {student_of(name, way): name for name in (ENCODER, MIXTURE) for way in (WITH, WITHOUT)}
    pairs = list(teachers.items())
    pairs += [(student_of(name, WITH), student_of(name, WITHOUT)) for name in (ENCODER, MIXTURE)]
    pairs += [(student_of(MIXTURE, WITH), other) for other in (student_of(ENCODER, WITH), LABELS, ENCODER)]
    pairs += [(student_of(ENCODER, WITH), LABELS)]
    results = []
    for first, second in pairs:
        found = difference(arms[first], arms[second], len(pairs))
        low, high = (100 * float(end or 0) for end in (found.low, found.high))
        shown = [score_text(with_interval(arms[name])) for name in (first, second)]
        results.append(
            limit(
                f"{task}: {first}, behind {second}",
                -100 * found.mean,
                "points",
                BEHIND if teachers[first] == second else None,
                f"Test macro-F1 {shown[0]} and {shown[1]}: {100 * found.mean:+.1f} ({low:+.1f} to {high:+.1f}).",
            )
        )
    return results


def speeds(material: Material, scored: dict[str, list[str]]) -> list[Result]:
    """Texts a CPU second of a student, with PyTorch and as ONNX, beside the encoder and the mixture with PyTorch."""
    from tlm.data.tasks.examples import read_splits
    from tlm.evaluation.predict.encoder import OnnxClassifier
    from tlm.evaluation.predict.predictor import open_predictor
    from tlm.serving.convert import EXACT, SMALL
    from tlm.serving.export_onnx import export_onnx
    from tlm.training.device import resolve_device

    resolve_device("cpu")
    texts = (read_splits(Artifact.open(material.task), "train")["train"].texts * TEXTS)[:TEXTS]
    student = scored[student_of(ENCODER, WITH)][0]
    folders = {name: Artifact.open(scored[name][0]).input("model").path("model") for name in (ENCODER, MIXTURE)}
    onnx = Artifact.open(export_onnx(student)).path("model")
    sides = {name: open_predictor(folder, "cpu")[0] for name, folder in folders.items()}
    sides["student"] = open_predictor(Artifact.open(student).input("model").path("model"), "cpu")[0]
    sides |= {"student, ONNX float32": OnnxClassifier(onnx, EXACT), "student, ONNX int8": OnnxClassifier(onnx, SMALL)}
    results = []
    for way, work in (("together", together), ("one by one", one_by_one)):
        some = texts if way == "together" else texts[: TEXTS // 4]
        measured = compare({name: partial(work, model, some) for name, model in sides.items()}, 5, 1)
        for name in [name for name in sides if name.startswith("student")]:
            for teacher in folders:
                least = TIMES if name == "student" and teacher == ENCODER and way == "together" else None
                label = f"{material.name}: {name}, {way}"
                results.append(against(label, measured, teacher, per_cpu_second("texts"), ours=name, at_least=least))
    return results


def int8(task: str, scored: dict[str, list[str]]) -> list[Result]:
    """The number of dev examples that int8 predicts otherwise than float32, in the worst of all seeds."""
    from tlm.serving.export_onnx import export_onnx

    results = []
    for name in (ENCODER, student_of(ENCODER, WITH)):
        shares = [100 * (1 - Artifact.open(export_onnx(metrics)).details["agreement"][0]) for metrics in scored[name]]
        label = f"{task}: {'the encoder' if name == ENCODER else 'its student'}: predicted otherwise by int8"
        note = f"Worst of {len(shares)} seeds; mean {sum(shares) / len(shares):.2f} %."
        results.append(limit(label, max(shares), "% of dev", OTHERWISE, note))
    return results


ROW = Row(
    name="students",
    stage="distillation",
    against="their teachers",
    target=f"within {BEHIND:g} point of its teacher at {TIMES:g} times its speed; int8 predicts 98 % of dev as float32",
    what="The demo, and SciERC with a real mixed corpus (BM25's text, K = 150 and 50); five seeds and three, and test "
    "is read once for each model. The teachers are the encoder of the preset (`demo`, `pocket`), and its mixture with "
    "the static and the linear model. A student has one layer, 64 wide, as in `pocket-student`, and a stage 1 of its "
    "own on the same text. `tlm distill` then teaches it with the passages, three batches of them for each of the "
    "task, or on the task alone with as many steps. "
    "Differences have 95 % intervals over seeds and test examples, corrected for their number.",
    run=run,
    packages=("torch", "transformers", "onnxruntime", "scikit-learn"),
)
