"""The step `distill`: a small model learns from the answers of a better one. Does not import torch."""

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe
from tlm.data.tasks.examples import one_label_each
from tlm.errors import InputError
from tlm.evaluation.score.evaluate import check_classes
from tlm.evaluation.score.mix import STUDENT
from tlm.retrieval.subset.protected import check_protected, check_trained
from tlm.serving.export_onnx import trained_model
from tlm.serving.teacher import soft_labels
from tlm.settings import presets
from tlm.settings.options import Compute, Range
from tlm.training.distributed.launch import train_together
from tlm.training.input.tokenize import tokenize, tokens_for
from tlm.training.stages import trainable

VERSION = 2


def distill(
    teacher: str,
    checkpoint: str,
    task: str,
    *,
    subset: str = "",
    preset: str,
    overrides: list[str] = (),  # type: ignore[assignment]
    temperature: float = 2.0,
    seed: int = -1,
    compute: Compute = Compute(),
    root: str | None = None,
) -> str:
    """Train a small encoder on the answers of a teacher: a mixture, a larger encoder, a fine-tuned published model.

    The student begins with a checkpoint of stage 1, usually of a smaller preset. It learns the teacher's
    probabilities for the training texts and, with a subset, for the passages in it: rho1 batches of them for each
    batch of the task. The weights that are best on dev are kept. Repeat the command to continue after an interruption.

    Args:
        teacher: URI of the teacher, or of its metrics.
        checkpoint: URI of the student's checkpoint of stage 1.
        task: URI of the task.
        subset: URI of the subset whose passages the teacher is asked about, too; empty for the task alone.
        preset: Named settings, those of stage 2 (finetune) and train.rho1; `tlm show` lists them.
        overrides: Settings to change, such as finetune.epochs=12.
        temperature: Above 1, probabilities are drawn towards each other, so that unlikely classes count for more.
        seed: For the fresh head, order and dropout; -1: that of the checkpoint.
        compute: Where to train, and how often to save the state.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    arguments = dict(locals())
    better, start, examples = trained_model(teacher), Artifact.open(checkpoint, "checkpoint"), trainable(task)
    one_label_each(examples, "distill")
    retrieved = Artifact.open(subset, "subset") if subset else None
    check_trained(examples, better, start)
    if retrieved:
        check_protected(retrieved, examples)
    whole = presets.resolve(preset, overrides)
    rho1, settings = whole.train.rho1, whole.finetune
    _check(better, examples, retrieved, rho1, temperature)
    Range("-1 or more", -1).check("seed", seed)
    root = home(root, [better, start, examples, *([retrieved] if retrieved else [])]).root
    tokens = tokens_for(start, examples, root)
    inputs = {"teacher": better, "checkpoint": start, "task": examples, "task_tokens": tokens}
    inputs["task_answers"] = soft_labels(better, examples, compute.place, root)
    if retrieved:
        inputs["subset_tokens"] = Artifact.open(tokenize(retrieved.uri, tokens.input("tokenizer").uri, root=root))
        inputs["subset_answers"] = soft_labels(better, retrieved, compute.place, root)
    own = settings.for_key({"epochs"} if settings.steps else ())
    chosen = {"arm": STUDENT, "seed": start.details["seed"] if seed < 0 else seed, "teacher": better.details["arm"]}
    chosen |= {"temperature": temperature, "rho1": rho1, "finetune": own}
    recipe = Recipe("model", "distill", VERSION, chosen, inputs)

    def write(draft: Draft) -> None:
        from tlm.serving.student import teach
        from tlm.training.checkpoint import Snapshots

        teach(draft, recipe, settings, compute.place, Snapshots(recipe, root, compute, draft.spending))
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, distill, arguments, settings.batch)


def _check(teacher: Artifact, task: Artifact, subset: Artifact | None, rho1: int | str, temperature: float) -> None:
    """Raise InputError unless this teacher can be asked about these texts."""
    check_classes(teacher, task)
    Range("a number above 0, at most 100", above=0, most=100).check("temperature", temperature)
    if rho1 == "inf":
        raise InputError("train.rho1 is inf; expected how many batches of passages come with each batch of the task")
    if subset is not None and task.details["pair"]:
        advice = "leave out --subset, or give the task pairs without labels (load-task --unlabelled)"
        raise InputError(f"{task.uri} has pairs of texts, and a passage is one text; {advice}")
