"""Vocabularies and token files: from the train split only, the same each time, read by transformers alike."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from tests.toys import make, save
from tests.toys_training import passages, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.training.input.texts import Ragged, Special
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import LONGEST_WORD, SPECIAL, build_tokenizer, continuing, train_vocabulary

HOME = Path(__file__).parents[3]
KINDS = pytest.mark.parametrize("kind", ["wordpiece", "bpe"])


def built(root: Path, examples: str, **settings: object) -> Artifact:
    settings = {"vocab_size": 400, "root": str(root), **settings}
    return Artifact.open(build_tokenizer(passages(root, "corpus"), examples, **settings))


def read(artifact: Artifact) -> Tokenizer:
    return Tokenizer.from_file(str(artifact.path("tokenizer") / "tokenizer.json"))


@KINDS
def test_a_word_without_end_is_not_learned_from(kind):
    """A sequence of genes, a file in hex: the trainers would take half an hour for one of a million letters."""
    texts = [text for text, *_ in rows()]
    endless = "".join(random.Random(0).choices("acgt", k=LONGEST_WORD))
    whole, without = (train_vocabulary(kind, [*texts, f"a {word} b"], 400, True) for word in (endless, " "))
    assert whole.get_vocab() == without.get_vocab()
    assert train_vocabulary(kind, [*texts, f"a {endless[1:]} b"], 400, True).get_vocab() != without.get_vocab()


@KINDS
def test_dev_and_test_texts_are_never_looked_at(tmp_path, kind):
    def with_words(dev: str, train: str) -> list:
        return [
            (text + {"train": f" {train}", "dev": f" {dev}", "test": f" {dev}"}[split] * 20, None, gold, split)
            for text, _, gold, split in rows()
        ] + [("gazpacho " * 500, None, "", UNLABELLED)]

    plain, other = (
        built(tmp_path, task(tmp_path, with_words(dev, "quixotry")), kind=kind) for dev in ("zebu", "okapi")
    )
    assert plain.uri != other.uri
    assert plain.content == other.content
    known = read(plain).get_vocab()
    for word in ("quixotry", "gazpacho"):  # of train, and of a text without a label
        assert any(word in one for one in known)


@KINDS
def test_what_continues_a_word_is_known(tmp_path, kind):
    headings = [(f"## {text} ##", *others) for text, *others in rows()]  # which BPE has as ordinary tokens
    words = built(tmp_path, task(tmp_path, headings), kind=kind)
    found = read(words).encode("## the verdictverdict of blood", add_special_tokens=False)
    begins = [word != before for word, before in zip(found.word_ids, [None, *found.word_ids], strict=False)]
    assert not all(begins)
    assert (~continuing(words, words.details["vocab_size"] + 3)[found.ids]).tolist() == begins


def test_words_are_not_masked_where_only_their_ends_are_marked(tmp_path):
    """As in HerBERT and XLM: each text would be one word, masked as a whole or not at all."""
    letters = [*"aw", "aw</w>", "w</w>"]
    model = models.BPE({name: number for number, name in enumerate([*SPECIAL.values(), *letters])}, [("a", "w</w>")])
    model.end_of_word_suffix = "</w>"
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    words = built(tmp_path, task(tmp_path), existing=str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"does not mark where words begin; set train\.masking=tokens"):
        continuing(words, 20)


@KINDS
def test_the_same_texts_give_the_same_bytes_in_every_process(tmp_path, kind):
    examples = task(tmp_path)
    code = (
        "import sys\nfrom tlm.artifacts.artifact import Artifact\n"
        "from tlm.training.input.tokenizer import build_tokenizer\n"
        "*inputs, root, kind = sys.argv[1:]\n"
        "print(Artifact.open(build_tokenizer(*inputs, kind=kind, vocab_size=400, root=root)).content)"
    )
    corpus = passages(tmp_path, "corpus")
    contents = set()
    for run in range(3):
        root = tmp_path / f"run{run}"
        for uri in (corpus, examples):
            shutil.copytree(uri, root / Path(uri).relative_to(tmp_path))
        arguments = [sys.executable, "-c", code, corpus, examples, str(root), kind]
        environment = {**os.environ, "PYTHONHASHSEED": str(run)}
        done = subprocess.run(arguments, cwd=HOME, capture_output=True, text=True, check=True, env=environment)
        contents.add(done.stdout.strip())
    assert contents == {built(tmp_path, examples, kind=kind).content}


def test_the_training_splits_of_several_tasks_are_learned_from(tmp_path):
    one, two = (
        task(tmp_path),
        task(tmp_path, [("zebra " * 9, None, "bio", "train"), ("okapi " * 9, None, "law", "dev")]),
    )
    made, alone = built(tmp_path, one, more_tasks=[two]), built(tmp_path, one)
    assert "zebra" in read(made).get_vocab()
    assert not any("okap" in word for word in read(made).get_vocab())
    assert "zebra" not in read(alone).get_vocab()
    assert built(tmp_path, one, more_tasks=[]).uri == alone.uri  # one task's key is what it was


@KINDS
def test_special_tokens_have_their_ids_and_details_say_so(tmp_path, kind):
    made = built(tmp_path, task(tmp_path), kind=kind)
    vocabulary = read(made)
    for place, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]):
        assert vocabulary.token_to_id(token) == place
    assert made.details["vocab_size"] == vocabulary.get_vocab_size()
    assert Special.of(made) == Special(0, 1, 2, 3, 4)
    assert sorted(vocabulary.get_vocab().values()) == list(range(vocabulary.get_vocab_size()))


@KINDS
@pytest.mark.parametrize("pair", [False, True])
def test_token_files_are_what_auto_tokenizer_gives(tmp_path, kind, pair):
    examples = rows(pair=pair)
    made = task(tmp_path, examples)
    vocabulary = built(tmp_path, made, kind=kind)
    tokens = Artifact.open(tokenize(made, vocabulary.uri, root=str(tmp_path)))
    auto = AutoTokenizer.from_pretrained(vocabulary.path("tokenizer"))
    for prefix, column in (("", 0), ("pair_", 1))[: 1 + pair]:
        found = Ragged.open(tokens, prefix)
        expected = auto([row[column] for row in examples], add_special_tokens=False)["input_ids"]
        assert [found.ids[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)] == expected
        assert found.ids.dtype == np.uint16
    assert tokens.details["pair"] == pair
    assert tokens.details["rows"] == len(examples)
    first, second = (examples[0][column] for column in (0, 1))
    layout = auto(first, second)["input_ids"] if pair else auto(first)["input_ids"]
    assert layout[0] == auto.cls_token_id
    assert layout.count(auto.sep_token_id) == 1 + pair


def test_a_subset_s_tokens_go_with_its_rows(tmp_path):
    examples = task(tmp_path)
    made, subset = tokenizer(tmp_path, examples), passages(tmp_path, "subset", 3000)
    tokens = Artifact.open(tokenize(subset, made, root=str(tmp_path)))
    assert (tokens.details["of"], tokens.details["rows"], tokens.details["pair"]) == ("subset", 3000, False)
    found = Ragged.open(tokens)
    assert len(found) == 3000
    lengths = found.lengths_of(np.arange(len(found)))
    assert lengths.sum() == tokens.details["tokens"] == len(found.ids)
    assert lengths.min() >= 5


def test_case_is_folded_if_asked(tmp_path):
    examples = task(tmp_path)
    for lower_case in (True, False):
        made = built(tmp_path, examples, lower_case=lower_case)
        assert (read(made).encode("Court").ids == read(made).encode("court").ids) == lower_case
        assert made.details["lower_case"] == lower_case


def test_word_pieces_know_the_letters_that_nearly_all_of_the_text_is():
    letters = [chr(code) for code in range(0x4E00, 0x4E00 + 400)]
    texts = ["".join(letters[start::20]) for start in range(20)] * 50
    found = train_vocabulary("wordpiece", [*texts, "嶼"], 1000, True)
    assert "[UNK]" not in found.encode("".join(texts[:20])).tokens
    assert found.encode("嶼", add_special_tokens=False).tokens == ["[UNK]"]  # one character of 20,001
    assert found.get_vocab_size() <= 1000


@pytest.mark.parametrize(
    ("text", "other", "kept"),
    [("ปี ปู ปึ ปื", "ป ป ป ป", True), ("má mà mả mã mạ", "ma ma ma ma ma", True), ("café", "cafe", False)],
)
def test_signs_and_tones_are_kept_where_there_are_many(text, other, kept):
    found = train_vocabulary("wordpiece", [text, "a long text without any accents"[: 30 * (not kept)]] * 9, 400, True)
    assert (found.encode(text).ids != found.encode(other).ids) == kept


def test_an_existing_tokenizer_is_adopted_with_its_own_special_tokens(tmp_path):
    words = ["<s>", "<pad>", "</s>", "<unk>", "court", "judge", "<mask>"]
    old = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    old.enable_truncation(3)
    old.save(str(tmp_path / "tokenizer.json"))
    examples = task(tmp_path)
    made = built(tmp_path, examples, existing=str(tmp_path))
    assert Special.of(made) == Special(pad=1, unk=3, cls=0, sep=2, mask=6)
    assert made.details["vocab_size"] == 7
    assert read(made).encode("court", "judge").ids == [0, 4, 2, 5, 2]
    assert built(tmp_path, examples, existing=str(tmp_path / "tokenizer.json")).uri == made.uri


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "wordpice"}, "kind 'wordpice' is unknown; did you mean 'wordpiece'"),
        ({"vocab_size": 10}, "vocab_size is 10; expected 200 to 10,000,000 for wordpiece"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000; expected 200 to 10,000,000 for wordpiece"),
        ({"sample": -1}, "sample is -1; expected 0"),
        ({"existing": "./nowhere"}, "./nowhere: there is no such file or folder"),
    ],
)
def test_wrong_settings_end_in_a_sentence(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        built(tmp_path, task(tmp_path), **settings)


def test_what_is_no_tokenizer_ends_in_a_sentence(tmp_path):
    examples = task(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="is not a tokenizer"):
        built(tmp_path, examples, existing=str(tmp_path))
    Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"has no '\[PAD\]' and no '<pad>'"):
        built(tmp_path, examples, existing=str(tmp_path))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "None"}}))
    with pytest.raises(InputError, match="is not a tokenizer"):
        built(tmp_path, examples, existing=str(tmp_path))


def test_a_corpus_is_no_task(tmp_path):
    examples = task(tmp_path)
    with pytest.raises(InputError, match="is a corpus; expected a task or a subset"):
        tokenize(passages(tmp_path, "corpus"), tokenizer(tmp_path, examples), root=str(tmp_path))


def test_of_a_large_corpus_twenty_shards_are_read(tmp_path):
    def write(draft: Draft) -> None:
        for shard in range(41):
            columns = {"doc": [shard], "text": [f"the word{shard} of this passage"]}
            save(draft, f"passages-{shard:05d}.parquet", columns)
            draft.rows[f"passages-{shard:05d}.parquet"] = 1
        draft.details["passages"] = 41

    corpus = make("corpus", tmp_path, write, {"shards": 41})
    read_ones = {place * 41 // 20 for place in range(20)}
    for shard in set(range(41)) - read_ones:
        (file,) = Path(corpus).glob(f"passages-{shard:05d}-*.parquet")
        file.unlink()
    made = Artifact.open(build_tokenizer(corpus, task(tmp_path), vocab_size=400, root=str(tmp_path)))
    assert made.counts["texts"] == 20 + 48


def test_a_vocabulary_without_room_for_the_letters_of_a_script_is_warned_of(tmp_path, capsys):
    """Each text has letters of its own, more than the alphabet of word pieces holds; byte-level BPE has all."""
    han = [(f"{chr(0x4E00 + n)}{chr(0x5000 + n)}", *others) for n, (_, *others) in enumerate(rows())]
    examples = task(tmp_path, han)
    for kind, warned in (("wordpiece", True), ("bpe", False)):
        tokenize(examples, built(tmp_path, examples, kind=kind).uri)
        assert ("unknown to the vocabulary" in capsys.readouterr().err) == warned
    plain = built(tmp_path, task(tmp_path)).path("tokenizer") / "tokenizer.json"
    for unknown in ("[UNK]", "<unk>"):  # as if published: its kind cannot be set
        (tmp_path / "tokenizer.json").write_text(plain.read_text().replace("[UNK]", unknown))
        tokenize(examples, built(tmp_path, examples, existing=str(tmp_path / "tokenizer.json")).uri)
        assert "which others made; take a published model that knows" in capsys.readouterr().err
