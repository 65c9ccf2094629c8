"""Hugging Face's `Trainer` on the same model and data, as its users write it: its own defaults, nothing else.

Batches are shuffled and padded to their longest text by the library's collator (no grouping by length, which is off
unless asked for); logits at every position; fused AdamW, clipping at 1, as `TrainingArguments` has them. Evaluation,
saving and reporting are off.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from benchmarks.reference.joint import JointModel, Rows
from tlm.settings import Train


class AtSteps(TrainerCallback):
    """Calls `start` when `warm_up` steps are done, and `stop` when all are; batches are loaded in between."""

    def __init__(self, warm_up: int, start: Callable[[], Any], stop: Callable[[], Any]) -> None:
        self.warm_up, self.start, self.stop = warm_up, start, stop

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the library."""
        if state.global_step == self.warm_up:
            self.start()
        elif state.global_step == args.max_steps:
            self.stop()


def trainer(
    model: JointModel,
    rows: Rows,
    collator: Any,
    settings: Train,
    batch: int,
    steps: int,
    callback: TrainerCallback,
    folder: Path,
    bf16: bool = False,
    cpu: bool = True,
) -> Trainer:
    """A `Trainer` that does so many steps."""
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=batch, learning_rate=settings.lr,
        weight_decay=settings.weight_decay, adam_beta1=settings.betas[0], adam_beta2=settings.betas[1],
        warmup_steps=min(settings.warmup_steps, steps - 1), save_strategy="no", logging_strategy="no", report_to="none",
        disable_tqdm=True, remove_unused_columns=False, use_cpu=cpu, bf16=bf16, label_names=["labels"],
    )  # fmt: skip
    made = Trainer(model, arguments, data_collator=collator, train_dataset=rows, callbacks=[callback])
    made.remove_callback(PrinterCallback)
    return made
