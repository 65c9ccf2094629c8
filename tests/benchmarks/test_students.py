"""The row `students`: which models it makes of a seed, and which it compares."""

from pathlib import Path

from research.benchmarks.students import (
    BEHIND,
    ENCODER,
    LABELS,
    MIXTURE,
    WITH,
    WITHOUT,
    behind,
    prepare,
    student_of,
    trained,
)
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.settings.options import Layout


def test_students_of_two_teachers_and_what_each_is_compared_with(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    root = str(tmp_path / "root")
    corpus = load_corpus([str(tmp_path / "corpus.jsonl")], layout=Layout(source_field="source"), root=root)
    task = load_task(str(tmp_path / "task"), root=root)
    made = trained(prepare("tiny", corpus, task, "tiny", 5, seeds=1), 0)
    students = {student_of(teacher, way): way for teacher in (ENCODER, MIXTURE) for way in (WITH, WITHOUT)}
    assert set(made) == {ENCODER, MIXTURE, LABELS, *students}
    for name, way in students.items():
        model = Artifact.open(made[name]).input("model")
        assert ("subset_answers" in model.manifest.inputs) == (way == WITH), name

    compared = behind("tiny", {name: [metrics] for name, metrics in made.items()})
    assert len({one.label for one in compared}) == len(compared)
    judged = {one.label for one in compared if one.target}
    assert judged == {f"tiny: {student_of(t, way)}, behind {t}" for t in (ENCODER, MIXTURE) for way in (WITH, WITHOUT)}
    assert all(one.target == f"≤ {BEHIND:g} points" for one in compared if one.target)
