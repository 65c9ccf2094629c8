"""The step `export-onnx`: a trained model as ONNX, in float32 and in int8, compared with itself on dev."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.tasks.metrics import above
from tlm.errors import InputError
from tlm.evaluation.predict.encoder import ONNX, OnnxClassifier
from tlm.evaluation.predict.models import trained
from tlm.evaluation.predict.predictor import MIXTURE
from tlm.progress import say
from tlm.shallow.folder import FAMILY, config_of

VERSION = 3
EXACT_WITHIN = 1e-4  # the largest difference of a logit; of numbers, of their deviation, and rounding beside it
ROUNDING = 1e-6  # of the largest number, in float32
CARD = """
## ONNX
`model.onnx` computes in float32; on dev, no logit differs by more than {within:.1g} from the model's.
`model_quantized.onnx` computes matrix products in int8, and predicts {agreement:.1%} of dev as the former does.
`tlm predict` takes `{used}`, as `config.json` says. Both need onnxruntime, not PyTorch;
`transformers` loads the model that they were made from, not this folder.
"""
_USE = re.compile(r"```python\nfrom transformers import.*?```", re.DOTALL)  # in the card of the model
USE = """```
tlm predict "<this folder>" --source texts.jsonl{of_pairs}
```"""
SMALL_AGREES = 0.98  # the share of dev that int8 must predict as float32 does, to be the default


def export_onnx(model: str, *, root: str | None = None) -> str:
    """Write a model for onnxruntime, which predicts without PyTorch: as float32, and smaller and faster as int8.

    Both are compared with the model on the dev examples of its task. `config.json` names the one that `tlm predict`
    takes: int8, if it predicts at least 98 % of them as float32 does. In a mixture, the encoders are converted.

    Args:
        model: URI of a model, of its metrics, or of a report that recommends it.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of a model, which `tlm predict`, `tlm download` and `tlm evaluate` take.

    Raises:
        InputError: the model has no encoder, a package is not installed, or the logits differ by more than 1e-4
            (numbers: by more than 1e-4 of their standard deviation).
    """
    original = trained_model(model)
    if not encoders(original.path("model")):
        raise InputError(f"{original.uri} has no encoder, so nothing to convert; it predicts without PyTorch as it is")
    task = _task(original)
    inputs = {"converted": original, "task": task}
    for name in ("checkpoint", "task_tokens"):  # `evaluate` and reports look for these inputs of a model
        if name in original.manifest.inputs:
            inputs[name] = original.input(name)
    return produce(Recipe("model", "export-onnx", VERSION, {}, inputs), root, _write, original, task)


def trained_model(uri: str) -> Artifact:
    """The model that this URI stands for, as `trained` finds it. Raises InputError if there is none."""
    found = trained(uri)
    if found.manifest.kind != "model":
        raise InputError(f"{found.uri} is a {found.manifest.kind}; expected a model")
    return found


def encoders(folder: Path) -> list[Path]:
    """The folders of a model's encoders: itself, or those of a mixture's members, which may be mixtures, too."""
    config = config_of(folder)
    if config.get(FAMILY) == MIXTURE:
        return [one for part in config["parts"] for name in part for one in encoders(folder / name)]
    return [] if FAMILY in config else [folder]


def _task(model: Artifact) -> Artifact:
    if "task" in model.manifest.inputs:
        return model.input("task")
    return model.input(next(iter(model.manifest.inputs))).input("task")  # a mixture's: the metrics of its members


def _write(draft: Draft, original: Artifact, task: Artifact) -> None:
    from tlm.data.tasks.examples import read_splits  # here, because manifests are made without pyarrow, too

    try:
        from tlm.serving.convert import EXACT, SMALL, convert, use
    except ImportError as error:
        raise InputError(f"{error.name} is missing: `make install`, or in a checkout `pip install '.[onnx]'`") from None
    source, to = original.path("model"), draft.folder / "model"
    dev = read_splits(task, "dev")["dev"]
    folders = encoders(source)
    if folders != [source]:  # a mixture, whose other files are copied
        shutil.copytree(source, to, ignore=lambda at, names: [name for name in names if Path(at, name) in folders])
    places = [folder.relative_to(source) for folder in folders]
    comparisons: list[dict[str, Any]] = []
    for place in places:
        say(f"converting the encoder {place}" if len(places) > 1 else "converting")
        convert(source / place, to / place)
        comparison = compared(source / place, to / place, dev.texts, dev.pairs)
        comparisons.append(comparison)
        if comparison["agreement"] >= SMALL_AGREES:
            use(to / place, SMALL)
        _note(to / place, comparison, task.details["pair"])
    for file in (EXACT, SMALL):
        draft.counts[f"bytes of {file}"] = sum((to / place / file).stat().st_size for place in places)
    draft.counts["largest difference"] = max(comparison["difference"] for comparison in comparisons)
    draft.details = original.details | {"agreement": [comparison["agreement"] for comparison in comparisons]}


def compared(folder: Path, converted: Path, texts: list[str], pairs: list[str] | None) -> dict[str, Any]:
    """Compare both ONNX files with the model that they were made from.

    Returns:
        ``difference``: the largest of float32's logits; ``within``: the largest that is allowed; ``agreement``: the
        share of texts to which int8 gives the same class as float32, or for numbers the share of variance that it
        explains.

    Raises:
        InputError: the difference is larger.
    """
    from tlm.evaluation.predict.classifier import Classifier
    from tlm.serving.convert import EXACT, SMALL

    model = Classifier(folder, "cpu")
    wanted = model.logits(texts, pairs, "comparing")
    exact, small = (OnnxClassifier(converted, file).logits(texts, pairs, "comparing") for file in (EXACT, SMALL))
    difference, within = float(np.abs(wanted - exact).max(initial=0)), EXACT_WITHIN
    if model.labels is None:
        within = float(EXACT_WITHIN * wanted.std() + ROUNDING * np.abs(wanted).max(initial=0))
    if difference > within:
        raise InputError(f"{folder}: the logits of its ONNX model differ by {difference:.2g}, more than {within:.1g}")
    found = agreement(exact, small, model.labels is None, model.thresholds)
    return {"difference": difference, "within": within, "agreement": found}


def agreement(
    exact: NDArray[np.float32], small: NDArray[np.float32], numbers: bool, thresholds: list[float] | None = None
) -> float:
    """The similarity of two predictions, at most 1: the share of equal answers, or of explained variance of numbers.

    With `thresholds`, an answer is the set of labels whose probabilities are above them.
    """
    if thresholds is not None:
        return float((above(expit(exact), thresholds) == above(expit(small), thresholds)).all(axis=1).mean())
    if numbers:
        exact, small = exact.astype(np.float64), small.astype(np.float64)
        spread = np.square(exact - exact.mean()).sum()
        return float(1 - np.square(small - exact).sum() / spread) if spread else float((small == exact).all())
    return float((exact.argmax(axis=1) == small.argmax(axis=1)).mean())


def _note(folder: Path, found: dict[str, Any], pair: bool) -> None:
    """Add the comparison to the model card, and say how this model is used."""
    card = folder / "README.md"
    before = card.read_text(encoding="utf-8") if card.is_file() else ""
    use = USE.format(of_pairs=" --pair-field text_pair" * pair)
    before = _USE.sub(use, before).replace("library_name: transformers", "library_name: onnx")
    card.write_text(before + CARD.format(used=config_of(folder)[ONNX]["file"], **found), encoding="utf-8")
