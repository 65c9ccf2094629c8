"""Hugging Face's `Trainer` on the same model and data, with the settings of a user who knows the library.

The model leaves out what the library lets it leave out (`JointModel`, sparing). Texts of similar length share a batch
(``group_by_length``), padded to its longest text by the library's collator, on a GPU to a multiple of 8. AdamW and
attention are fused, which is the library's default. Gradients are clipped where ours are. On a GPU worker processes
make the batches and stay for the next epoch, and no loss is looked at between two steps. Evaluation, saving and
reporting are off.

``torch.compile`` is off: batches differ in width, and it would compile anew for most of them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from research.benchmarks.reference.joint import WORKERS, JointModel, Rows
from tlm.settings.sections import Train


class Mixed(Trainer):
    """Its batches come in random order.

    The library sorts fifty batches at a time, the longest texts first, so the few that are measured would be long ones.
    """

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Called by the library; whole batches only."""
        order = torch.tensor(list(super()._get_train_sampler(train_dataset)))  # type: ignore[arg-type]
        size = self.args.train_batch_size
        batches = order[: len(order) // size * size].view(-1, size)
        return batches[torch.randperm(len(batches))].flatten().tolist()


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
    seed: int = 0,
) -> Trainer:
    """A `Trainer` that does so many steps; `seed` is of the order of its batches."""
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=batch, learning_rate=settings.lr,
        weight_decay=settings.weight_decay, adam_beta1=settings.betas[0], adam_beta2=settings.betas[1],
        max_grad_norm=settings.clip, warmup_steps=min(settings.warmup_steps, steps - 1), seed=seed,
        train_sampling_strategy="group_by_length", save_strategy="no", logging_strategy="no", report_to="none",
        logging_nan_inf_filter=False, disable_tqdm=True, remove_unused_columns=False, use_cpu=cpu, bf16=bf16,
        label_names=["labels"], dataloader_num_workers=0 if cpu else WORKERS, dataloader_pin_memory=not cpu,
        dataloader_persistent_workers=not cpu,
    )  # fmt: skip
    made = Mixed(model, arguments, data_collator=collator, train_dataset=rows, callbacks=[callback])
    made.remove_callback(PrinterCallback)
    return made
