"""The published models that a table compares with, each taken over once."""

from pathlib import Path

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.paper.plan import wanted
from tlm.paper.tables import our_name
from tlm.training.load_model import load_model, published_name
from tlm.training.model.located import EXPECTED


def make_models(
    task: str, *, table: str, scale: str, corpus: str = "", folder: str = "", root: str | None = None
) -> dict[str, str]:
    """URIs of the checkpoints that `load_model` makes, by the models' names on the Hub; {} for a table without any.

    Args:
        task: URI of the task.
        table: Number of the table.
        scale: Name of the scale.
        corpus: C_BERT or C_RoBERTa, where the table has both.
        folder: Where the models lie, each in a folder called as the last part of its name: on this machine or on S3.
            Empty: the Hugging Face Hub.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Raises:
        InputError: a model is not there, or the Hub is not reached.
    """
    name = our_name(Artifact.open(task, "task").details["name"])
    presets = {cell.start: cell.preset for cell in wanted(table, scale, name, corpus) if cell.start}
    places = {model: _place(model, folder) for model in presets}
    return {model: load_model(places[model], task, preset=presets[model], root=root) for model in presets}


def _place(model: str, folder: str) -> str:
    if not folder:
        return model
    place = f"{folder.rstrip('/')}/{published_name(model)}"
    if not (place.startswith("s3://") or Path(place).is_dir()):
        raise InputError(
            f"{place}: there is no such folder, and the table compares with {model}; {EXPECTED}, as "
            f"'hf download {model} --local-dir {place}' fetches it"
        )
    return place
