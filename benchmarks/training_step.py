"""Our training step against the authors' way: texts padded to 128, logits at every position, the library's collator.

    python benchmarks/training_step.py TASK SUBSET TOKENIZER [--preset pocket] [--steps 40]

URIs as the steps print them. Both ways train the same model on the same kind of batches; what is printed is the
median CPU time of an optimizer step, data preparation included, with external and with internal batches.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from tlm.artifacts.artifact import Artifact
from tlm.presets import Preset, resolve
from tlm.training import build
from tlm.training.chance import EXTERNAL, INTERNAL
from tlm.training.encoder import Encoder, to_device
from tlm.training.examples import Examples
from tlm.training.loop import make_optimizer
from tlm.training.stage1 import Joint
from tlm.training.texts import Texts
from tlm.training.tokens import tokenize

CPU = torch.device("cpu")


def ours(model: Encoder, work: Joint, internal: bool) -> Callable[[int], None]:
    optimizer = make_optimizer(model, work.settings)
    steps = [step for step in range(100_000) if work.mixture.is_internal(step) == internal]

    def one(number: int) -> None:
        step = steps[number]
        work.losses(step, to_device(work.batch(step), CPU)).total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return one


def authors(
    model: Encoder, texts: Texts, labels: np.ndarray | None, preset: Preset, tokenizer: Artifact
) -> Callable[[int], None]:
    """Forward through the library's whole model, then the heads as the released code has them."""
    body, settings = model.body, preset.train
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    fast = PreTrainedTokenizerFast.from_pretrained(tokenizer.path("tokenizer"))
    collator = DataCollatorForLanguageModeling(fast, mlm_probability=settings.mask_share)
    rows = np.random.default_rng(0).permutation(len(texts))
    size, special = settings.external_batch, texts.special

    def one(number: int) -> None:
        chosen = np.resize(np.roll(rows, -number * size), size)
        features = []
        for row in chosen:
            ids = texts.first.ids[texts.first.offsets[row] : texts.first.offsets[row + 1]][: texts.max_length - 2]
            ids = [special.cls, *ids.tolist(), special.sep]
            pad = texts.max_length - len(ids)
            features.append({"input_ids": ids + [special.pad] * pad, "attention_mask": [1] * len(ids) + [0] * pad})
        batch = collator(features)
        base = body.base_model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        logits = model.mlm(base, body.get_input_embeddings().weight)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), batch["labels"].view(-1))
        if labels is not None:
            mask = batch["attention_mask"][..., None]
            pooled = (base * mask).sum(1) / mask.sum(1) if model.pooled_stride == 1 else body.bert.pooler(base)
            classes = body.classifier(body.head(pooled) if model.pooled_stride == 1 else pooled)
            loss = (settings.rho2 * loss + F.cross_entropy(classes, torch.from_numpy(labels[chosen]))) / (
                settings.rho2 + 1
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return one


def median_ms(step: Callable[[int], None], steps: int) -> float:
    seconds = []
    for number in range(steps + 3):
        started = time.process_time()
        step(number)
        seconds.append(time.process_time() - started)
    return 1000 * statistics.median(seconds[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("task", "subset", "tokenizer"):
        parser.add_argument(name)
    parser.add_argument("--preset", default="pocket")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    preset = resolve(given.preset, ["train.rho1=1", *given.set])
    task, subset, tokenizer = (Artifact.open(uri) for uri in (given.task, given.subset, given.tokenizer))
    task_tokens, subset_tokens = (
        Artifact.open(tokenize(data.uri, tokenizer.uri, root=tokenizer.store.root)) for data in (task, subset)
    )
    examples = Examples.open(task, task_tokens, preset.model.max_length)
    passages = Texts.open(subset_tokens, preset.train.external_length)
    config = build.make_config(
        preset.model, task_tokens.details["vocab_size"], examples.texts.special, examples.classes, "benchmark"
    )
    for kind, name in ((EXTERNAL, "external"), (INTERNAL, "internal")):
        model = build.build(config, seed=0)
        texts, labels = (passages, None) if kind == EXTERNAL else (examples.texts, examples.labels)
        old = median_ms(authors(model, texts, labels, preset, tokenizer), given.steps)
        model = build.build(config, seed=0)
        new = median_ms(ours(model, Joint(model, examples, passages, preset, 0), kind == INTERNAL), given.steps)
        print(f"{name}: the authors' way {old:.1f} ms, ours {new:.1f} ms: {old / new:.1f} times as fast")


if __name__ == "__main__":
    main()
