"""`baseline --features`: published models as features, served from the artifact, and none of their code ever run."""

import ctypes
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModel, AutoTokenizer

from tests.published import write_bert
from tests.unit.shallow.test_shallow import subset_of, task_of
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.mix import ReportRow, mix, mixtures
from tlm.shallow.published import digests, embeddings, features_of, files_of, load, whole

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "because", "of", "inside", "hitze", "ist"]


def of_transformers(folder: Path) -> None:
    write_bert(folder, WORDS)


def of_model2vec(folder: Path) -> None:
    """Vectors of tokens in one matrix, as model2vec writes them."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = torch.randn((len(WORDS) + 1, 16), generator=torch.Generator().manual_seed(0))
    save_file({"embeddings": vectors}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "architectures": ["StaticModel"]}))
    module = {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}
    (folder / "modules.json").write_text(json.dumps([module]))


def of_sentence_transformers(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    of_transformers(folder.with_name("plain"))
    SentenceTransformer(str(folder.with_name("plain"))).save(str(folder))


def with_dense(folder: Path) -> None:
    """A sentence-transformers model with a projection behind it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    of_transformers(folder.with_name(f"plain-{folder.name}"))
    model = SentenceTransformer(str(folder.with_name(f"plain-{folder.name}")))
    model.append(Dense(model.get_embedding_dimension(), 8))
    model.save(str(folder))


WRITERS = [of_transformers, of_model2vec, of_sentence_transformers, with_dense]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("kind", ["plain", "pairs", "numbers", "marked"])
def test_it_is_scored_served_and_mixed(write: Callable[[Path], None], kind: str, tmp_path: Path) -> None:
    write(tmp_path / "tiny")
    root, task = str(tmp_path / "store"), task_of(tmp_path / "store", kind)
    metrics = Artifact.open(baseline(task, features=str(tmp_path / "tiny"), root=root))
    assert ReportRow.of(metrics.details["arm"], metrics.details["stage"]) == ("embeddings-tiny", "embeddings", "")
    model = metrics.input("model")
    table = pq.read_table(metrics.path("predictions.parquet")).to_pylist()
    rows = pq.read_table(Artifact.open(task).path("examples.parquet")).to_pylist()
    texts = [(rows[one["example"]]["text"], rows[one["example"]]["text_pair"]) for one in table]
    answers = list(predict(model.uri, [pair if pair[1] is not None else pair[0] for pair in texts]))
    if kind == "numbers":
        assert [one["value"] for one in answers] == pytest.approx([one["predicted"] for one in table], abs=1e-4)
    else:
        assert [one["label"] for one in answers] == [one["predicted"] for one in table]
    mixed = Artifact.open(mix([metrics.uri, baseline(task, root=root)], root=root))
    assert mixed.details["arm"] == "embeddings-tiny + baseline"


class Library:
    """Stands for a model of the library: a vector for each text, and a note of all that it reads."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        self.read += texts
        return np.array([self.vector(text) for text in texts], np.float32)

    @staticmethod
    def vector(text: str) -> list[int]:
        return [len(text), text.count("t"), sum(map(ord, text)) % 97] if text else [0, 0, 0]


MARKED = {  # the whole, what is between the spans, both spans; whether they stand in order, their distance
    "The [[ Red Cat ]] sat on, well,\n<< a Mat >>!": (
        ("The Red Cat sat on, well, a Mat !", "sat on, well,", "Red Cat", "a Mat"), [1, 0.5, 0],
    ),
    "<< a Mat >> of [[ Red Cat ]]": (("a Mat of Red Cat", "of", "Red Cat", "a Mat"), [0, 0.1, 1]),
    "A [[ Red Cat ]]": (("A Red Cat", "", "Red Cat", ""), [0, 0, 1]),
    "No span": (("No span", "", "", ""), [0, 0, 1]),
}  # fmt: skip


def test_marked_texts_are_read_in_parts_as_they_are_written_and_each_once() -> None:
    model, marks = Library(), (("[[", "]]"), ("<<", ">>"))
    found = features_of(model, marks, [*MARKED, *MARKED], None)
    expected = []
    for parts, numbers in MARKED.values():
        vectors = [Library.vector(part) for part in parts]
        again = [numbers[0] * value for value in vectors[1]]
        expected.append([*(value for vector in vectors for value in vector), *again, *numbers])
    np.testing.assert_array_equal(found, [*expected, *expected])
    np.testing.assert_array_equal(features_of(Library(), marks, ["[[ ]]<< >>"], None), [[*[0] * 15, 1, 0, 1]])
    assert sorted(model.read) == sorted({part for parts, _ in MARKED.values() for part in parts if part})


def test_named_marks_replace_those_that_are_found(tmp_path: Path) -> None:
    of_model2vec(tmp_path / "tiny")
    root, task = str(tmp_path / "store"), task_of(tmp_path / "store", "marked")
    for spans, marks in (((), [["<<", ">>"], ["[[", "]]"]]), (("[[ ]]",), [["[[", "]]"]])):
        metrics = Artifact.open(baseline(task, features=str(tmp_path / "tiny"), spans=spans, root=root))
        assert json.loads(metrics.input("model").path("model/config.json").read_text())["marks"] == marks
    with pytest.raises(InputError, match=r"no training text has the marks '\{ \}'"):
        baseline(task, features=str(tmp_path / "tiny"), spans=["{ }"], root=root)


def test_a_name_on_the_hub_is_the_folder_that_it_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its folders of modules; and named by itself, not by the folder of the library's cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with_dense(tmp_path / "tiny")
    cache, commit = tmp_path / "cache" / "models--owner--tiny", "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(tmp_path / "tiny", cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    root, task = str(tmp_path / "store"), task_of(tmp_path / "store", "plain")
    found = baseline(task, features="owner/tiny", root=root)
    assert found == baseline(task, features=str(tmp_path / "tiny"), root=root)
    assert Artifact.open(found).details["arm"] == "embeddings-tiny"


def test_they_are_mixed_with_the_static_model_of_retrieved_text(tmp_path: Path) -> None:
    of_model2vec(tmp_path / "tiny")
    root, task = str(tmp_path / "store"), task_of(tmp_path / "store", "plain")
    linear, embedded = baseline(task, root=root), baseline(task, features=str(tmp_path / "tiny"), root=root)
    text = static(task, subset=subset_of(tmp_path / "store", ["alpha beta because of gamma"] * 30), root=root)
    made = [Artifact.open(uri).details["arm"] for uri in mixtures(linear, [text, embedded], root=root)]
    parts = ("embeddings-tiny + baseline", "embeddings-tiny + static-bm25 + baseline")
    assert made == ["static-bm25 + baseline", *parts]
    assert [Artifact.open(uri).details["arm"] for uri in mixtures(linear, [embedded], root=root)] == [parts[0]]


def test_the_embedding_of_a_transformers_folder_is_the_mean_of_its_last_states(tmp_path: Path) -> None:
    of_transformers(tmp_path / "tiny")
    texts = ["alpha beta", "inside gamma delta epsilon"]
    model, tokenizer = AutoModel.from_pretrained(tmp_path / "tiny"), AutoTokenizer.from_pretrained(tmp_path / "tiny")
    for text in texts:
        with torch.no_grad():
            states = model.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(load(tmp_path / "tiny").encode([text])[0], states.mean(0).numpy(), atol=1e-5)


def test_the_same_files_are_found_again_and_others_are_not(tmp_path: Path) -> None:
    of_model2vec(tmp_path / "tiny")
    root, task = str(tmp_path / "store"), task_of(tmp_path / "store", "plain")
    first = baseline(task, features=str(tmp_path / "tiny"), root=root)
    assert baseline(task, features=str(tmp_path / "tiny"), root=root) == first
    vectors = torch.randn((len(WORDS) + 1, 16), generator=torch.Generator().manual_seed(1))
    save_file({"embeddings": vectors}, tmp_path / "tiny" / "model.safetensors")
    assert baseline(task, features=str(tmp_path / "tiny"), root=root) != first


def test_pickles_and_programs_do_not_get_into_the_artifact(tmp_path: Path) -> None:
    of_transformers(tmp_path / "tiny")
    for name in ("pytorch_model.bin", "modeling.py", "deep/weights.pt"):
        (tmp_path / "tiny" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tiny" / name).write_bytes(b"x")
    assert not {"pytorch_model.bin", "modeling.py", "deep/weights.pt"} & set(files_of(tmp_path / "tiny"))


@contextmanager
def opened(folder: Path) -> Iterator[set[str]]:
    """The files of a folder that any program opens meanwhile, as the kernel tells (inotify)."""
    libc, is_open = ctypes.CDLL(None, use_errno=True), 0x20
    watch = libc.inotify_init1(os.O_NONBLOCK)
    places = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    watched = {libc.inotify_add_watch(watch, str(path).encode(), is_open): path for path in places}
    found: set[str] = set()
    yield found
    with suppress(BlockingIOError):
        while events := os.read(watch, 1 << 16):
            while events:
                place, _, _, length = struct.unpack("iIII", events[:16])
                if name := events[16 : 16 + length].rstrip(b"\0").decode():
                    found.add(str((watched[place] / name).relative_to(folder)))
                events = events[16 + length :]
    os.close(watch)
    found -= {str(path.relative_to(folder)) for path in places}


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_file_that_is_read_is_in_the_key_and_in_the_artifact(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    write(folder)
    for name in ("README.md", "pytorch_model.bin", "extra.bpe", "openvino/openvino_model.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("of the model, but not read")
    with opened(folder) as read:
        vectors = load(folder).encode(WORDS)
    assert any(name.endswith(".safetensors") for name in read)
    assert read <= set(files_of(folder))
    for name, file in files_of(folder).items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, tmp_path / "copy" / name)
    assert np.array_equal(load(tmp_path / "copy").encode(WORDS), vectors)


def test_other_weights_of_a_dense_module_are_another_model(tmp_path: Path) -> None:
    with_dense(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    weights = tmp_path / "two" / "2_Dense" / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights)
    one, two = (load(tmp_path / name).encode(["alpha beta"]) for name in ("one", "two"))
    assert one.shape == (1, 8)
    assert not np.allclose(one, two)
    first, second = (digests(tmp_path / name, "--features") for name in ("one", "two"))
    assert [name for name in first if first[name] != second[name]] == ["2_Dense/model.safetensors"]


def test_weights_that_are_pickles_are_refused(tmp_path: Path) -> None:
    with_dense(tmp_path / "tiny")
    weights = tmp_path / "tiny" / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))  # noqa: TID251 - what must be refused
    weights.unlink()
    expected = r"tiny/2_Dense/pytorch_model.bin is a pickle, which can run code, and is never read; if you trust it, .*"
    for ask in (load, files_of, lambda folder: digests(folder, "--features")):
        with pytest.raises(InputError, match=expected):
            ask(tmp_path / "tiny")


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    of_transformers(tmp_path / "tiny")
    (tmp_path / "tiny" / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    with pytest.raises(InputError, match=r"tiny/adapter_config.json adapts another model, .*; merge it"):
        files_of(tmp_path / "tiny")


def refused(folder: Path, name: str, values: object) -> str:
    path = folder / name
    before = json.loads(path.read_text()) if path.exists() and isinstance(values, dict) else {}
    path.write_text(json.dumps({**before, **values} if isinstance(values, dict) else values))
    with pytest.raises(InputError) as caught:
        files_of(folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("config.json", {"auto_map": {"AutoModel": "modeling.Evil"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "modeling.Evil"}}),
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "modeling.Evil"}]),
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "os.system"}]),
        ("modules.json", [{"idx": 0, "name": "0", "path": ""}]),
    ],
)
def test_code_of_the_folder_is_refused(name: str, values: object, tmp_path: Path) -> None:
    of_transformers(tmp_path / "tiny")
    assert f"/{name} names code of its own, which is never run" in refused(tmp_path / "tiny", name, values)


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    root, task = str(tmp_path / "store"), task_of(tmp_path / "store", "plain")
    with pytest.raises(InputError, match=r"nowhere: there is no such folder; expected a model"):
        baseline(task, features=str(tmp_path / "nowhere"), root=root)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no \.safetensors file"):
        baseline(task, features=str(tmp_path / "empty"), root=root)
    of_model2vec(tmp_path / "tiny")
    (tmp_path / "tiny" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"tiny does not load: .*; expected a model of sentence-transformers"):
        baseline(task, features=str(tmp_path / "tiny"), root=root)


def test_a_model_that_lacks_weights_is_refused(tmp_path):
    """The library draws them at random, others at each load."""
    of_transformers(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    save_file({name: one for name, one in load_file(file).items() if "layer.0" not in name}, file, {"format": "pt"})
    with pytest.raises(InputError, match="model lacks weights; download the model again"):
        whole(tmp_path / "model", "cpu")


def test_a_model_that_cannot_embed_is_one_sentence(tmp_path):
    of_transformers(tmp_path / "model")
    found = load(tmp_path / "model", "cpu")
    found.tokenizer.pad_token = None
    with pytest.raises(InputError, match=r"the published model cannot embed the texts .*; expected a model of"):
        embeddings(found, ["alpha beta", "gamma"])
