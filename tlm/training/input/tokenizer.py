"""The step `tokenizer`: one vocabulary for all arms, so that their losses can be compared; and smaller vocabularies.

Training is deterministic. The library's WordPiece trainer by itself is not: it breaks ties by token id, and the ids of
single characters differ between runs. So we count the characters and give them to the trainer.

A published vocabulary can be trimmed to the tokens that occur in given texts, and all single characters. Texts whose
tokens all stay are tokenized as before: WordPiece takes the longest piece that it knows, BPE the first merge of its
list, Unigram the most probable pieces, and none of them chooses otherwise because others are gone.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import sample as passages_sample
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import examples, texts_in
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError, nearest, reason
from tlm.settings.options import Range
from tlm.training.input.located import HERE, model_folder
from tlm.training.input.texts import Ragged
from tlm.training.input.tokenize import tokenize

SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_OTHER_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
COVERED = 0.9995  # share of the text that the letters of word pieces cover, as in SentencePiece
MANY_MARKS = 0.15  # per character; Hindi, Thai, Khmer, Vietnamese have 0.19 to 0.36, Japanese 0.08, English 0.0003
_CONTINUING, _BEGINNING = "##", ("Ġ", "▁")  # marks of a word's later pieces, or of its first one

LONGEST_WORD = 100_000  # letters: the trainers' time grows with the square, to half an hour for a word of a million
_ENDLESS = re.compile(rf"\b\w{{{LONGEST_WORD},}}")


def train_vocabulary(kind: str, texts: list[str], vocab_size: int, lower_case: bool) -> Tokenizer:
    """Train a tokenizer of at most `vocab_size` entries. ``[PAD] [UNK] [CLS] [SEP] [MASK]`` have the ids 0 to 4.

    Args:
        kind: ``wordpiece`` (as BERT's) or ``bpe`` (byte-level, as RoBERTa's, so that no text is out of vocabulary).
        texts: The texts to learn from, without words of `LONGEST_WORD` letters or more.
        vocab_size: Entries, special tokens and single characters included.
        lower_case: Fold case (and, for wordpiece, accents, unless there are `MANY_MARKS`: vowel signs and tones).
    """
    train = {"wordpiece": _wordpiece, "bpe": _bpe}[kind]
    read = [_ENDLESS.sub(" ", text) if len(text) >= LONGEST_WORD else text for text in texts]
    return with_layout(train(read, vocab_size, lower_case), SPECIAL)


def _wordpiece(texts: list[str], vocab_size: int, lower_case: bool) -> Tokenizer:
    characters = Counter(chain.from_iterable(texts))
    strip = False if _share_of_marks(characters) > MANY_MARKS else None  # None: where case is folded
    normalizer = normalizers.BertNormalizer(lowercase=lower_case, strip_accents=strip)
    splitter = pre_tokenizers.BertPreTokenizer()
    least = min(1000, max(80, vocab_size // 20))
    letters = _alphabet(characters, normalizer, least, most=(vocab_size - len(SPECIAL)) // 2)
    # BERT reads each CJK character as a word, so the rarer ones need no piece that continues a word.
    rare = [letter for letter in letters[least:] if not unicodedata.name(letter, "").startswith("CJK")]
    pieces = [_CONTINUING + letter for letter in [*letters[:least], *rare] if not _is_punctuation(letter)]
    learner = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk"]))
    learner.normalizer, learner.pre_tokenizer = normalizer, splitter
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        # "special" only to fix their ids; the tokenizer below has five special tokens
        special_tokens=[*SPECIAL.values(), *letters, *pieces],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix=_CONTINUING,
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    tokenizer = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=SPECIAL["unk"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece(prefix=_CONTINUING)
    return tokenizer


def _bpe(texts: list[str], vocab_size: int, lower_case: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    composed = normalizers.NFC()
    tokenizer.normalizer = normalizers.Sequence([composed, normalizers.Lowercase()] if lower_case else [composed])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _share_of_marks(characters: Counter[str]) -> float:
    """How many accents, vowel signs and tones there are for each character."""
    marks = 0
    for character, count in characters.items():
        decomposed = unicodedata.normalize("NFD", character)
        marks += count * sum(unicodedata.category(part) == "Mn" for part in decomposed)
    return marks / max(1, characters.total() - characters[" "])


def _alphabet(characters: Counter[str], normalizer: normalizers.Normalizer, least: int, most: int) -> list[str]:
    """The most frequent characters of the normalised texts, which cover `COVERED` of them: from `least` to `most`."""
    counts: Counter[str] = Counter()
    for character, count in characters.items():  # normalising each once is far faster than normalising whole texts
        counts.update(dict.fromkeys(normalizer.normalize_str(character), count))
    letters = sorted((letter for letter in counts if not letter.isspace()), key=lambda one: (-counts[one], one))
    covered = np.cumsum([counts[letter] for letter in letters])
    enough = 1 + int((covered < COVERED * covered[-1:]).sum())
    return letters[: min(max(enough, least), most)]


def _is_punctuation(letter: str) -> bool:
    """Whether BERT's pre-tokenizer splits here, so that no word continues with the character."""
    return (letter.isascii() and not letter.isalnum()) or unicodedata.category(letter).startswith("P")


def adopt_vocabulary(content: bytes, path: Path) -> tuple[Tokenizer, dict[str, str], int]:
    """Give a tokenizer our layout.

    Args:
        content: That of its ``tokenizer.json``.
        path: Where it came from, for errors.

    Returns:
        The tokenizer, its special tokens by role, and how many separators stand between the texts of a pair: 2 if it
        adds four special tokens to a pair, as RoBERTa's does, else 1.

    Raises:
        InputError: it is not a tokenizer, or a special token is missing.
    """
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises plain Exception
        what = f"{path} is not a tokenizer: {error}"
        raise InputError(f"{what}; expected a tokenizer.json of the tokenizers library") from None
    special = {}
    for role, name in SPECIAL.items():
        present = [token for token in (name, _OTHER_NAMES[role]) if tokenizer.token_to_id(token) is not None]
        if not present:
            lacking = f"{path} has no '{name}' and no '{_OTHER_NAMES[role]}'"
            raise InputError(f"{lacking}; expected a masked-language-model's tokenizer")
        special[role] = present[0]
    tokenizer.no_padding()
    tokenizer.no_truncation()
    between = 2 if tokenizer.num_special_tokens_to_add(is_pair=True) == 4 else 1
    return with_layout(tokenizer, special, between), special, between


def continuing(tokenizer: Artifact, vocab_size: int) -> NDArray[np.bool_]:
    """Which tokens continue a word, [vocab_size]: WordPiece marks these, BPE and Unigram mark the others.

    Raises InputError if no token is marked as the beginning of a word: each text would then be a single word.
    """
    library_tokenizer = Tokenizer.from_file(str(tokenizer.path("tokenizer") / "tokenizer.json"))
    ids = library_tokenizer.get_vocab()
    if isinstance(library_tokenizer.model, models.WordPiece):
        continue_a_word = [number for token, number in ids.items() if token.startswith(_CONTINUING)]
    else:
        continue_a_word = [number for token, number in ids.items() if not token.startswith(_BEGINNING)]
    if len(continue_a_word) == len(ids):
        raise InputError(f"{tokenizer.uri} does not mark where words begin; set train.masking=tokens")
    return np.isin(np.arange(vocab_size), continue_a_word)


def with_layout(tokenizer: Tokenizer, special: dict[str, str], between: int = 1) -> Tokenizer:
    """Declare the special tokens of `tokenizer`, and place [CLS] and [SEP] as training does."""
    tokenizer.add_special_tokens(list(special.values()))
    cls, sep = special["cls"], special["sep"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A{f' {sep}' * between} $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    return tokenizer


VERSION, TRIM_VERSION = 2, 1  # of the vocabulary, and of a trimmed one
LEAST = {"wordpiece": 200, "bpe": 300}  # about what single characters and special tokens need
MOST = 10_000_000
SIZES = {kind: Range(f"{least} to {MOST:,} for {kind}", least, MOST) for kind, least in LEAST.items()}


def build_tokenizer(
    corpus: str,
    task: str,
    *,
    kind: Literal["wordpiece", "bpe"] = "wordpiece",
    vocab_size: int = 6000,
    sample: int = 50_000,
    lower_case: bool = True,
    existing: str = "",
    more_tasks: Sequence[str] = (),
    root: str | None = None,
) -> str:
    """Make a vocabulary from a sample of the corpus and the training texts of the task, or adopt an existing one.

    Dev and test texts are not used.

    Args:
        corpus: URI of the corpus, or of a subset where there is no corpus, as with an imported one.
        task: URI of the task.
        kind: wordpiece (as BERT) or bpe (byte-level, as RoBERTa).
        vocab_size: Entries, special tokens included. A small corpus may give fewer.
        sample: How many passages of the corpus to learn from.
        lower_case: Fold case.
        existing: A tokenizer.json, a folder that has one, or a model of the Hugging Face Hub (bert-base-uncased),
            to use instead. The settings above then have no effect.
        more_tasks: URI of a further task to learn from, where tasks are trained together; may be repeated.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    general = Artifact.open(corpus, "corpus", "subset")
    sources = {general.manifest.kind: general, "task": Artifact.open(task, "task")}
    sources |= {f"task-{number}": Artifact.open(uri, "task") for number, uri in enumerate(more_tasks, start=1)}
    root = home(root, sources.values()).root
    if existing:
        with model_folder(existing, of_tokenizers=True) as folder:
            return adopt_tokenizer(folder, root)
    if kind not in SIZES:
        raise InputError(f"kind '{kind}' is unknown{nearest(kind, SIZES)}")
    SIZES[kind].check("vocab_size", vocab_size)
    Range("0 (the task's training texts alone) or more passages", 0).check("sample", sample)
    settings = {"kind": kind, "vocab_size": vocab_size, "sample": sample, "lower_case": lower_case}
    recipe = Recipe("tokenizer", "tokenizer", VERSION, settings=settings, inputs=sources)
    return produce(recipe, root, _train, sources, kind, vocab_size, sample, lower_case)


def _train(
    draft: Draft, sources: dict[str, Artifact], kind: str, vocab_size: int, sample: int, lower_case: bool
) -> None:
    corpus, *tasks = sources.values()
    texts = [*passages_sample(corpus, sample), *chain(*(texts_in(task, "train", UNLABELLED) for task in tasks))]
    write_vocabulary(draft, train_vocabulary(kind, texts, vocab_size, lower_case), SPECIAL, kind, lower_case)
    draft.counts["texts"] = len(texts)


def adopt_tokenizer(path: Path, root: str | None) -> str:
    """Make a `tokenizer` artifact from a ``tokenizer.json`` or a model's folder; returns its URI."""
    file = path / "tokenizer.json" if path.is_dir() else path
    content = _content(file)
    tokenizer, special, between = adopt_vocabulary(content, file)
    more = {"between": between} if between > 1 else {}
    settings = {"existing": sha256(content).hexdigest(), **more}

    def write(draft: Draft) -> None:
        kind = json.loads(tokenizer.to_str())["model"]["type"].lower()
        lower_case = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
        write_vocabulary(draft, tokenizer, special, kind, lower_case)
        draft.details |= more

    return produce(Recipe("tokenizer", "tokenizer", VERSION, settings=settings), root, write)


def _content(file: Path) -> bytes:
    """The content of a ``tokenizer.json``, made from an older model's vocab.txt, or vocab.json and merges.txt."""
    if file.is_file():
        return file.read_bytes()
    if not (file.parent / "config.json").exists():
        raise InputError(f"{file}: there is no such file; expected a tokenizer.json or a folder that has one")
    from transformers import AutoTokenizer

    try:
        return str(AutoTokenizer.from_pretrained(file.parent, **HERE).backend_tokenizer.to_str()).encode()
    except Exception as error:  # the library raises many kinds
        raise InputError(f"{file.parent} has no readable tokenizer ({reason(error)}); add a tokenizer.json") from None


def write_vocabulary(draft: Draft, tokenizer: Tokenizer, special: dict[str, str], kind: str, lower_case: bool) -> None:
    """Write a `tokenizer`: the ids of its special tokens, and a folder that ``transformers.AutoTokenizer`` loads."""
    folder = draft.folder / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    names = {f"{role}_token": token for role, token in special.items()}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")
    size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())  # some leave out numbers
    ids = {f"{role}_id": tokenizer.token_to_id(token) for role, token in special.items()}
    draft.details = {"kind": kind, "vocab_size": size, "lower_case": lower_case, **ids}
    draft.counts["vocab_size"] = size


KEPT = "kept.npy"  # the old id of each entry
_FIRST = 10  # entries that always stay: RoBERTa and models like it count positions from the padding's id
_ROWS = 100_000  # that are read at a time, at most


def trim_vocabulary(tokenizer: str, task: str, subset: str, spans_first: bool, root: str | None) -> str:
    """Make a `tokenizer` of what the training texts of a task and a subset ("" for none) need; returns its URI."""
    inputs = {"tokenizer": Artifact.open(tokenizer), "task": Artifact.open(task)}
    inputs["task_tokens"] = Artifact.open(tokenize(task, tokenizer, spans_first=spans_first, root=root))
    if subset:
        inputs["subset_tokens"] = Artifact.open(tokenize(subset, tokenizer, root=root))
    return produce(Recipe("tokenizer", "trim-vocabulary", TRIM_VERSION, {}, inputs), root, _trim, inputs)


def _trim(draft: Draft, inputs: dict[str, Artifact]) -> None:
    old = Tokenizer.from_file(str(inputs["tokenizer"].path("tokenizer") / "tokenizer.json"))
    details = inputs["tokenizer"].details
    special = {role: str(old.id_to_token(details[f"{role}_id"])) for role in SPECIAL}
    occurs = np.zeros(details["vocab_size"], bool)
    for texts, rows in _texts(inputs):
        for part in np.array_split(rows, 1 + len(rows) // _ROWS):
            occurs[texts.take(part, texts.lengths_of(part))] = True
    tokenizer, kept = trimmed(old, set(np.flatnonzero(occurs).tolist()))
    whole = with_layout(tokenizer, special, details.get("between", 1))
    write_vocabulary(draft, whole, special, details["kind"], details["lower_case"])
    draft.details = {**details, **draft.details}
    np.save(draft.folder / KEPT, kept)


def _texts(inputs: dict[str, Artifact]) -> Iterator[tuple[Ragged, Ints]]:
    """The texts whose tokens stay, and which of their rows: the training texts, and the whole subset."""
    split = examples(inputs["task"])["split"]
    training = np.flatnonzero(pc.is_in(split, pa.array(["train", UNLABELLED])).to_numpy(zero_copy_only=False))
    tokens = inputs["task_tokens"]
    yield Ragged.open(tokens), training
    if tokens.details["pair"]:
        yield Ragged.open(tokens, "pair_"), training
    if "subset_tokens" in inputs:
        passages = Ragged.open(inputs["subset_tokens"])
        yield passages, np.arange(len(passages))


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
    kept = {number for token, number in ids.items() if number < _FIRST or number in used or _is_single(token, model)}
    kept |= {added["id"] for added in state["added_tokens"]}
    if model.get("unk_token") in ids:
        kept.add(ids[model["unk_token"]])
    merges = model.get("merges", [])
    for pair in reversed(merges):  # so that each comes before the merges that make its parts
        if ids[_joined(pair, model)] in kept:
            kept |= {ids[part] for part in pair}
    old_ids = sorted(kept)
    names = {number: token for token, number in ids.items()}
    new_ids = {names[old]: new for new, old in enumerate(old_ids)}
    state["post_processor"] = None
    for added in state["added_tokens"]:
        added["id"] = new_ids[added["content"]]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for entry in model["vocab"] if entry[0] in new_ids]
        if model["unk_id"] is not None:
            model["unk_id"] = new_ids[names[model["unk_id"]]]
    else:
        model["vocab"] = {token: new_ids[token] for token in model["vocab"] if token in new_ids}
    if merges:
        model["merges"] = [pair for pair in merges if {*pair, _joined(pair, model)} <= new_ids.keys()]
    smaller = Tokenizer.from_str(json.dumps(state))
    assert smaller.get_vocab(with_added_tokens=True) == new_ids
    return smaller, np.array(old_ids)


def _is_single(token: str, model: dict[str, Any]) -> bool:
    """Whether an entry is a character, alone or inside a word, or a byte."""
    prefix, suffix = (model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    letter = token.removeprefix(prefix).removesuffix(suffix)
    return len(letter) <= 1 or (letter.startswith("<0x") and letter.endswith(">"))


def _joined(pair: list[str], model: dict[str, Any]) -> str:
    """The token that a merge makes."""
    return pair[0] + pair[1].removeprefix(model.get("continuing_subword_prefix") or "")
