"""Rerank: of many passages, choose the ones that a trained model would learn the task from (ISS, arXiv 2305.12816)."""

from typing import Literal, TypeAlias

import numpy as np

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, finished, produce
from tlm.data.passages import passages
from tlm.data.ranges import CUT, HEAD
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.retrieve import best, write_chosen
from tlm.settings.options import NOT_NEGATIVE
from tlm.settings.selectors import RERANKED
from tlm.training.distributed.launch import own_cards
from tlm.training.input.tokenize import tokenize

VERSION = 3
Device: TypeAlias = Literal["auto", "cpu", "cuda"]


def rerank(
    checkpoint: str,
    subset: str,
    *,
    same_size_as: str,
    seed: int = 0,
    device: Device = "auto",
    root: str | None = None,
) -> str:
    """Reorder the passages of a subset by their influence on the task, the most useful first.

    The influence of a passage is the inner product of two gradients: of its masked-LM loss, and of the classification
    loss of the training examples. The model is that of a checkpoint of stage 1, such as BM25's; the subset is a larger
    one of the same task, such as BM25's with three times the passages for each example.

    Args:
        checkpoint: URI of the checkpoint of stage 1.
        subset: URI of the subset to choose from.
        same_size_as: URI of the subset whose size the new subset is to have.
        seed: Seed of the masks.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the hits, as of an arm without queries: `tlm export` makes a subset of them.

    Raises:
        InputError: the artifacts are not of one task and corpus, the model predicts no tokens, or there is no such
            device.
    """
    NOT_NEGATIVE.check("seed", seed)
    trained = Artifact.open(checkpoint, "checkpoint")
    many, like = Artifact.open(subset, "subset"), Artifact.open(same_size_as, "subset")
    hits, task = many.input("hits"), trained.input("task")
    one_task = hits.input("task").content == task.content
    if not one_task or many.input("corpus").content != like.input("corpus").content:
        raise InputError(
            f"{checkpoint}, {subset} and {same_size_as} are not of one task and corpus; give those of one run"
        )
    tokenizer = trained.input("task_tokens").input("tokenizer")
    tokens = Artifact.open(tokenize(many.uri, tokenizer.uri, root=root))
    inputs = {
        "index": hits.input("index"),
        "task": task,
        "checkpoint": trained,
        "subset_tokens": tokens,
        "like": like,
    }
    recipe = Recipe("hits", "rerank", VERSION, {"arm": RERANKED, "seed": seed}, inputs)
    with own_cards(device, int(finished(recipe, root) is None)):
        return produce(recipe, root, _write, recipe, many, device)


def _write(draft: Draft, recipe: Recipe, subset: Artifact, device: str) -> None:
    import torch

    from research.rerank.gradients import PASSES, influences, task_gradient
    from tlm.training.device import resolve_device
    from tlm.training.input.texts import Examples, Texts
    from tlm.training.model import build

    checkpoint, wanted = recipe.inputs["checkpoint"], recipe.inputs["like"].details["passages"]
    if not checkpoint.entries(build.MLM_HEAD):
        raise InputError(f"{checkpoint.uri} does not predict tokens, so passages have no influence on it; take another")
    place = torch.device(resolve_device(device))
    model = build.load(checkpoint.path("model"), checkpoint.path(build.MLM_HEAD)).to(place).eval()
    length, cut = build.text_length(model.body.config), model.body.config.get(CUT, HEAD)
    examples = Examples.open(recipe.inputs["task"], checkpoint.input("task_tokens"), length, cut)
    texts = Texts.open(recipe.inputs["subset_tokens"], length)
    build.to_standardised(model, examples.scale)
    gradient = task_gradient(model, examples, place)
    scores = influences(model, texts, gradient, place, recipe.settings["seed"])
    if wanted > len(texts):
        say(f"warning: {wanted:,} passages were asked for, but there are only {len(texts):,} to choose from")
    rows, best_scores = best(scores, len(scores))
    docs = np.concatenate([batch.column("doc").to_numpy() for batch in passages(subset, ["doc"])])
    write_chosen(draft, RERANKED, docs[rows], best_scores, wanted)
    parameters = build.parameter_count(model)
    tokens_of_passages = PASSES * int(texts.lengths.sum())
    tokens_of_examples = int(examples.texts.lengths[examples.rows("train")].sum())
    forward, with_backward = 2 * parameters * tokens_of_passages, 6 * parameters * tokens_of_examples
    draft.counts["flops"] = forward + with_backward
    draft.run |= {"device": str(place), "threads": torch.get_num_threads()}
