"""A smaller vocabulary from a published one: the tokens that occur in given texts, and all single characters.

Texts whose tokens all stay are tokenized as before: WordPiece takes the longest piece that it knows, BPE the first
merge of its list, Unigram the most probable pieces, and none of them chooses otherwise because others are gone.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.training.input.texts import Ragged
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import SPECIAL, with_layout, write_vocabulary

VERSION = 1
KEPT = "kept.npy"  # the old id of each entry
_FIRST = 10  # entries that always stay: RoBERTa and models like it count positions from the padding's id
_ROWS = 100_000  # that are read at a time


def trim_vocabulary(tokenizer: str, task: str, subset: str, spans_first: bool, root: str | None) -> str:
    """Make a `tokenizer` of what the training texts of a task and a subset ("" for none) need; returns its URI."""
    inputs = {"tokenizer": Artifact.open(tokenizer), "task": Artifact.open(task)}
    inputs["task_tokens"] = Artifact.open(tokenize(task, tokenizer, spans_first=spans_first, root=root))
    if subset:
        inputs["subset_tokens"] = Artifact.open(tokenize(subset, tokenizer, root=root))
    recipe = Recipe("tokenizer", "trim-vocabulary", VERSION, settings={}, inputs=inputs)
    return produce(recipe, root, _write, inputs)


def _write(draft: Draft, inputs: dict[str, Artifact]) -> None:
    old = Tokenizer.from_file(str(inputs["tokenizer"].path("tokenizer") / "tokenizer.json"))
    details = inputs["tokenizer"].details
    special = {role: str(old.id_to_token(details[f"{role}_id"])) for role in SPECIAL}
    occurs = np.zeros(details["vocab_size"], bool)
    for ids in _tokens(inputs):
        occurs[ids] = True
    tokenizer, kept = trimmed(old, set(np.flatnonzero(occurs).tolist()))
    whole = with_layout(tokenizer, special, details.get("between", 1))
    write_vocabulary(draft, whole, special, details["kind"], details["lower_case"])
    draft.details = {**details, **draft.details}
    np.save(draft.folder / KEPT, kept)


def _tokens(inputs: dict[str, Artifact]) -> Iterator[Any]:
    """The tokens of the training texts and of the subset, in parts."""
    split = examples(inputs["task"])["split"]
    chosen = np.flatnonzero(pc.is_in(split, pa.array(["train", UNLABELLED])).to_numpy(zero_copy_only=False))
    for name, rows in (("task_tokens", chosen), ("subset_tokens", None)):
        if name in inputs:
            for prefix in ("", "pair_")[: 1 + inputs[name].details["pair"]]:
                texts = Ragged.open(inputs[name], prefix)
                read = np.arange(len(texts)) if rows is None else rows
                for start in range(0, len(read), _ROWS):
                    part = read[start : start + _ROWS]
                    yield texts.take(part, texts.lengths_of(part))


def trimmed(tokenizer: Tokenizer, used: set[int]) -> tuple[Tokenizer, Ints]:
    """A tokenizer with the entries `used`, special and added tokens, and all that a single character or byte needs.

    Returns:
        The tokenizer, without the layout of special tokens, and the old id of each of its entries.

    Raises:
        InputError: the tokenizer is of another kind than WordPiece, BPE and Unigram.
    """
    state = json.loads(tokenizer.to_str())
    model, ids = state["model"], tokenizer.get_vocab(with_added_tokens=True)
    if model["type"] not in ("WordPiece", "BPE", "Unigram"):
        raise InputError(f"a vocabulary of kind {model['type']} cannot be trimmed; leave out trim_vocabulary")
    names = {place: token for token, place in ids.items()}
    kept = {place for token, place in ids.items() if place < _FIRST or place in used or _is_single(token, model)}
    kept |= {added["id"] for added in state["added_tokens"]}
    kept |= {ids[token] for token in [model.get("unk_token")] if token in ids}
    merges = model.get("merges", [])
    for pair in reversed(merges):  # so that each comes before the merges that make its parts
        if ids[_joined(pair, model)] in kept:
            kept |= {ids[part] for part in pair}
    order = sorted(kept)
    new = {names[place]: number for number, place in enumerate(order)}
    state.update(
        post_processor=None, added_tokens=[{**one, "id": new[one["content"]]} for one in state["added_tokens"]]
    )
    if model["type"] == "Unigram":
        model["unk_id"] = None if model["unk_id"] is None else new[names[model["unk_id"]]]
        model["vocab"] = [pair for pair in model["vocab"] if pair[0] in new]
    else:
        model["vocab"] = {token: new[token] for token in model["vocab"] if token in new}
    if merges:
        model["merges"] = [pair for pair in merges if {*pair, _joined(pair, model)} <= new.keys()]
    found = Tokenizer.from_str(json.dumps(state))
    assert found.get_vocab(with_added_tokens=True) == new
    return found, np.array(order)


def _is_single(token: str, model: dict[str, Any]) -> bool:
    """Whether an entry is a character, alone or inside a word, or a byte."""
    prefix, suffix = (model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    letter = token.removeprefix(prefix).removesuffix(suffix)
    return len(letter) <= 1 or (letter.startswith("<0x") and letter.endswith(">"))


def _joined(pair: list[str], model: dict[str, Any]) -> str:
    """The token that a merge makes."""
    left, right = pair
    return left + right.removeprefix(model.get("continuing_subword_prefix") or "")
