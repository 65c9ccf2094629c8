"""The steps `baseline` and `static`: shallow models, trained and scored; every report compares with them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.marks import named_marks
from tlm.data.passages import texts
from tlm.data.tasks.examples import classes_of, read_splits, texts_in
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError, NothingLeft
from tlm.evaluation.score.evaluate import evaluate
from tlm.progress import say
from tlm.retrieval.subset.export import Selection
from tlm.retrieval.subset.protected import check_protected
from tlm.settings.options import Filters
from tlm.training.input.located import model_folder, published_name

if TYPE_CHECKING:
    from tlm.shallow.linear import Given
    from tlm.shallow.models import Model


MOST_PASSAGES = 200_000  # that static vectors are learned from: five minutes of one core
ARM, STATIC, EMBEDDINGS, NAMES = "baseline", "static", "embeddings", "label-names"
VERSIONS = {ARM: 8, STATIC: 9, EMBEDDINGS: 9}  # of the steps


def baseline(
    task: str, *, features: str = "", spans: Sequence[str] = (), seed: int = 0, root: str | None = None
) -> str:
    """Train and score a linear model on tf-idf of words, characters and marked spans (ridge for numbers).

    Of pairs, also on what their texts share, what one of them lacks, and which words may have been exchanged. Features,
    regularisation and class weights are chosen by the mean of two scores: on dev, and in cross-validation over the
    training examples (if there are at most 5,000). Test is read once.

    Args:
        task: URI of the task.
        features: A published embedding model (sentence-transformers, model2vec or transformers), whose embeddings of
            the texts and of their marked spans are the features instead: a folder, on this machine or on S3, or a name
            on the Hugging Face Hub. `make install` has what it needs, or in a checkout `pip install '.[embeddings]'`.
        spans: Marks around the spans that a text is asked about, such as "[[ ]]"; may be repeated. By default, they
            are detected: nearly all training texts hold them once.
        seed: Recorded with the scores; it has no effect, because the solvers are deterministic.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    examples = Artifact.open(task, "task")
    if features:
        return _embedded(examples, features, spans, seed, root)
    recipe = _recipe("baseline", {"arm": ARM, "seed": seed}, spans, {"task": examples})
    return _scored(recipe, root, lambda: _fitted(recipe))


def static(task: str, *, subset: str = "", spans: Sequence[str] = (), seed: int = 0, root: str | None = None) -> str:
    """Learn static word vectors from a subset and the task's texts; train and score a linear model of their means.

    The vectors are a truncated SVD of the words' PPMI within five words (128 dimensions). A text is the mean of its
    vectors, weighted by rarity. Where spans are marked, so are the spans and the words between them, single words
    count by their place, and the vectors know only three words to each side, but which side. Of a subset with more
    than 200,000 passages, as many are read, evenly spaced.

    Args:
        task: URI of the task.
        subset: URI of the subset. Without one, the vectors are learned from the task's texts alone: those of train,
            and those without labels.
        spans: Marks around the spans that a text is asked about, such as "[[ ]]"; may be repeated. By default, they
            are detected: nearly all training texts hold them once.
        seed: Recorded with the scores: the seed of the subset, if that was drawn. It has no other effect.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    inputs = {"task": Artifact.open(task, "task")}
    if subset:
        inputs["subset"] = Artifact.open(subset, "subset")
        check_protected(inputs["subset"], inputs["task"])
    arm = inputs["subset"].details["arm"] if subset else "task-only"
    recipe = _recipe(STATIC, {"arm": f"{STATIC}-{arm}", "seed": seed}, spans, inputs)
    return _scored(recipe, root, lambda: _fitted(recipe))


def _embedded(task: Artifact, place: str, spans: Sequence[str], seed: int, root: str | None) -> str:
    from tlm.shallow.published import SAFE, digests, fit

    with model_folder(place, files=[f"*{ending}" for ending in SAFE]) as folder:
        arm, files = f"{EMBEDDINGS}-{published_name(place)}", digests(folder, "--features")
        recipe = _recipe(EMBEDDINGS, {"arm": arm, "seed": seed, "files": files}, spans, {"task": task})
        return _scored(recipe, root, lambda: fit(folder, given(recipe.inputs["task"], spans)))


def _recipe(step: str, settings: dict[str, Any], spans: Sequence[str], inputs: dict[str, Artifact]) -> Recipe:
    if spans:
        named_marks(spans)  # raises before anything is made
        if step != ARM and inputs["task"].details["pair"]:
            raise InputError(f"{inputs['task'].uri} has pairs of texts, where {step} knows no spans; leave --spans out")
        settings["spans"] = list(spans)
    return Recipe("model", step, VERSIONS[step], settings, inputs)


def _scored(recipe: Recipe, root: str | None, fit: "Callable[[], Model]") -> str:
    root = home(root, recipe.inputs.values()).root
    model = produce(recipe, root, _write, recipe, fit)
    say(f"{recipe.step}: the model of {recipe.settings['arm']} is {model}")
    return evaluate(model, recipe.inputs["task"].uri, device="cpu", root=root)  # there may be no torch to ask for GPUs


def _write(draft: Draft, recipe: Recipe, fit: "Callable[[], Model]") -> None:
    from tlm.shallow.models import one_thread

    draft.spending.workers = {"cpu_seconds": 1}
    with one_thread():
        model = fit()
    model.write(draft.folder / "model")
    facts = {name: recipe.settings[name] for name in ("arm", "seed")}
    parameters = sum(array.size for array in (model.linear.weights, model.linear.bias))
    draft.details = {**facts, "stage": recipe.step, "fixed": True, "parameters": parameters, "cost": {}}
    draft.details |= {"chosen": model.chosen, "tried": model.tried}
    draft.counts = {"parameters": parameters}
    draft.run |= {"device": "cpu", "threads": 1}


def _fitted(recipe: Recipe) -> "Model":
    from tlm.shallow.static import learn
    from tlm.shallow.tfidf import tune

    task, spans = recipe.inputs["task"], recipe.settings.get("spans", ())
    if recipe.step != STATIC:
        return tune(given(task, spans))
    read = _read(recipe.inputs["subset"]) if "subset" in recipe.inputs else ()
    return learn(read, texts_in(task, UNLABELLED), given(task, spans))


def given(task: Artifact, spans: Sequence[str] = ()) -> "Given":
    """What shallow models of a task are fitted to; they look for marks where `spans` names none.

    Raises InputError if there are no training examples.
    """
    from tlm.shallow.linear import Given

    splits, marks = read_splits(task, "train", "dev"), named_marks(spans) if spans else None
    if not splits["train"].texts:
        raise InputError(f"{task.uri} has no training examples; a linear model needs some")
    return Given(splits["train"], splits["dev"], task.details["metric"], classes_of(task), marks)


def _read(subset: Artifact) -> Iterator[str]:
    """The passages of a subset; of more than `MOST_PASSAGES`, as many, evenly spaced."""
    total = subset.details["passages"]
    kept = min(total, MOST_PASSAGES)
    return (text for number, text in enumerate(texts(subset)) if (number + 1) * kept // total > number * kept // total)


def select(arm: str, filters: Filters = Filters(), root: str | None = None) -> tuple[str, str]:
    """Select the text of an arm, as much as BM25 found; train and score a static model of it.

    Args:
        arm: A `Selection`, as a string.
        filters: Those of BM25's subset.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URIs of the subset ("" for task-only), and of the metrics ("" where no word of the texts repeats).
    """
    chosen = Selection.parse(arm)
    subset = chosen.subset(filters, root)
    try:
        return subset, static(chosen.task, subset=subset, seed=chosen.seed, root=root)
    except NothingLeft as error:
        say(f"warning: no static model of {chosen.name}: {error}")
        return subset, ""
