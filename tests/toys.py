"""Tiny artifacts of every kind that evaluation reads, written with `produce` directly."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.training.input.texts import Ragged

Skill = float | dict[str, float]
COST = {"steps": 400, "tokens": 360_000, "padded_tokens": 380_000, "flops": 4 * 10**13, "paper_flops": 5 * 10**13}
Row = tuple[str, str | None, str | float, str]  # text, text_pair, label or target, split


def make(kind: str, root: Path, write: Any, settings: dict[str, Any], inputs: dict[str, str] | None = None) -> str:
    """Any artifact; `inputs` are URIs by name."""
    opened = {name: Artifact.open(uri) for name, uri in (inputs or {}).items()}
    return produce(Recipe(kind, f"toy-{kind}", 1, settings, opened), str(root), write)


def save(draft: Draft, name: str, columns: dict[str, Any]) -> None:
    """A parquet file of the draft."""
    table = pa.table(columns)
    pq.write_table(table, draft.folder / name)
    draft.rows[name] = table.num_rows


def make_task(
    root: Path, rows: list[Row], metric: str, labels: list[str] | None, name: str = "toy", copies: Sequence[int] = ()
) -> str:
    """A task of these rows (already in the order train, dev, test); float labels where `labels` is None.

    `copies` are the ordinals of those that are said to have a copy in train.
    """
    texts, pairs, golds, splits = (list(column) for column in zip(*rows, strict=True))
    nothing = [None] * len(rows)
    pair = any(second is not None for second in pairs)

    def write(draft: Draft) -> None:
        columns = {
            "id": [f"e{index}" for index in range(len(rows))],
            "text": texts,
            "text_pair": pa.array(pairs, pa.string()),
            "label": pa.array(golds if labels is not None else nothing, pa.string()),
            "target": pa.array(nothing if labels is not None else golds, pa.float64()),
            "split": splits,
        }
        save(draft, "examples.parquet", columns)
        text = pa.string()
        save(draft, "rejected.parquet", {name: pa.array([], text) for name in ("file", "line", "reason", "detail")})
        columns = {"example": pa.array(copies, pa.int64()), "train": pa.array([0] * len(copies), pa.int64())}
        save(draft, "leaks.parquet", columns)
        problem = "regression" if labels is None else "classification"
        draft.details.update(problem=problem, labels=labels or [], metric=metric, pair=pair, name=name)
        draft.counts.update({split: splits.count(split) for split in ("train", "dev", "test")}, leaks=0)

    return make("task", root, write, {"rows": [list(row) for row in rows], "name": name, "copies": list(copies)})


def read_json(artifact: Artifact, name: str) -> Any:
    """A JSON file of an artifact."""
    return json.loads(artifact.path(name).read_text(encoding="utf-8"))


def words(count: int, seed: int, vocabulary: str = "alpha beta gamma delta epsilon zeta eta theta") -> list[str]:
    """`count` random texts of 3-12 words."""
    random = np.random.default_rng(seed)
    known = vocabulary.split()
    return [" ".join(random.choice(known, random.integers(3, 13))) for _ in range(count)]


class World:
    """A whole lineage by hand: corpus, index, hits, subsets, and trained arms with made-up curves and scores."""

    def __init__(self, root: Path, task: str, passages: list[str], top_k: int = 3) -> None:
        self.root, self.task, self.passages = root, task, passages
        self.corpus = make("corpus", root, self._corpus, {"words": 100})
        self.index = make("index", root, self._index, {"engine": "embedded"}, {"corpus": self.corpus})
        self.top_k = top_k
        self.subsets = {arm: self.subset(arm) for arm in ("random", "bm25")}

    def metrics(self, arm: str, seed: int, skill: Skill, stage: int = 2, mlm: float = 5.0, **settings: Any) -> str:
        """Metrics of a run that predicts right with probability `skill`, which may be another for dev and test.

        The random text is that of draw `draw`, by default of the seed.
        """
        self.draw = int(settings.pop("draw", seed))
        self.vocabulary = str(settings.pop("vocabulary", "own"))
        self.published = {name: settings.pop(name) for name in ("name", "files") if name in settings}
        checkpoint = self._trained("checkpoint", arm, seed, skill, mlm, settings)
        name, trained = "checkpoint", checkpoint
        if stage == 2:
            name, trained = "model", self._trained("model", arm, seed, skill, mlm, settings, checkpoint)
        inputs = {name: trained, "task": self.task}
        return make("metrics", self.root, lambda draft: self._metrics(draft, arm, seed, skill, mlm, stage), {}, inputs)

    def _corpus(self, draft: Draft) -> None:
        half = len(self.passages) // 2
        for shard, (start, stop) in enumerate([(0, half), (half, len(self.passages))]):
            texts = self.passages[start:stop]
            ids = [f"p{doc}" for doc in range(start, stop)]
            columns = {"doc": range(start, stop), "id": ids, "text": texts, "source": ["toy"] * len(texts)}
            save(draft, f"passages-{shard:05d}.parquet", {name: list(column) for name, column in columns.items()})
        rejected = {"file": ["a.jsonl"], "line": [7], "reason": ["not JSON"], "detail": ["{'text'"]}
        save(draft, "rejected.parquet", rejected)
        draft.counts.update(
            read=len(self.passages) + 3, passages=len(self.passages), duplicates=2, rejected={"not JSON": 1}
        )
        draft.details.update(passages=len(self.passages))

    def _index(self, draft: Draft) -> None:
        (draft.folder / "handle.json").write_text("{}")
        draft.details.update(engine="embedded", documents=len(self.passages))

    def subset(self, arm: str, draw: int = 0) -> str:
        """The URI of an arm's subset; of random text, of one of its draws."""
        top_k = self.top_k
        table = pq.read_table(Artifact.open(self.task).path("examples.parquet")).to_pylist()
        train = [row["text"] for row in table if row["split"] == "train"]
        random = np.random.default_rng([len(arm), draw] if draw else len(arm))
        found = [sorted(random.choice(len(self.passages) - 3, top_k, replace=False).tolist()) for _ in train]

        def hits(draft: Draft) -> None:
            rows = [
                (query, doc, rank, 21.0 - rank) for query, docs in enumerate(found) for rank, doc in enumerate(docs, 1)
            ]
            columns = dict(zip(("query", "doc", "rank", "score"), map(list, zip(*rows, strict=True)), strict=True))
            save(draft, "hits.parquet", columns)
            numbers = list(range(len(train)))
            save(draft, "queries.parquet", {"query": numbers, "text": train, "examples": [[row] for row in numbers]})
            save(draft, "dropped.parquet", {"query": [0], "reason": ["no hit"], "detail": ["nothing matched"]})
            draft.details.update(arm=arm, query="full", top_k=top_k)
            draft.counts.update(queries=len(train), hits=len(rows))

        settings = {"arm": arm, "top_k": top_k} | ({"seed": draw} if arm == "random" else {})
        uri = make("hits", self.root, hits, settings, {"index": self.index, "task": self.task})
        docs = sorted({doc for one in found for doc in one})
        asked = [[query for query, one in enumerate(found) if doc in one] for doc in docs]

        def subset(draft: Draft) -> None:
            texts = [self.passages[doc] for doc in docs]
            ranks, scores = [1] * len(docs), [20.0] * len(docs)
            columns = {"doc": docs, "text": texts, "best_rank": ranks, "best_score": scores, "queries": asked}
            save(draft, "passages-00000.parquet", columns)
            last = len(self.passages) - 1
            reasons = ["near-duplicate", "near-duplicate", "overlaps test"]
            columns = {"doc": [last, last - 1, last - 2], "reason": reasons, "detail": ["of 0", "of 1", "example 9"]}
            save(draft, "dropped.parquet", columns)
            draft.details.update(arm=arm, passages=len(docs))
            draft.counts.update(hit=len(docs) + 3, passages=len(docs))

        return make("subset", self.root, subset, {"jaccard": 0.8}, {"hits": uri})

    def _trained(
        self,
        kind: str,
        arm: str,
        seed: int,
        skill: Skill,
        mlm: float,
        settings: dict[str, Any],
        checkpoint: str | None = None,
    ) -> str:
        random = np.random.default_rng([seed, len(arm)])

        def write(draft: Draft) -> None:
            steps = np.arange(400)
            fall = np.exp(-steps / 90)
            loss = mlm + (8.5 - mlm) * fall + random.normal(0, 0.1, 400)
            ce = 0.4 + 1.5 * fall + random.normal(0, 0.1, 400)
            columns = {"step": steps, "mlm": loss, "ce": ce, "lr": fall, "tokens": steps * 900, "flops": steps * 10**9}
            if kind == "checkpoint":
                kinds = ["internal" if arm == "task-only" or step % 5 == 4 else "external" for step in steps]
                columns["kind"] = np.array(kinds)
                columns["ce"] = np.where(columns["kind"] == "internal", ce, np.nan)
            save(draft, "curve.parquet", columns)
            learned = [skill, settings, *([self.draw] if arm == "random" else [])]
            (draft.folder / "weights.json").write_text(json.dumps(learned))
            cost = COST | {"tokens": 360_000 + seed}
            draft.details.update(arm=arm, seed=seed, parameters=1_200_000, cost=cost)
            draft.run.update(device="cpu", threads=1, precision="fp32")

        inputs = {"task_tokens": self._tokens(self.task)}
        if checkpoint is not None:
            inputs["checkpoint"] = checkpoint
        elif arm != "task-only":
            drawn = arm == "random" and self.draw
            inputs["subset_tokens"] = self._tokens(self.subset(arm, self.draw) if drawn else self.subsets[arm])
        chosen = {"preset": {"name": "pocket", "train": {"lr": 0.003, **settings}}, "seed": seed, "arm": arm}
        chosen |= self.published if kind == "checkpoint" else {}
        return make(kind, self.root, write, chosen, inputs)

    def _tokens(self, data: str) -> str:
        def write(draft: Draft) -> None:
            (draft.folder / "ids.npy").write_bytes(f"{Artifact.open(data).content} {self.vocabulary}".encode())
            draft.details.update(of=Artifact.open(data).manifest.kind)

        tokenizer = make("tokenizer", self.root, self._tokenizer, {"vocabulary": self.vocabulary})
        return make("tokens", self.root, write, {}, {"data": data, "tokenizer": tokenizer})

    def _tokenizer(self, draft: Draft) -> None:
        (draft.folder / "tokenizer.json").write_text(json.dumps(self.vocabulary))

    def _metrics(self, draft: Draft, arm: str, seed: int, skill: Skill, mlm: float, stage: int) -> None:
        from tlm.data.tasks.examples import read_splits
        from tlm.evaluation.score.scores import Prediction, write_metrics

        task = Artifact.open(self.task)
        random = np.random.default_rng([seed, len(arm), stage])
        predictions = []
        for split in read_splits(task, "dev", "test").values():
            own = skill[split.name] if isinstance(skill, dict) else skill
            if task.details["problem"] == "regression":
                predictions.append(Prediction(split, split.gold + random.normal(0, 1 - own, len(split.gold)), None))
                continue
            classes = len(task.details["labels"])
            chances = random.dirichlet(np.ones(classes), len(split.gold))
            right = random.random(len(split.gold)) < own
            chances[np.arange(len(split.gold))[right], split.gold[right]] += 1
            chances /= chances.sum(axis=1, keepdims=True)
            predictions.append(Prediction(split, chances.argmax(axis=1), chances))
        names = ("stage 1", "stage 2")[:stage]
        identity = {"arm": arm, "seed": seed, "stage": names[-1], "mlm_loss": mlm + 0.01 * seed}
        facts = {"parameters": 1_200_000, "cost": dict.fromkeys(names, COST)}
        write_metrics(draft, task, predictions, identity, facts)
        draft.run["stages"] = {
            name: {"seconds": 200.5, "cpu_seconds": 200.5, "device": "cpu", "threads": 1, "precision": "fp32"}
            for name in names
        }


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Lists of ids, copied."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(np.array([i for row in rows for i in row], dtype=np.int64), offsets)


def make_corpus(root: Path, texts: list[str]) -> str:
    """A corpus of these passages."""

    def write(draft: Draft) -> None:
        numbers = list(range(len(texts)))
        ids = [str(number) for number in numbers]
        save(draft, "passages-00000.parquet", {"doc": numbers, "id": ids, "text": texts, "source": ids})
        draft.details.update(passages=len(texts))

    return make("corpus", root, write, {"texts": texts})


def random_model(
    root: Path, task: str, texts: list[str], architecture: str = "bert", scale: float = 1.0
) -> tuple[str, str]:
    """URIs of a checkpoint and a model for `task` with random weights; the head's weights are multiplied by `scale`."""
    import torch

    from tlm.settings.sections import Model
    from tlm.training.input.texts import Special
    from tlm.training.input.tokenize import tokenize
    from tlm.training.input.tokenizer import build_tokenizer
    from tlm.training.model import build

    opened = Artifact.open(task)
    tokenizer = build_tokenizer(make_corpus(root, texts), task, vocab_size=200, root=str(root))
    vocabulary = Artifact.open(tokenizer)
    shape = Model(architecture=architecture, hidden=32, layers=2, heads=2, intermediate=48, max_length=24)
    labels = opened.details["labels"] if opened.details["problem"] == "classification" else None
    special = Special.of(vocabulary)

    def write(draft: Draft) -> None:
        config = build.with_task(build.make_config(shape, vocabulary.details["vocab_size"], special), labels, "toy")
        encoder = build.build(config, seed=3)
        with torch.no_grad():
            for parameter in encoder.body.parameters():
                parameter.mul_(5 if parameter.dim() == 2 else 1)  # so that answers depend on the text
            encoder.body.classifier.weight.mul_(scale)
        build.save(encoder, draft.folder / "model", vocabulary.path("tokenizer"))
        build.save_mlm_head(encoder, draft.folder / build.MLM_HEAD)
        cost = {"steps": 7, "tokens": 70, "flops": 7000, "paper_flops": 9000, "padded_tokens": 90}
        draft.details.update(arm="task-only", seed=5, parameters=1, cost=cost)
        draft.run.update(device="cpu", threads=1)

    settings = {"architecture": architecture, "scale": str(scale)}
    checkpoint = make("checkpoint", root, write, settings, {"task_tokens": tokenize(task, tokenizer, root=str(root))})
    return checkpoint, make("model", root, write, settings, {"checkpoint": checkpoint})
