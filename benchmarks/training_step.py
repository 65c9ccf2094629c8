"""Our training step against the authors' way: texts padded to 128, logits at every position, the library's collator.

    python benchmarks/training_step.py TASK SUBSET TOKENIZER [--preset pocket] [--steps 40]

URIs as the steps print them. Both ways train models of one shape on the same kind of batches; what is printed is the
median CPU time of an optimizer step, data preparation included, with external and with internal batches.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
)

from tlm.artifacts.artifact import Artifact
from tlm.presets import Preset, resolve
from tlm.training import build
from tlm.training.chance import EXTERNAL, INTERNAL
from tlm.training.encoder import Encoder, to_device
from tlm.training.examples import Examples
from tlm.training.optimizer import AdamW
from tlm.training.stage1 import Joint
from tlm.training.texts import Texts
from tlm.training.tokens import tokenize

CPU = torch.device("cpu")


Step = Callable[[int], None]


def ours(model: Encoder, work: Joint, internal: bool) -> Step:
    optimizer = AdamW(model, work.settings.weight_decay, work.settings.betas)
    steps = [step for step in range(100_000) if work.mixture.is_internal(step) == internal]

    def one(number: int) -> None:
        step = steps[number]
        work.losses(step, to_device(work.batch(step), CPU)).total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(work.settings.lr)

    return one


def authors(config: dict, texts: Texts, labels: np.ndarray | None, preset: Preset, tokenizer: Artifact) -> Step:
    """The released step on the library's model: padded to the full length, both heads' logits in every step."""
    kinds = {"bert": (BertConfig, BertForMaskedLM), "modernbert": (ModernBertConfig, ModernBertForMaskedLM)}
    config_class, model_class = kinds[config["model_type"]]
    model, settings, special = model_class(config_class.from_dict(config)), preset.train, texts.special
    width = preset.model.hidden
    head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(config["id2label"])))
    predict = model.cls if config["model_type"] == "bert" else nn.Sequential(model.head, model.decoder)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.lr)
    fast = PreTrainedTokenizerFast.from_pretrained(tokenizer.path("tokenizer"))
    collator = DataCollatorForLanguageModeling(fast, mlm_probability=settings.mask_share)
    rows = np.random.default_rng(0).permutation(len(texts))
    size = settings.external_batch if labels is None else settings.internal_batch

    def one(number: int) -> None:
        chosen = np.roll(rows, -number * size)[:size]
        features = []
        for row in chosen:
            ids = texts.first.ids[texts.first.offsets[row] : texts.first.offsets[row + 1]][: texts.max_length - 2]
            ids = [special.cls, *ids.tolist(), special.sep]
            pad = texts.max_length - len(ids)
            features.append({"input_ids": ids + [special.pad] * pad, "attention_mask": [1] * len(ids) + [0] * pad})
        batch = collator(features)
        states = model.base_model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        classes = head(states[:, 0])
        mlm = F.cross_entropy(predict(states).flatten(0, 1), batch["labels"].flatten())
        ce = classes.sum() * 0.0 if labels is None else F.cross_entropy(classes, torch.from_numpy(labels[chosen]))
        ((settings.rho2 * mlm + ce) / (settings.rho2 + 1)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return one


def median_ms(step: Step, steps: int) -> float:
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
        texts, labels = (passages, None) if kind == EXTERNAL else (examples.texts, examples.labels)
        old = median_ms(authors(config, texts, labels, preset, tokenizer), given.steps)
        model = build.build(config, seed=0)
        new = median_ms(ours(model, Joint(model, examples, passages, preset, 0), kind == INTERNAL), given.steps)
        print(f"{name}: the authors' way {old:.1f} ms, ours {new:.1f} ms: {old / new:.1f} times as fast")


if __name__ == "__main__":
    main()
