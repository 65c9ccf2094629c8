"""A linear model of published embeddings: a model that others trained reads each text once."""

import shutil
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tlm.artifacts.stores.store import file_sha256
from tlm.data.marks import Marks, marks_of
from tlm.data.tasks.metrics import Floats, Texts
from tlm.errors import InputError, reason
from tlm.shallow import folder as folders
from tlm.shallow.features import of_marked, pieces, words_of
from tlm.shallow.linear import Dense, Given, OnDense, of_pairs

FAMILY = "published"
EMBEDDER = "embedder"  # folder of the published model, within the model's
SAFE = (".json", ".txt", ".model", ".safetensors")  # never a pickle (.bin, .pt) or a program (.py)
EXPECTED = "expected a model of sentence-transformers, model2vec or transformers with safetensors weights"
CONVERT = "if you trust it, convert it by SentenceTransformer('old').save('new') of sentence-transformers"
MODULES, ADAPTER, PICKLE = "modules.json", "adapter_config.json", "pytorch_model.bin"
BATCH = 64
CPU = "cpu"  # so that features are the same with and without a GPU


@dataclass(frozen=True)
class EmbeddingsModel(OnDense):
    """A fitted model.

    Attributes:
        folder: The published model.
    """

    folder: Path

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen, for the report."""
        return {"dimensions": len(self.dense.centre), **self.dense.chosen}

    @cached_property
    def model(self) -> Any:
        """The published model, loaded when it is first used."""
        return load(self.folder, CPU)

    def represented(self, texts: Texts, pairs: Texts | None) -> Floats:
        """The features of texts, or of pairs; shape [n, features]."""
        return features_of(self.model, self.marks, texts, pairs)

    def write(self, folder: Path) -> None:
        """Write the model, with the published one, into a new folder."""
        config, arrays = self.state(FAMILY)
        folders.write(folder, config, {}, arrays)
        for name, file in files_of(self.folder).items():
            shutil.copyfile(file, _in_folder(folder / EMBEDDER / name))

    @classmethod
    def read(cls, folder: Path) -> "EmbeddingsModel":
        """Read what `write` wrote."""
        config, _, arrays = folders.read(folder)
        return cls(*cls.restored(config, arrays), folder / EMBEDDER)


def fit(folder: Path, given: Given) -> EmbeddingsModel:
    """Embed the texts with the model in `folder`, and fit a linear model of the training examples' embeddings.

    Args:
        folder: The published model.
        given: What to fit to. Pairs of texts have no marks.

    Raises:
        InputError: the folder does not load, or lacks weights.
    """
    train = given.train
    marks = () if train.pairs is not None else marks_of(train.texts, given.marks)
    dense = Dense.fit(partial(features_of, whole(folder, CPU), marks), given, FAMILY)
    return EmbeddingsModel(given.labels, marks, dense, train.pairs is not None, folder)


def features_of(model: Any, marks: Marks, texts: Texts, pairs: Texts | None) -> Floats:
    """Features of examples, shape [n, features]: embeddings, or what is made of them for pairs and marked texts."""
    if pairs is not None:
        return of_pairs(embeddings(model, texts), embeddings(model, pairs))
    if not marks:
        return embeddings(model, texts)
    cut = [pieces(text, marks) for text in texts]
    return of_marked(cut, partial(_each_once, model), lambda part: len(words_of(part)))


def _each_once(model: Any, parts: list[str]) -> Floats:
    """Embeddings of parts of texts, as they are written but for their spaces; 0 of an empty part."""
    written = [" ".join(part.split()) for part in parts]
    row = {text: number for number, text in enumerate(dict.fromkeys(filter(None, written)))}
    found = embeddings(model, list(row) or [""])  # for its dimensions
    known = np.array([row.get(text, -1) for text in written])
    return np.where(known[:, np.newaxis] >= 0, found[known], 0.0)


def embeddings(model: Any, texts: Texts) -> Floats:
    """Embeddings of texts, shape [n, dimensions]."""
    try:
        return np.asarray(model.encode(list(texts), batch_size=BATCH, show_progress_bar=False), np.float64)
    except Exception as error:  # of many kinds, as in `load`
        raise InputError(f"the published model cannot embed the texts ({reason(error)}); {EXPECTED}") from None


def load(folder: Path, device: str | None = None) -> Any:
    """Load a published model from its files, without a network, without pickles, and without code of its own.

    The library sees links to `files_of` only: what is neither in the key nor in the artifact cannot be read.

    Args:
        folder: The folder of the model.
        device: Where it computes; None: on a GPU if there is one.

    Raises:
        InputError: sentence-transformers is not installed, or the model does not load.
    """
    files = files_of(folder)
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    except ImportError:
        needed = "sentence-transformers is missing: run `make install`, or in a checkout `pip install '.[embeddings]'`"
        raise InputError(needed) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {"model_kwargs": {"use_safetensors": True}, "device": device}
    with TemporaryDirectory() as links:
        for name, file in files.items():
            _in_folder(Path(links) / name).symlink_to(file.resolve())
        try:
            return SentenceTransformer(links, trust_remote_code=False, local_files_only=True, **options)
        except Exception as error:  # many libraries read the files, each with its own errors
            found = reason(error).replace(links, str(folder))
            raise InputError(f"{folder} does not load: {found}; {EXPECTED}") from None


def whole(folder: Path, device: str | None = None) -> Any:
    """Load a model as `load` does. Raises InputError, too, if it lacks weights, which the library draws at random."""
    model, again = load(folder, device), load(folder, device)
    if not np.allclose(embeddings(model, ["a"]), embeddings(again, ["a"])):
        raise InputError(f"{folder} lacks weights; download the model again")
    return model


def _in_folder(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def digests(folder: Path, option: str) -> dict[str, str]:
    """The SHA-256 of each file of a published model.

    Args:
        folder: The folder of the model.
        option: The option that names it, for the message.

    Raises:
        InputError: it is no folder, or one that `files_of` refuses.
    """
    if not folder.is_dir():
        advice = f"download the model, as with 'hf download NAME --local-dir {folder}'"
        raise InputError(f"{option} {folder} is not a folder; {advice}")
    return {name: file_sha256(file) for name, file in files_of(folder).items()}


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a published model by their names in the folder, sorted.

    Raises:
        InputError: there are no weights, or weights as pickles only, a config names code of its own, or the model
            needs another one.
    """
    for pickle in _pickles(folder):
        never = f"{pickle} is a pickle, which can run code, and is never read"
        raise InputError(f"{never}; {CONVERT}, and give the new folder")
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.suffix in SAFE}
    if not any(name.endswith(".safetensors") for name in found):
        raise InputError(f"{folder} has no .safetensors file; {EXPECTED}")
    folders.refuse_code(folder, (name for name in found if name.endswith(".json")))
    for name, path in found.items():
        modules = _modules(path) if path.name == MODULES else []
        if not all(str(module.get("type", "")).startswith("sentence_transformers.") for module in modules):
            raise InputError(f"{folder}/{name} names code of its own, which is never run; take another model")
        if path.name == ADAPTER:
            advice = "merge it into that model (merge_and_unload of peft), and give the folder of the whole"
            raise InputError(f"{folder}/{name} adapts another model, which is not in the folder; {advice}")
    return found


def _pickles(folder: Path) -> list[Path]:
    """The pickles in whose place a module of the model has no safetensors file."""
    parts = [folder, *(folder / str(one.get("path", "")) for one in _modules(folder / MODULES))]
    return [part / PICKLE for part in parts if (part / PICKLE).is_file() and not any(part.glob("*.safetensors"))]


def _modules(path: Path) -> list[dict[str, Any]]:
    values = folders.json_or_none(path)
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []
