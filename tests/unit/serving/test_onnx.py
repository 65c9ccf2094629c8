"""`export-onnx`: what onnxruntime computes, beside the model of `transformers` that it was made from."""

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from tests.toys_training import checkpoint, model, rows, task
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import read_splits
from tlm.errors import InputError
from tlm.evaluation.predict.classifier import Classifier
from tlm.evaluation.predict.encoder import EncoderPredictor, OnnxClassifier, tokenized
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.predict.predictor import MIXTURE
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.serving import export_onnx as exporting
from tlm.serving.export_onnx import agreement, encoders, export_onnx
from tlm.shallow.folder import FAMILY
from tlm.training.input.tokenizer import train_vocabulary

ROOT = Path(__file__).parents[3]
KINDS = {  # examples, and settings of the model
    "modernbert": ({}, ()),
    "bert": ({}, ("model.architecture=bert", "model.positions=64", "model.token_types=1")),
    "pairs": ({"pair": True}, ()),
    "pairs for bert": ({"pair": True}, ("model.architecture=bert", "model.positions=64", "model.token_types=2")),
    "numbers": ({"regression": True}, ()),
}
TEXTS = [
    "", "cell", "the judge", "Ünknown wörds, 42!", "ship wave harbour " * 40,
    *("tide of fish " * n for n in range(9)),
]  # fmt: skip


class Bare(EncoderPredictor):
    """An encoder of ten tokens that has nothing but its tokenizer, and keeps the length of what it tokenized."""

    def __init__(self, kind: str) -> None:
        """Learn a vocabulary from words."""
        texts = [f"{word} {word}s of {word}" for word in WORDS] * 3
        if kind in ("wordpiece", "bpe"):
            self.own = train_vocabulary(kind, texts, 400, True)
        else:
            self.own = Tokenizer(models.Unigram())
            self.own.pre_tokenizer = pre_tokenizers.Metaspace(split=kind == "unigram")
            self.own.train_from_iterator(
                texts, trainers.UnigramTrainer(vocab_size=200, unk_token="?", special_tokens=["?"])
            )
        self.longest = 0
        self.own.enable_truncation(10)
        names, uncut = ["input_ids"], Tokenizer.from_str(self.own.to_str())
        super().__init__({"id2label": {"0": "a", "1": "b"}}, 10, names, uncut)

    def tokenize(self, texts: list[str], pairs: list[str] | None) -> dict[str, list[list[int]]]:
        self.longest = max(self.longest, *map(len, texts))
        return {"input_ids": [self.own.encode(text).ids for text in texts]}

    def compute(self, inputs: dict[str, list[list[int]]]) -> np.ndarray:
        raise NotImplementedError


NO_TORCH = "raise ImportError('there is no torch here')\n"


def trained(root: Path, kind: str) -> Artifact:
    """A model of stage 2."""
    examples, overrides = KINDS[kind]
    metric = "pearson" if examples.get("regression") else "macro_f1"
    labelled = task(root, rows(**examples), metric, labels=not examples.get("regression"))
    return model(root, checkpoint(root, labelled, *overrides), labelled, "finetune.epochs=4")


@pytest.fixture(scope="module", params=KINDS)
def both(request, tmp_path_factory) -> tuple[Artifact, Artifact]:
    """A model, and its ONNX."""
    root = tmp_path_factory.mktemp("onnx")
    one = trained(root, request.param)
    return one, Artifact.open(export_onnx(one.uri, root=str(root)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tuple[Path, Artifact]:
    """Root, and a model of single texts."""
    root = tmp_path_factory.mktemp("plain")
    return root, trained(root, "modernbert")


WORDS = [*"aé.!", "tide", "Ünknown", "fish-ship", "\u200b", "\u0301", "海", "x" * 150]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "not in words"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_long_text_is_cut_only_behind_what_the_model_reads(kind: str, data: st.DataObject) -> None:
    """Beginnings without tokens, endless words and runs of spaces included."""
    model = Bare(kind)
    gaps = st.sampled_from([" ", " ", "  ", "\n", "\x1c", ""])
    words = data.draw(st.lists(st.tuples(st.sampled_from(WORDS), gaps, st.sampled_from([1, 9, 99])), max_size=12))
    text = "".join((word + gap) * count for word, gap, count in words)
    assert model.read([text]) == model.tokenize([text], None)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_is_an_error(value: float, monkeypatch) -> None:
    model = Bare("wordpiece")
    monkeypatch.setattr(model, "compute", lambda inputs: np.array([[0, value]] * len(inputs["input_ids"])))
    with pytest.raises(InputError, match="the model's values are not finite: its training diverged"):
        model.predict(["tide"])


CUTS = {"wordpiece": True, "bpe": True, "unigram": True, "not in words": False}


@pytest.mark.parametrize(("kind", "cuts"), CUTS.items())
def test_what_is_tokenized_of_a_long_text_is_short(kind: str, cuts: bool) -> None:
    model = Bare(kind)
    model.read(["the tide and a fish " * 50_000])
    assert (model.longest < 1000) == cuts


def test_logits_are_those_of_the_model(both) -> None:
    """Whatever the length of the texts and the size of a batch; the int8 model is near."""
    one, made = both
    wanted, pair = Classifier(one.path("model"), "cpu"), one.input("task").details["pair"]
    pairs = TEXTS[::-1] if pair else None
    exact, small = (OnnxClassifier(made.path("model"), file) for file in ("model.onnx", "model_quantized.onnx"))
    expected = wanted.logits(TEXTS, pairs)
    assert np.abs(exact.logits(TEXTS, pairs) - expected).max() <= 1e-4
    for file in (exact, small):  # int8, too, gives a text the same answer whatever stands beside it
        together = file.logits(TEXTS, pairs)
        assert all((file.logits([TEXTS[row]], pairs and [pairs[row]])[0] == together[row]).all() for row in range(9))
    spread = max(1.0, float(np.abs(expected).max()))
    assert 0 < np.abs(small.logits(TEXTS, pairs) - expected).max() < 0.3 * spread
    assert (exact.labels, exact.max_length, exact.marks) == (wanted.labels, wanted.max_length, wanted.marks)


def test_the_command_in_the_card_names_the_second_text_of_pairs(both) -> None:
    one, made = both
    field = " --pair-field text_pair" if one.input("task").details["pair"] else ""
    card = (made.path("model") / "README.md").read_text()
    assert f'```\ntlm predict "<this folder>" --source texts.jsonl{field}\n```\n' in card


def test_both_files_are_compared_on_dev(both) -> None:
    """The numbers that are told are those of its texts, and of both texts of pairs."""
    one, made = both
    dev = read_splits(one.input("task"), "dev")["dev"]
    files = [OnnxClassifier(made.path("model"), file) for file in ("model.onnx", "model_quantized.onnx")]
    wanted, exact, small = (
        each.logits(dev.texts, dev.pairs) for each in (Classifier(one.path("model"), "cpu"), *files)
    )
    assert made.counts["largest difference"] == pytest.approx(np.abs(wanted - exact).max(), rel=1e-6)
    assert made.details["agreement"] == pytest.approx([agreement(exact, small, files[0].labels is None)])


def test_what_the_model_reads_is_the_same(both) -> None:
    one, made = both
    wanted, found = Classifier(one.path("model"), "cpu"), OnnxClassifier(made.path("model"))
    for pairs in (None, TEXTS[::-1]):
        expected, tokens = wanted.tokenize(TEXTS, pairs), found.tokenize(TEXTS, pairs)
        assert {name: expected[name] for name in tokens} == tokens
        assert set(tokens) == set(expected)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@settings(max_examples=150, deadline=None)
@given(first=st.integers(0, 40), second=st.integers(0, 40), most=st.integers(4, 41))
def test_pairs_are_cut_as_the_library_cuts_them(kind: str, first: int, second: int, most: int) -> None:
    tokenizer = Bare(kind).own
    tokenizer.post_processor = processors.TemplateProcessing("$A", "$A:0 [SEP]:0 $B:1 [SEP]:1", [("[SEP]", 1)])
    pair = ("tide fish ship " * 14)[: 5 * first], ("wave harbour a " * 14)[: 5 * second]
    tokenizer.no_truncation()
    ours = tokenized(tokenizer, [pair], ["input_ids", "token_type_ids"], most)
    tokenizer.enable_truncation(most)
    theirs = tokenizer.encode(*pair)
    assert ours == {"input_ids": [theirs.ids], "token_type_ids": [theirs.type_ids]}


def test_a_long_pair_takes_no_memory_for_combinations(both) -> None:
    """Of 2 x 12,000 words, the library's truncation builds ten thousands of combinations, in two gigabytes."""
    _, made = both
    script = (
        "import resource, sys; from pathlib import Path; from tlm.evaluation.predict.encoder import OnnxClassifier; "
    )
    script += "resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2); model = OnnxClassifier(Path(sys.argv[1])); "
    script += "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
    script += "print(len(model.read(['tide ' * 12000], ['fish ' * 12001])['input_ids'][0])); "
    script += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    done = subprocess.run(
        [sys.executable, "-c", script, made.path("model")], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    tokens, kilobytes = map(int, done.stdout.split())
    assert tokens == OnnxClassifier(made.path("model")).max_length
    assert kilobytes < 100_000, done.stderr


def test_evaluate_scores_it_as_the_model(both) -> None:
    """With int8, a prediction may differ here and there; the loss on tokens is that of the same stage 1."""
    one, made = both
    scores = [
        json.loads(
            Artifact.open(evaluate(each.uri, one.input("task").uri, device="cpu")).path("metrics.json").read_text()
        )
        for each in (one, made)
    ]
    assert scores[0]["mlm_loss"] == scores[1]["mlm_loss"]
    name = scores[0]["metric"]
    assert abs(scores[0]["splits"]["dev"][name] - scores[1]["splits"]["dev"][name]) < 0.06


def test_the_same_model_gives_the_same_files_that_name_no_folder(plain, tmp_path) -> None:
    root, one = plain
    first = Artifact.open(export_onnx(one.uri))
    shutil.copytree(root, tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "model" / first.uri.rsplit("/", 1)[1])
    again = Artifact.open(export_onnx(f"{tmp_path}/again/model/{one.uri.rsplit('/', 1)[1]}"))
    assert again.content == first.content
    for file in first.path("model").iterdir():
        data = file.read_bytes()
        assert not [
            word for word in (b"site-packages", b".py", str(Path.home()).encode(), str(ROOT).encode()) if word in data
        ]
    assert logging.root.manager.disable == logging.NOTSET


def test_it_is_smaller_and_a_whole_onnx_model(plain) -> None:
    folder = Artifact.open(export_onnx(plain[1].uri)).path("model")
    for name in ("model.onnx", "model_quantized.onnx"):
        onnx.checker.check_model(folder / name, full_check=True)
    assert (folder / "model_quantized.onnx").stat().st_size < (folder / "model.onnx").stat().st_size
    assert not list(folder.glob("*.safetensors"))
    before, after = ((one / "README.md").read_text() for one in (plain[1].path("model"), folder))
    assert "from transformers import pipeline" in before
    assert "from transformers import" not in after  # it cannot load this folder
    assert "library_name: onnx\n" in after
    assert after.partition("## What it")[2].startswith(before.partition("## What it")[2])
    assert '```\ntlm predict "<this folder>" --source texts.jsonl\n```\nTexts longer than' in after
    name = "tokenizer_config.json"
    assert (folder / name).read_bytes() == (plain[1].path("model") / name).read_bytes()


@pytest.mark.parametrize(("least", "file"), [(0.98, "model_quantized.onnx"), (1.01, "model.onnx")])
def test_int8_is_used_if_it_predicts_what_float32_does(plain, tmp_path, monkeypatch, least: float, file: str) -> None:
    root, one = plain
    shutil.copytree(root, tmp_path / "root")
    for made in (tmp_path / "root" / "model").iterdir():
        if not one.uri.endswith(made.name):
            shutil.rmtree(made)
    monkeypatch.setattr(exporting, "SMALL_AGREES", least)
    folder = Artifact.open(export_onnx(f"{tmp_path}/root/model/{one.uri.rsplit('/', 1)[1]}")).path("model")
    assert json.loads((folder / "config.json").read_text())["tlm_onnx"]["file"] == file
    assert f"`tlm predict` takes `{file}`" in (folder / "README.md").read_text()


def test_logits_that_differ_are_an_error(plain, tmp_path, monkeypatch) -> None:
    root, one = plain
    exported = export_onnx(one.uri).rsplit("/", 1)[1]
    shutil.copytree(root, tmp_path / "root")
    shutil.rmtree(tmp_path / "root" / "model" / exported)
    monkeypatch.setattr(exporting, "EXACT_WITHIN", 1e-12)
    with pytest.raises(InputError, match=r"logits of its ONNX model differ by .*, more than 1e-12"):
        export_onnx(f"{tmp_path}/root/model/{one.uri.rsplit('/', 1)[1]}")


def test_agreement_is_equal_classes_or_explained_variance() -> None:
    exact = np.array([[0, 1], [2, 1], [3, 0]], np.float32)
    assert agreement(exact, exact[:, ::-1], numbers=False) == 0
    assert agreement(exact, np.array([[0, 9], [0, 1], [3, 0]], np.float32), numbers=False) == pytest.approx(2 / 3)
    values = np.array([[1], [2], [3]], np.float32)
    assert agreement(values, values, numbers=True) == 1
    assert agreement(values, values + 1, numbers=True) == pytest.approx(1 - 3 / 2)
    assert [agreement(0 * values, factor * values, numbers=True) for factor in (0, 1)] == [1, 0]  # no variance


def test_sets_of_labels_agree_if_all_labels_do_by_their_thresholds() -> None:
    exact, small = np.array([[2, -2], [1, 1]], np.float32), np.array([[2, 2], [1, 1]], np.float32)
    assert agreement(exact, small, False, [0.5, 0.5]) == 0.5
    assert agreement(exact, small, False, [0.5, 0.9]) == 1  # sigmoid(2) is 0.88


def test_every_encoder_of_a_mixture_is_found(tmp_path) -> None:
    """Those of several seeds, and those of a mixture in it."""
    families = {"": MIXTURE, "a": "", "b": "", "c": MIXTURE, "c/a": "linear", "c/b": "", "d": "static"}
    parts = {"": [["a", "b"], ["c"], ["d"]], "c": [["a"], ["b"]]}
    for name, family in families.items():
        (tmp_path / name).mkdir(exist_ok=True)
        config = ({FAMILY: family} if family else {}) | ({"parts": parts[name]} if name in parts else {})
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    assert encoders(tmp_path) == [tmp_path / name for name in ("a", "b", "c/b")]


@pytest.mark.parametrize("nested", [False, True])
def test_a_mixture_keeps_its_shallow_parts(plain, nested: bool) -> None:
    """Also where it is the second part of a cascade, as in docs/serving.md."""
    _, one = plain
    labelled = one.input("task").uri
    mixed = mix([evaluate(one.uri, labelled, device="cpu"), baseline(labelled)])
    if nested:
        mixed = mix([baseline(labelled), mixed], first=True)
    made = Artifact.open(export_onnx(mixed))
    before, after = (list(predict(each, filter(None, TEXTS), device="cpu")) for each in (mixed, made.uri))
    for expected, found in zip(before, after, strict=True):
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=0.05)
    assert not list(made.path("model").rglob("model.safetensors"))
    assert len(list(made.path("model").rglob("model.onnx"))) == 1


def test_a_shallow_model_has_nothing_to_convert(plain) -> None:
    with pytest.raises(InputError, match="has no encoder, so nothing to convert; it predicts without PyTorch as it is"):
        export_onnx(baseline(plain[1].input("task").uri))


def test_it_predicts_where_there_is_no_torch(plain, tmp_path) -> None:
    _, one = plain
    made = export_onnx(one.uri)
    for package in ("torch", "transformers"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(NO_TORCH)
    answers = []
    for path in (f"{tmp_path}:{ROOT}", f"{ROOT}"):
        done = subprocess.run(
            [sys.executable, "-m", "tlm.cli", "predict", made], input="court judge\nship\n", text=True,
            capture_output=True, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answers.append([json.loads(line) for line in done.stdout.splitlines()])
    assert answers[0] == answers[1]


def test_onnxruntime_reports_to_nobody(plain, tmp_path) -> None:
    """Where it does, it keeps an identity of this machine and a queue of events in the cache folder."""
    made = export_onnx(plain[1].uri)
    environment = {"PYTHONPATH": f"{ROOT}", "PATH": "/usr/bin:/bin", "HOME": f"{tmp_path}"}  # in CI it reports nothing
    command = [sys.executable, "-m", "tlm.cli", "predict", made]
    subprocess.run(command, input="court\n", text=True, capture_output=True, env=environment, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("damage", ["model_quantized.onnx", "tokenizer.json"])
def test_a_damaged_folder_is_one_sentence(plain, tmp_path, damage: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(Artifact.open(export_onnx(plain[1].uri)).path("model"), folder)
    (folder / damage).write_bytes(b"not what it was")
    with pytest.raises(InputError, match=r"model does not load as an ONNX model: .*; export it again"):
        list(predict(str(folder), ["court"]))


@pytest.mark.parametrize(("asked", "within", "threads"), [("", "1", 1), ("", "3", 3), ("2", "3", 2), ("4", "1", 4)])
def test_threads_are_those_of_the_container_or_what_is_asked_for(
    plain, monkeypatch, asked: str, within: str, threads: int
) -> None:
    """Whatever the machine has. The thread that asks is one of them."""
    root, one = plain
    folder = Artifact.open(export_onnx(one.uri, root=str(root))).path("model")
    monkeypatch.setenv("TLM_THREADS", asked)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", within)  # stands for a limit of the container
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    before = psutil.Process().num_threads()
    made = OnnxClassifier(folder)
    assert psutil.Process().num_threads() - before == threads - 1
    kept = made.session.get_session_options()
    assert kept.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert kept.get_session_config_entry("session.inter_op.allow_spinning") == "0"


def test_a_wrong_number_of_threads_is_one_sentence(plain, monkeypatch) -> None:
    root, one = plain
    folder = Artifact.open(export_onnx(one.uri, root=str(root))).path("model")
    monkeypatch.setenv("TLM_THREADS", "all")
    with pytest.raises(InputError, match="TLM_THREADS is 'all'; expected the number of CPU threads"):
        OnnxClassifier(folder)
