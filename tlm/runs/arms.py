"""The arms of a run: networks from scratch, and published models, which others trained."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tlm.errors import InputError, nearest
from tlm.evaluation.score.baseline import EMBEDDINGS
from tlm.retrieval.select.retrieve import ARMS as RETRIEVED
from tlm.retrieval.subset.export import TASK_ONLY
from tlm.training.input.located import model_folder, published_name
from tlm.training.load_model import PUBLISHED

ARMS = (TASK_ONLY, *RETRIEVED)
OF_PUBLISHED = (EMBEDDINGS, PUBLISHED, *(f"{PUBLISHED}-{text}" for text in ARMS))
FINETUNE, ADAPT = "finetune-published", "adapt"  # presets of published models: stage 2 alone, and both stages
KEPT = ("model.max_length=", "model.cut=", "model.spans_first=")  # overrides about texts, which any network reads alike


class Arms(NamedTuple):
    """The arms of a run.

    Attributes:
        scratch: The texts of the networks that are trained from scratch: some of `ARMS`.
        further: The texts that each published model trains on in stage 1; "" for stage 2 alone.
        embeddings: Whether there is a linear model of the embeddings of each published model.
        models: The places of the published models.
    """

    scratch: list[str]
    further: list[str]
    embeddings: bool
    models: list[str]

    @property
    def texts(self) -> list[str]:
        """The texts to select, each once; BM25's, which is exported in any case, if no arm needs one."""
        found = dict.fromkeys([*self.scratch, *filter(None, self.further)])
        return [*found] or ["bm25"]

    def presets(self, given: str) -> list[str]:
        """The presets of the published models that are trained; `given` replaces those of their own."""
        return list(dict.fromkeys(preset_of(text, given) for text in self.further))


def preset_of(further: str, given: str) -> str:
    """The preset of a published model that trains on a text in stage 1, or on none (""): `given`, else its own."""
    return given or (ADAPT if further else FINETUNE)


def arm_of(model: str, further: str | None = "") -> str:
    """The name of the arm of a published model in reports; without a network to train (None), of its embeddings."""
    name = published_name(model)
    return f"{EMBEDDINGS}-{name}" if further is None else "-".join(filter(None, (PUBLISHED, name, further)))


def parse_arms(text: str, published: str = "", *, network: bool = True) -> Arms:
    """Return the arms written as 'bm25,random,published-bm25', with published models written as 'one,s3://…/other'.

    Published models that no arm names have the arm embeddings, and published where networks are trained.

    Raises:
        InputError: an arm is unknown, given twice, or cannot be had; or two models have one name.
    """
    arms, models = listed(text, "arms"), parse_models(published)
    for arm in arms:
        if arm not in (*ARMS, *OF_PUBLISHED):
            raise InputError(f"arms: '{arm}' is no arm{nearest(arm, (*ARMS, *OF_PUBLISHED))}")
        if arm in OF_PUBLISHED and not models:
            raise InputError(f"arms: '{arm}' needs a published model, and run_published names none; give its place")
        if arm.startswith(PUBLISHED) and not network:
            raise InputError(
                f"arms: '{arm}' trains a network, and this pipeline trains none; take the arm {EMBEDDINGS}"
            )
    if models and not {*arms} & {*OF_PUBLISHED}:
        arms += [EMBEDDINGS, PUBLISHED] if network else [EMBEDDINGS]
    further = [arm.removeprefix(PUBLISHED).removeprefix("-") for arm in arms if arm.startswith(PUBLISHED)]
    return Arms([arm for arm in arms if arm in ARMS], further, EMBEDDINGS in arms, models)


def parse_models(text: str) -> list[str]:
    """Return the places of published models written as 'one,s3://…/other'.

    Raises:
        InputError: two have the same name, or a name would be read as something else in the names of arms.
    """
    models = listed(text, "run_published") if text.strip() else []
    names = [published_name(model) for model in models]
    for model, name in zip(models, names, strict=True):
        if not re.fullmatch(r"[\w.-]+", name) or name.endswith(tuple(f"-{arm}" for arm in ARMS)):
            raise InputError(
                f"run_published: the last part of '{model}' names its arm; expected letters, digits, '.', '_' and '-', "
                "and no arm such as -bm25 at the end; rename the folder"
            )
        if names.count(name) > 1:
            raise InputError(f"run_published: two models are called '{name}'; rename the folder of one")
    return models


def check_models(models: Sequence[str]) -> None:
    """Raise InputError for a published model that is not there. Only small files are downloaded."""
    for model in models:
        with model_folder(model, of_tokenizers=True) as folder:
            if not folder.is_dir():
                raise InputError(f"run_published: {model} is a file; give the folder of a published model")


def listed(text: str, name: str) -> list[str]:
    """Return what is written as 'one,two'. Raises InputError if there is nothing, or something twice."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items or len(set(items)) < len(items):
        raise InputError(f"{name}: '{text}' is empty or names one twice; give them separated by commas")
    return items
