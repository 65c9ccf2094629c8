"""Checks of a report: what may make its scores misleading, each with a code that docs/your-task.md explains."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from tlm.artifacts.artifact import Artifact, follow
from tlm.data.overlap import near_copies
from tlm.data.ranges import HEAD, HEAD_TAIL
from tlm.data.tasks.examples import Key, classes_of, examples, read_splits, texts_of
from tlm.data.tasks.metrics import Split, score
from tlm.data.text import tokens
from tlm.errors import InputError
from tlm.evaluation.labelling import learned, wrong
from tlm.evaluation.pages.blocks import Block, Heading, Items, Line, Span
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.findings import linear_of, score_text
from tlm.evaluation.report.runs import Group, Summary
from tlm.evaluation.score.intervals import Score
from tlm.retrieval.subset.protected import UNCHECKED, unchecked, unprotected
from tlm.training.input.located import MLM_HEAD
from tlm.training.input.texts import Texts
from tlm.training.stages import PUBLISHED_RATE

WARNING, NOTE = "warning", "note"
LEAST_EXAMPLES, LEAST_GROUPS = 100, 30  # of dev and of test
CUT, MUCH = 0.01, 0.1  # share of texts that are cut, and of tokens that are lost
UNCUT = 1 << 30  # tokens
LEAST_OF_CLASS, NAMED = 5, 5  # examples of a class in train or test; rare classes that are named
LEAST_PASSAGES = 100
PREFERS = "prefers models that repeat what they saw"
FEW_COPIES = 0.01  # of a split, in train too: short texts repeat by chance
LEAST_LABELS, MOST_LEARNED = 500, 2_000_000  # labels below which few can be doubted; and labels × classes, for the time
TELLS = 0.9  # correlation of a word with a class, above which it alone tells the class
OFTEN, TEXTS_READ, WORDS_READ = 20, 5000, 200  # training texts with such a word; texts that are read, words of each
LARGE, LEAST_TARGETS = 0.8, 30  # share of the variance of targets that one of them has; targets of a split, at least


class Check(NamedTuple):
    """Something that was found.

    Attributes:
        code: TLM001 and so on.
        severity: `WARNING`: do not rely on the scores before it is understood. `NOTE`: know it when reading them.
        sentence: What was found, with its numbers.
    """

    code: str
    severity: str
    sentence: str


def checks(groups: Sequence[Group], summaries: Sequence[Summary], best: Summary, task: Artifact | None) -> list[Check]:
    """Check the runs of a report and their task, the warnings first.

    Args:
        groups: The groups of the report.
        summaries: Their summaries.
        best: The one that the report recommends.
        task: The task; None if it is gone.
    """
    splits, linear = _splits(task), linear_of(list(summaries))
    found = [
        *_constant(best, task, splits),
        *_unchecked(groups, task),
        *_copies(groups, best, linear),
        *_near_copies(groups, best, linear, splits),
        *_small(groups),
        *_cut(groups),
        *_of_published(groups),
        *_divided(task),
        *_doubted(task),
        *_telling(task, splits),
        *_outlying(task, splits),
        *_rare(task, splits),
        *_hardly_retrieved(groups),
    ]
    return sorted(dict.fromkeys(found), key=lambda check: check.severity != WARNING)


def _splits(task: Artifact | None) -> Mapping[str, Split]:
    """Train, dev and test of the task; none if it is gone, which the report says elsewhere."""
    with suppress(InputError):
        return read_splits(task, "train", "dev", "test") if task is not None else {}
    return {}


def warnings(found: Iterable[dict[str, str]]) -> list[Line]:
    """What to understand before relying on the scores, for the top of a page."""
    return [_said(one, "Warning") for one in found if one["severity"] == WARNING]


def _said(check: dict[str, str], severity: str) -> Line:
    return Span(f"{severity}:", "bold"), f" {check['sentence']} ", Span(check["code"], "code")


def section(found: Iterable[dict[str, str]]) -> Iterator[Block]:
    """The other checks of a page."""
    if lines := tuple(_said(one, "Note") for one in found if one["severity"] == NOTE):
        yield Heading("Checks")
        yield Items(lines)


def _unchecked(groups: Sequence[Group], task: Artifact | None) -> Iterator[Check]:
    """Groups whose passages may hold dev and test texts."""
    for name, subset in ((group.name, run.subset) for group in groups for run in group.runs if run.subset is not None):
        try:
            if unchecked(subset):
                said = f"The passages of {name} were imported without a task, so they were {UNCHECKED}."
                yield Check("TLM001", WARNING, said)
            elif task is not None and (count := unprotected(subset, task)):
                texts = f"{count:,} dev and test texts were not looked for in its passages, which are for another split"
                yield Check("TLM001", WARNING, f"Do not rely on the scores of {name}: {texts}.")
        except InputError:  # what it was made from is gone, which the report says elsewhere
            continue


def _copies(groups: Sequence[Group], best: Summary, linear: Summary | None) -> Iterator[Check]:
    """Texts of test and of dev that are in train, too."""
    test, dev = best["examples"]["test"], best["examples"]["dev"]
    new_test, new_dev = (len(groups[0].on(split, without_copies=True).splits[0].gold) for split in ("test", "dev"))
    if test and not new_test:
        said = f"All {test:,} test texts are in train too, so no score tells how a model does on new texts."
        yield Check("TLM002", WARNING, said)
    if without := best["without_copies"].get("test"):
        copies = test - without["n"]
        said = f"{_some(copies, test, 'test')} in train too, which raises every score."
        left = _have(best, linear, lambda one: one["without_copies"]["test"]["score"])
        yield Check("TLM002", _severity(copies, test), f"{said} Without them, {left}.")
    if copies := dev - new_dev:
        yield Check("TLM002", _severity(copies, dev), f"{_some(copies, dev, 'dev')} in train too, so dev {PREFERS}.")


def _near_copies(
    groups: Sequence[Group], best: Summary, linear: Summary | None, splits: Mapping[str, Split]
) -> Iterator[Check]:
    """Texts of test and of dev that have most of their wording in a text of train."""
    if not splits:
        return
    train, test, dev = (splits[name] for name in ("train", "test", "dev"))
    second = ([*test.pairs, *dev.pairs], train.pairs) if train.pairs and test.pairs and dev.pairs else None
    near = near_copies([*test.texts, *dev.texts], train.texts, second)
    of_test, of_dev = np.split(near, [len(test.gold)])
    by_name = {group.name: group for group in groups}
    for split, copied, effect in (test, of_test, "which can raise every score"), (dev, of_dev, f"so dev {PREFERS}"):
        if count := int((copied & ~split.copied).sum()):
            said = f"{_some(count, len(copied), split.name)} in train with some other words, {effect}."
            if split is test and (new := ~(copied | test.copied)).any():
                left = _have(best, linear, lambda one: by_name[one["name"]].of_test(new))
                said += f" Without any such text, {left}."
            yield Check("TLM002", _severity(count, len(copied)), said)


def _some(count: int, total: int, split: str) -> str:
    return f"{count:,} of the {total:,} {split} texts {'is' if count == 1 else 'are'}"


def _have(best: Summary, linear: Summary | None, score: Callable[[Summary], Score]) -> str:
    """Scores of the best model and of the linear one."""
    also = "" if linear in (None, best) else f" and the linear model {score_text(score(linear))}"
    return f"{best['name']} has {score_text(score(best))}{also}"


def _severity(copies: int, total: int) -> str:
    return WARNING if copies > FEW_COPIES * total else NOTE


def _constant(best: Summary, task: Artifact | None, splits: Mapping[str, Split]) -> Iterator[Check]:
    """A model that is no better on test than the commonest answer of train, given to every text."""
    if task is None or not splits or not (labels := classes_of(task)):
        return
    kinds, counts = np.unique(splits["train"].gold, axis=0, return_counts=True)
    common, gold = kinds[counts.argmax()], splits["test"].gold
    reached = score(task.details["metric"], gold, np.broadcast_to(common, gold.shape))
    if round(best["test"]["mean"] - reached, 9) <= 0:
        named = ", ".join(labels[at] for at in (np.flatnonzero(common) if common.ndim else [common])) or "no label"
        said = f"{best['name']} has {score_text(best['test'])} on test, and always answering {visible(named, 40)}"
        yield Check("TLM015", WARNING, f"{said} would have {100 * reached:.1f}: so far, the model is of no use.")


def _small(groups: Sequence[Group]) -> Iterator[Check]:
    for split, effect in (("dev", "so the choice of a model is partly luck"), ("test", "so intervals are wide")):
        (scored,) = groups[0].on(split).splits
        count = len(scored.gold)
        if count < LEAST_EXAMPLES or scored.groups < LEAST_GROUPS:
            has, better = f"{count:,} examples", f"{LEAST_EXAMPLES}"
            if scored.groups < count:
                has, better = f"{has} in {scored.groups:,} groups", f"{better} in {LEAST_GROUPS} groups"
            yield Check("TLM003", WARNING, f"{split} has {has}, {effect}; {better} or more are better.")


def _cut(groups: Sequence[Group]) -> Iterator[Check]:
    """What a model does not read of each split, once for each vocabulary and length."""
    seen = set()
    for group in groups:
        run = group.runs[0]
        shape = run.checkpoint.manifest.settings.get("model", {}) if run.checkpoint is not None else {}
        length = int(shape.get("max_length", 0))
        tokens = follow(run.model or run.checkpoint, "task_tokens")
        if tokens is None or not length or (tokens.manifest.key, length) in seen:
            continue
        seen.add((tokens.manifest.key, length))
        with suppress(InputError):  # gone, which the report says elsewhere
            yield from _lost(group.name, tokens, length, shape.get("cut", HEAD))


def _lost(name: str, tokens: Artifact, length: int, cut: str) -> Iterator[Check]:
    """The share of texts that a model cuts and of tokens that it loses, by split, if these are many."""
    kept, whole = (Texts.open(tokens, most).lengths for most in (length, UNCUT))
    splits = np.array(examples(tokens.input("data"))["split"].to_pylist())
    rows = {split: splits == split for split in ("train", "dev", "test")}
    texts = {split: np.mean(kept[own] < whole[own]) for split, own in rows.items()}
    lost = {split: 1 - kept[own].sum() / whole[own].sum() for split, own in rows.items()}
    if max(texts.values()) >= CUT:
        shares = ", ".join(f"{split} {100 * texts[split]:.0f} % and {100 * lost[split]:.1f} %" for split in rows)
        said = f"{name} reads at most {length} tokens of a text. Texts that are cut, and tokens lost: {shares}."
        if max(lost.values()) >= MUCH:
            ends = f"model.cut={HEAD_TAIL} reads the ends of texts too, and " if cut == HEAD else ""
            said += f" That is a large part: {ends}a longer model.max_length reads more."
        yield Check("TLM004", NOTE, said)


def _of_published(groups: Sequence[Group]) -> Iterator[Check]:
    """What a published model was trained with that does not suit it."""
    for group in groups:
        run = group.runs[0]
        made_from = run.checkpoint.lineage() if run.checkpoint is not None else ()
        published = next((one for one in made_from if one.manifest.step == "load-model"), None)
        if published is None:
            continue
        if run.checkpoint is not None and run.checkpoint.uri != published.uri and not published.entries(MLM_HEAD):
            lacks = "without a trained head for words, because the published model has none"
            said = f"{group.name} begins stage 1 {lacks}; a model with one starts better."
            yield Check("TLM006", NOTE, said)
        for stage, made in (("train", run.checkpoint), ("finetune", run.model)):
            settings = made.manifest.settings.get(stage, {}) if made is not None else {}
            rate = settings.get("lr", 0)
            if rate > PUBLISHED_RATE and "weights" not in settings:  # a part of the weights takes more
                high = f"{group.name} was trained with {stage}.lr={rate:g}, at which a published model forgets"
                yield Check("TLM007", WARNING, f"{high}; use {PUBLISHED_RATE:g} at most.")


def _divided(task: Artifact | None) -> Iterator[Check]:
    if task is not None and (count := task.counts.get("divided groups", 0)):
        of = f"{count:,} groups are in more than one split"
        yield Check("TLM008", WARNING, f"{of}, so scores may be higher than they would be for new groups.")


def _doubted(task: Artifact | None) -> Iterator[Check]:
    """Labels that a model learns late or never."""
    if task is None or task.details["problem"] != "classification" or task.details["pair"]:
        return
    count = sum(task.counts.get(split, 0) for split in ("train", "dev"))
    if count < LEAST_LABELS or count * len(task.details["labels"]) > MOST_LEARNED:
        return
    with suppress(InputError):  # gone, which the report says elsewhere
        gold, _, means = learned(task)
        if found := len(wrong(means, gold)[0]):
            doubted = f"Labels of train and dev that look wrong: {found:,} of {len(gold):,}"
            yield Check("TLM010", NOTE, f"{doubted}. They may be right; tlm label-errors lists them.")


def _telling(task: Artifact | None, splits: Mapping[str, Split]) -> Iterator[Check]:
    """A word, or two in a row, that alone tells a class, as a field of a template does."""
    if task is None or not splits or not (labels := classes_of(task)):
        return
    train = splits["train"]
    step = -(-len(train.texts) // TEXTS_READ)
    has, words = _words_of_many(islice(texts_of(train), 0, None, step))
    having, total, gold, highest, said = has.sum(axis=0), has.shape[0], train.gold[::step], 0.0, ""
    for place, label in enumerate(labels if words else ()):
        of_label = gold[:, place] if gold.ndim > 1 else gold == place
        size, both = int(of_label.sum()), of_label @ has
        spread = np.sqrt(having * (total - having) * size * (total - size))
        correlation = np.where(both >= OFTEN, both * total - having * size, 0) / np.maximum(spread, 1)
        if correlation[at := int(correlation.argmax())] > highest:
            highest, name = correlation[at], visible(label, 40)
            said = f"'{visible(words[at], 40)}' alone tells the class {name}: {100 * both[at] / having[at]:.0f} % of "
            said += f"the training texts with it are {name}, and {100 * both[at] / size:.0f} % of {name} have it"
    if highest >= TELLS:
        yield Check("TLM013", WARNING, f"{said}; if new texts will not have it before they have a label, remove it.")


def _words_of_many(texts: Iterable[Key]) -> tuple[Any, list[str]]:
    """A sparse table, [texts, words], of the words, and each two in a row, that `OFTEN` texts have; and these words."""
    from scipy.sparse import csr_array

    numbers = defaultdict[str, int]()
    numbers.default_factory = numbers.__len__
    own = [[numbers[word] for word in _words(*text)] for text in texts]
    row, number = np.repeat(np.arange(len(own)), [*map(len, own)]), np.fromiter(chain.from_iterable(own), int)
    has = csr_array((np.ones(len(row)), (row, number)), (len(own), len(numbers)))
    often, names = np.flatnonzero(has.sum(axis=0) >= OFTEN), [*numbers]
    return has[:, often], [names[number] for number in often]


def _words(*texts: str | None) -> dict[str, None]:
    """The words of a text or pair, and each two in a row."""
    parts = [tokens(text)[:WORDS_READ] for text in texts if text]
    return dict.fromkeys(word for part in parts for word in (*part, *map(" ".join, pairwise(part))))


def _outlying(task: Artifact | None, splits: Mapping[str, Split]) -> Iterator[Check]:
    """A target, mistyped perhaps, that has most of the variance of its split."""
    if task is None or task.details["problem"] != "regression":
        return
    for name, split in splits.items():
        if name != "train" and task.details["metric"] == "spearman":  # ranks know no far ones
            continue
        away = np.abs(split.gold - split.gold.mean())
        shares = (away / (away.max() or 1)) ** 2  # of the largest, as squares may be infinite
        if len(shares) >= LEAST_TARGETS and 1 <= shares.sum() < 1 / LARGE:  # 0: all are the same
            one = f"One target of {name}, {split.gold[away.argmax()]:.12g}, has {100 / shares.sum():.0f} % of the"
            decides = "models may learn little else" if name == "train" else "one text decides a correlation"
            yield Check("TLM014", WARNING, f"{one} variance of all {len(shares):,}, so {decides}; is it right?")


def _rare(task: Artifact | None, splits: Mapping[str, Split]) -> Iterator[Check]:
    """Classes with hardly any examples to learn from, or to be scored on."""
    if task is None or not (labels := classes_of(task)):
        return
    counted = ("train", "test") if task.details["metric"] == "macro_f1" else ("train",)  # it counts all classes alike
    for name, split in ((name, splits[name]) for name in counted if splits):
        gold = split.gold  # of several labels a text, a row for each text
        counts = gold.sum(axis=0) if gold.ndim > 1 else np.bincount(gold, minlength=len(labels))
        rare = [place for place in np.argsort(counts, kind="stable").tolist() if counts[place] < LEAST_OF_CLASS]
        if rare and split.texts:
            named = ", ".join(f"{visible(labels[place], 40)} ({counts[place]})" for place in rare[:NAMED])
            named += ", …" if len(rare) > NAMED else ""
            few = f"Fewer than {LEAST_OF_CLASS} examples in {name}: {len(rare):,} of {len(labels):,} classes"
            yield Check("TLM011", NOTE, f"{few}, {named}; label more, or merge classes.")


def _hardly_retrieved(groups: Sequence[Group]) -> Iterator[Check]:
    """Text of few passages, or text in which most queries found none."""
    for subset in {run.subset.uri: run.subset for group in groups for run in group.runs if run.subset}.values():
        hits = follow(subset, "hits")
        counts = hits.counts if hits is not None else {}
        asked, missed = counts.get("queries", 0), counts.get("no hit", 0)  # 0 queries: drawn, or chosen without any
        if asked and (subset.details["passages"] < LEAST_PASSAGES or 2 * missed > asked):
            none = f", and {missed:,} of {asked:,} queries found none" if missed else ""
            found = f"The text of {subset.details['arm']} has {subset.details['passages']:,} passages{none}"
            fit = "use a corpus in the language and field of the task"
            yield Check("TLM012", WARNING, f"{found}, so this run does not say whether retrieved text helps; {fit}.")
