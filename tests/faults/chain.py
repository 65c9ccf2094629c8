"""The steps of a run as commands on tiny data, done once undisturbed; then any of them again in a root of its own."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import watched
from tests.faults.child import Ended, nothing, run
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.local import scratch_folder

SAVE_STEPS = 4  # divides the steps of each training, so that the last state is saved too
MOST_LOST = 2 * SAVE_STEPS  # since the last snapshot, and while that was being written
TRAINING = f"--device cpu --save-steps {SAVE_STEPS} --save-minutes 0"
STAGE1 = TRAINING + " --set train.steps={steps} --set train.warmup_steps=4"
STAGE2 = TRAINING + " --set finetune.steps={steps}"
TRAINED = {"tiny": 12, "pocket": 24}  # steps of each training, by preset
STEPS = {  # name: command; {name} is the URI that the step of that name printed, {published} the trained model
    "load-corpus": "load-corpus {data}/corpus.jsonl --source-field source",
    "load-task": "load-task {data}/task",
    "index": "index {load-corpus}",
    "retrieve": "retrieve {index} {load-task} --top-k 20",
    "export": "export {retrieve}",
    "tokenizer": "tokenizer {load-corpus} {load-task} --vocab-size 400",
    "tokenize": "tokenize {export} {tokenizer}",
    "train": "train {load-task} --tokenizer {tokenizer} --subset {export} " + STAGE1,
    "finetune": "finetune {train} {load-task} " + STAGE2,
    "evaluate": "evaluate {finetune} {load-task} --device cpu",
    "baseline": "baseline {load-task}",
    "report": "report {evaluate} {baseline}",
    "distill": "distill {evaluate} {train} {load-task} --subset {export} " + STAGE2,
    "random-retrieve": "retrieve {index} {load-task} --arm random --same-size-as {export}",
    "random-export": "export {random-retrieve}",
    "dense-retrieve": "retrieve {index} {load-task} --arm dense --top-k 20 --same-size-as {export}",
    "hybrid-retrieve": "retrieve {index} {load-task} --arm hybrid --top-k 20 --same-size-as {export}",
    "dsir-retrieve": "retrieve {index} {load-task} --arm dsir --same-size-as {export}",
    "classifier-retrieve": "retrieve {index} {load-task} --arm classifier --same-size-as {export}",
    "rerank": "rerank {train} {export} --same-size-as {export} --device cpu",
    "other-task": "load-task {data}/other",
    "other-retrieve": "retrieve {index} {other-task} --top-k 10",
    "other-export": "export {other-retrieve}",
    "merge-subsets": "merge-subsets {export} {other-export}",
    "train-multitask": (
        "train-multitask {load-task} {other-task} --tokenizer {tokenizer} --subset {merge-subsets} " + STAGE1
    ),
    "multitask-finetune": "finetune {train-multitask} {load-task} " + STAGE2,
    "multitask-evaluate": "evaluate {multitask-finetune} {load-task} --device cpu",
    "other-finetune": "finetune {train-multitask} {other-task} " + STAGE2,
    "other-evaluate": "evaluate {other-finetune} {other-task} --device cpu",
    "report-multitask": "report-multitask {multitask-evaluate} {other-evaluate}",
    "import-subset": "import-subset {data}/corpus.jsonl --task {load-task}",
    "load-model": "load-model {published} {load-task}",
    "retrieval-study": "retrieval-study {export} {random-export}",
    "attention": "attention {finetune} {train} --task {load-task} --device cpu --examples 8",
}
PRESETS = (  # steps that take one
    "train",
    "finetune",
    "distill",
    "train-multitask",
    "multitask-finetune",
    "other-finetune",
    "load-model",
)
MAIN = list(STEPS)[: list(STEPS).index("report") + 1]


@dataclass(frozen=True)
class Made:
    """A step that was done undisturbed: ``<kind>/<key>`` and content of its result, its seconds, what was there before.

    `facts` is what was watched of a step that trains.
    """

    place: str
    content: str
    seconds: float
    before: tuple[str, ...]
    facts: dict[str, Any]


class Chain:
    """All steps named, done in `folder`; `self.made` tells what came of each."""

    def __init__(self, folder: Path, names: list[str], preset: str) -> None:
        self.folder, self.preset, self._count = folder, preset, 0
        write_tiny(folder / "data")
        write_tiny(folder / "more", train=36, held_out=12)
        (folder / "more" / "task").rename(folder / "data" / "other")
        self.calm = folder / "calm"
        self.made: dict[str, Made] = {}
        run(["--version"], self.fresh())  # so that all is imported before anything is timed
        for name in names:
            before = tuple(str(path.parent.relative_to(self.calm)) for path in self.calm.glob("[a-z]*/*/manifest.json"))
            seen = self.fresh()
            ended = self.run(name, self.calm, watched.watcher(name, seen))
            assert ended.code == 0, f"{name}: {ended.err}"
            answer = json.loads(ended.out.splitlines()[-1])
            place = str(Path(answer["uri"]).relative_to(self.calm))
            facts = watched.facts(answer["uri"], seen) if name in watched.STAGES else {}
            self.made[name] = Made(place, answer["content"], ended.seconds, before, facts)

    def fresh(self) -> Path:
        """The name of a folder that is not there yet."""
        self._count += 1
        return self.folder / f"trial-{self._count}"

    def root(self, name: str, copy: Callable[[str, str], object] = os.link, at: Path | None = None) -> Path:
        """A root with what there was before step `name`; its files are links, as none is ever changed in place."""
        root = at or self.fresh()
        root.mkdir()
        for place in self.made[name].before:
            shutil.copytree(self.calm / place, root / place, copy_function=copy)
        return root

    def command(self, name: str, root: Path) -> list[str]:
        """The arguments of step `name` in `root`."""
        uris = {step: f"{root}/{made.place}" for step, made in self.made.items()}
        if name == "load-model":
            uris["published"] = f"{Artifact.open(uris['finetune']).path('model')}"
        preset = ["--preset", self.preset] if name in PRESETS else []
        parts = [
            part.format(data=self.folder / "data", steps=TRAINED[self.preset], **uris) for part in STEPS[name].split()
        ]
        return [*parts, *preset, "--root", str(root), "--json"]

    def run(self, name: str, root: Path, prepare: Callable[[], None] = nothing) -> Ended:
        """Step `name` in `root`, from its start to its end."""
        return run(self.command(name, root), self.fresh(), prepare)

    def wrong(self, name: str, root: Path, ended: Ended) -> str:
        """What distinguishes a step that ended from the undisturbed one; "" if nothing does."""
        if ended.code != 0:
            return f"{name}: code {ended.code}: {ended.err[-600:]}"
        answer = json.loads(ended.out.splitlines()[-1])
        if answer["content"] != self.made[name].content or answer["uri"] != f"{root}/{self.made[name].place}":
            return f"{name}: {answer} instead of {self.made[name]}"
        with scratch_folder(root / ".scratch", "sweep"):
            left = [path for path in root.glob(".scratch/*/") if not path.name.startswith("sweep")]
        left += [path for path in (root / "progress").rglob("*") if path.is_file()]
        for entry in Artifact.open(answer["uri"]).entries():
            Artifact.open(answer["uri"]).verified(entry)
        return f"{name}: left {left[:3]}" if left else ""

    def drop(self, *folders: Path) -> None:
        """Remove trials that are over."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
