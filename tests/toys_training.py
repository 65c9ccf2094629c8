"""Tiny artifacts to train on, and runs that are killed half-way.

``python -m tests.toys_training FOLDER`` prints, as JSON, what came of interrupted and undisturbed runs. Each run
is a fork of a process that has the imports done and nothing computed yet.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.toys import Row, make, make_task, save
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.errors import TlmError
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import finetune, train

TOPICS = {
    "bio": ["cell", "gene", "protein", "tissue", "enzyme", "blood"],
    "law": ["court", "judge", "jury", "trial", "appeal", "verdict"],
    "sea": ["ship", "wave", "harbour", "sail", "tide", "fish"],
}
GLUE = ["the", "of", "a", "and", "in", "with", "for", "on", "this", "that"]
STEPS = 12
SMALL = [f"train.steps={STEPS}", "train.rho1=2", "train.warmup_steps=2"]


def sentence(chance: random.Random, topic: str, words: int) -> str:
    return " ".join(chance.choice(TOPICS[topic] + GLUE) for _ in range(words))


def rows(train: int = 48, held_out: int = 18, pair: bool = False, regression: bool = False) -> list[Row]:
    """Examples whose words tell the class; the target is the class ordinal."""
    chance, topics = random.Random(0), list(TOPICS)
    found: list[Row] = []
    for split, count in (("train", train), ("dev", held_out), ("test", held_out)):
        for i in range(count):
            topic = topics[i % 3]
            second = sentence(chance, topic, chance.randint(1, 6)) if pair else None
            gold = float(i % 3) if regression else topic
            found.append((sentence(chance, topic, chance.randint(2, 14)), second, gold, split))
    return found


def task(root: Path, examples: list[Row] | None = None, metric: str = "macro_f1", labels: bool = True) -> str:
    return make_task(root, examples or rows(), metric, sorted(TOPICS) if labels else None)


def passages(root: Path, kind: str, count: int = 120, arm: str = "bm25") -> str:
    """A corpus, or a subset of an arm."""
    chance, topics = random.Random(1), list(TOPICS)
    texts = [sentence(chance, topics[i % 3], chance.randint(5, 30)) for i in range(count)]

    def write(draft: Any) -> None:
        save(draft, "passages-00000.parquet", {"doc": list(range(count)), "text": texts})
        draft.details.update(passages=count, **({"arm": arm} if kind == "subset" else {}))

    return make(kind, root, write, {"count": count, **({"arm": arm} if arm != "bm25" else {})})


def tokenizer(root: Path, examples: str, **settings: Any) -> str:
    return build_tokenizer(passages(root, "corpus"), examples, vocab_size=300, root=str(root), **settings)


def checkpoint(root: Path, examples: str, *overrides: str, alone: bool = False, **settings: Any) -> Artifact:
    """Stage 1 of the tiny preset, 12 steps; `alone` is the task-only arm."""
    subset = "" if alone else passages(root, "subset")
    settings = {"preset": "tiny", "device": "cpu", "root": str(root), **settings}
    return Artifact.open(
        flat(train)(
            examples, tokenizer=tokenizer(root, examples), subset=subset, overrides=[*SMALL, *overrides], **settings
        )
    )


def model(root: Path, start: Artifact, examples: str, *overrides: str, **settings: Any) -> Artifact:
    """Stage 2 of the tiny preset."""
    settings = {"preset": "tiny", "device": "cpu", "root": str(root), **settings}
    return Artifact.open(flat(finetune)(start.uri, examples, overrides=list(overrides), **settings))


def both_stages(root: Path, *overrides: str, save_steps: int) -> list[str]:
    """The contents of checkpoint and model."""
    examples = task(root)
    start = checkpoint(root, examples, *overrides, save_steps=save_steps, save_minutes=0.0)
    end = model(root, start, examples, *overrides, save_steps=save_steps, save_minutes=0.0)
    return [start.content, end.content]


def die_in(stage: str, step: int, by: signal.Signals, *, saved: bool = False) -> None:
    """Have this process send itself a signal when it makes the batch of `step`; `saved`: not while it saves."""
    from tlm.training import classification, joint

    wait = end_of_saving() if saved else lambda: None
    work = {"train": joint.Joint, "finetune": classification.Classification, "multitask": joint.Joint}[stage]
    batch = work.batch

    def batch_or_signal(self: Any, at: int) -> Any:
        if at == step:
            wait()
            os.kill(os.getpid(), by)
        return batch(self, at)

    work.batch = batch_or_signal  # type: ignore[method-assign,assignment]


def end_of_saving() -> Callable[[], None]:
    """What waits, in this process, until a snapshot that was begun is saved."""
    from tlm.training.checkpoint import Snapshots

    begin, begun = Snapshots.begin, list[Snapshots]()

    def begin_and_note(self: Snapshots, state: Any) -> None:
        begun[:] = [self]
        begin(self, state)

    Snapshots.begin = begin_and_note  # type: ignore[method-assign]

    def wait() -> None:
        for snapshots in begun:
            snapshots.wait()

    return wait


def term_in_last_save() -> None:
    """Have this process send itself SIGTERM while the snapshot after the last step is being written."""
    from tlm.artifacts.produce import Progress

    save = Progress.save

    def slow_save(self: Any, step: int, *more: Any) -> None:
        if step == STEPS:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
        save(self, step, *more)

    Progress.save = slow_save  # type: ignore[method-assign]


def in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """Exit code (minus a signal's number) of a fork that does `work`, and what it returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        with os.fdopen(writing, "w") as pipe:
            try:
                json.dump(work(), pipe)
            except TlmError as error:
                code = error.exit_code
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, json.loads(text) if code == 0 else None


def killed_runs(folder: Path) -> dict[str, Any]:
    """For each way to die: how the run ended, the snapshots it left, and the contents that its repetition had."""
    dropout = ("model.dropout=0.1", "train.head_steps=all")
    chance = random.Random()
    ways = {
        "kill train": ("train", chance.randrange(7, STEPS), signal.SIGKILL),
        "kill finetune": ("finetune", chance.randrange(7, STEPS), signal.SIGKILL),
        "term train": ("train", 5, signal.SIGTERM),
        "term finetune": ("finetune", 7, signal.SIGTERM),
        "late train": ("train", STEPS - 1, signal.SIGTERM),
        "interrupt train": ("train", 6, signal.SIGINT),
        "interrupt finetune": ("finetune", 5, signal.SIGINT),
    }
    found: dict[str, Any] = {
        "undisturbed": in_child(lambda: both_stages(folder / "undisturbed", *dropout, save_steps=0))
    }
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run in the background
    for name, way in ways.items():
        root = folder / name

        def dying(root: Path = root, name: str = name, way: Any = way) -> Any:
            term_in_last_save() if name.startswith("late") else die_in(*way)
            return both_stages(root, *dropout, save_steps=3)

        code, _ = in_child(dying)
        snapshots = sorted(path.parent.name for path in root.glob("progress/*/*/manifest.json"))
        again = in_child(lambda root=root: both_stages(root, *dropout, save_steps=3))  # type: ignore[misc]
        left = [path for path in root.glob("progress/**/*") if path.is_file()]  # a kill may leave an empty folder
        found[name] = {"step": way[1], "code": code, "snapshots": snapshots, "again": again, "left": len(left)}
    return found


if __name__ == "__main__":
    import tlm.training.classification  # noqa: F401  # imported once, before the forks

    with contextlib.redirect_stdout(sys.stderr):
        results = killed_runs(Path(sys.argv[1]))
    print(json.dumps(results))
