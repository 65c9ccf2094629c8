"""The task: labelled examples in three splits, and the problem they define."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.reading.files import RawFile, raw_files, some
from tlm.data.reading.readers import check
from tlm.data.reading.records import Rejects
from tlm.data.registry import TaskEntry, task_entry
from tlm.data.tasks import labelled
from tlm.data.tasks.examples import LISTS, SCHEMA, SEVERAL, examples
from tlm.data.tasks.labelled import UNLABELLED, Example, read_examples, read_unlabelled
from tlm.data.tasks.metrics import METRICS, POSITIVE, metric_for
from tlm.data.tasks.splits import GROUP, SPLITS, WHOLE, divided, find_leaks, split_files
from tlm.errors import InputError, UnknownField, nearest
from tlm.progress import say
from tlm.settings.options import Fields, Problem

PREFIX = "(?:.*[-_])?"  # chemprot_train.jsonl is train.jsonl


def named_files(entry: TaskEntry, folder: str, found: Sequence[RawFile]) -> dict[str, list[RawFile]]:
    """Return the files by split, found by Hub address or by name in `folder`. Raises InputError: one is missing."""
    if not folder:
        return {split: [file for file in found if file.where == entry.addresses.get(split)] for split in SPLITS}
    for file in found:
        file.header = entry.header
    return split_files(folder, found, {split: f"{PREFIX}(?:{names})" for split, names in entry.files.items()})


def fitting_fields(entry: TaskEntry, files: dict[str, list[RawFile]], given: Fields) -> Fields:
    """Return the first of the task's column sets that its train file has; if it has none of them, the first."""
    known = [replace(given, **columns) for columns in entry.columns]
    for fields in known:
        with suppress(InputError):
            check(files["train"][0], fields.wanted)
            return fields
    return known[0]


def check_problem(problem: Problem) -> None:
    """Raise InputError for a metric or a problem of an unknown name."""
    metric = problem.metric.partition(":")[0]
    for setting, value, known in (("metric", metric, METRICS), ("problem", problem.problem, labelled.PROBLEMS)):
        if value not in known:
            raise InputError(f"unknown {setting} '{value}'{nearest(value, known)}")


VERSION = 5
CLASSES_SHOWN = 10
FAR = 0.5  # of a split's share; farther from it, its size is said


def load_task(
    path: str,
    *,
    fields: Fields = Fields(),
    problem: Problem = Problem(),
    unlabelled: str = "",
    files: str = "",
    dev_share: float = 0.1,
    test_share: float = 0.1,
    seed: int = 0,
    max_rejected: int = 10,
    classes_of: str = "",
    root: str | None = None,
) -> str:
    """Load a labelled task: a folder with train, dev and test files, a single file to be split, or a registered task.

    Labels are classes, or the targets of a regression if all are numbers and some have a fractional part. If only a few
    rows would decide that, or two labels differ in spelling only, the step stops and asks for `problem`. If every label
    is a list, or a separator is named, a text may have several labels, or none. A single file is split at random within
    each label, of several the rarest; equal texts stay together, and so do groups. Dev and test texts that are also
    in train are reported, not removed. The paper's tasks and GLUE are registered by name (paper:scierc, glue:mnli),
    with columns, labels and published metric; the data come from the Hugging Face Hub or from `files`.

    Args:
        path: Folder with train, dev (or valid, validation, val) and test files, several of a split numbered
            (train-1.csv, train-2.csv); or one file to split; or a folder with all.csv (or all-1.csv, all-2.csv), which
            is split, and perhaps train files, which stay in train; also on s3://; or a name such as paper:scierc.
        fields: The fields of the examples.
        problem: What is learned, and how it is scored.
        unlabelled: Files or folder with more texts of the task, without labels. They are searched with and trained on
            as text (a subset's passages are, too). Texts in train, dev or test, and texts that overlap a dev or test
            text as `export` defines it, are left out.
        files: Folder with the files of a registered task, to be used instead of the Hub.
        dev_share: Share of the examples for dev, if there is no dev file.
        test_share: Share of the examples for test, if a single file or all.csv is split.
        seed: Seed of the random split.
        max_rejected: Unusable rows to set aside before the command stops; 0.1 % of all rows are always allowed, but no
            more than a tenth of dev or test.
        classes_of: URI of an earlier task, whose classes and metric this one takes over, so that the models of that
            task can be evaluated on this one. Rows with another label are set aside.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Returns:
        URI of the task: examples (id, text, text_pair, label, target, split), leaks, and the rejected rows.

    Raises:
        InputError: a setting out of range, an unsuitable file, field or label, too many bad rows.
    """
    check_problem(problem)
    for name, share in (("dev_share", dev_share), ("test_share", test_share)):
        if not 0 < share < 1:
            raise InputError(f"{name} is {share}; expected a share between 0 and 1")
    if dev_share + test_share >= 1:
        raise InputError(f"dev_share {dev_share} and test_share {test_share} leave nothing for train; lower them")
    entry = task_entry(path)
    if entry and problem.problem != "auto":
        raise InputError(f"{path} is a {entry.problem}; leave problem at auto")
    if entry and fields.label_separator:
        raise InputError(f"{path} has one label a text; leave label_separator empty")
    if files and entry is None:
        raise InputError(f"{path} is not the name of a task, so files {files} cannot be used; give one of the two")
    earlier = Artifact.open(classes_of, "task").details if classes_of else None
    if earlier and earlier["problem"] != "classification":
        raise InputError(f"{classes_of} has the problem '{earlier['problem']}'; classes_of needs one label a text")
    rejects = Rejects(max_rejected)
    more: AbstractContextManager[Sequence[RawFile]] = raw_files([unlabelled]) if unlabelled else nullcontext([])
    with raw_files(list(entry.addresses.values()) if entry and not files else [files or path]) as found, more as texts:
        by_split = named_files(entry, files, found) if entry else _by_split(path, found)
        if entry and fields == Fields(id_field=fields.id_field, group_field=fields.group_field):
            fields = fitting_fields(entry, by_split, fields)
        for file in chain.from_iterable(by_split.values()):
            _check(file, fields, by_split)
        for file in texts:
            check(file, fields.of_texts, fields.text_field)
        shares = _shares(files or path, by_split, dev_share, test_share)
        settings = {**fields.settings(), "shares": shares, "seed": seed if shares else None}
        settings["name"] = entry.name if entry else _name(path, by_split)
        settings["metric"] = entry.metrics[0] if entry and problem.metric == "auto" else problem.metric
        settings["files"] = [[split, file.name, file.digest()] for split, own in by_split.items() for file in own]
        if problem.problem != "auto":
            settings["problem"] = problem.problem
        if earlier:
            settings |= {"classes": earlier["labels"], "metric": earlier["metric"], "problem": "classification"}
        if entry:
            settings |= {"labels": entry.labels, "ordinals": entry.ordinals, "published": entry.metrics}
        if unlabelled:
            settings["unlabelled"] = [[file.name, file.digest()] for file in texts]
        recipe = Recipe("task", "load-task", VERSION, settings)
        uri = produce(recipe, root, _write, settings, by_split, texts, fields, rejects, entry)
    task = Artifact.open(uri, "task")
    _warn_of_leaks(task)
    _say_problem(task)
    _say_left_out(task)
    return uri


def _check(file: RawFile, fields: Fields, files: Mapping[str, list[RawFile]]) -> None:
    """Check the first rows of a file of a split; raises InputError as `check` does."""
    try:
        check(file, fields.wanted)
    except UnknownField as error:
        if file not in files.get("test", []):
            raise
        check(file, [name for name in fields.wanted if name != fields.label_field])
        mark = "" if str(error).endswith("?") else ";"
        advice = f"if nobody knows its labels, give the path of {files['train'][0].where} alone, which is then split"
        raise InputError(f"{error}{mark} {advice}") from None


def _by_split(path: str, found: Sequence[RawFile]) -> dict[str, list[RawFile]]:
    if len(found) == 1 and PurePosixPath(path).name == PurePosixPath(found[0].where).name:
        return {WHOLE: list(found)}
    return split_files(path, found)


def _shares(path: str, files: dict[str, list[RawFile]], dev_share: float, test_share: float) -> dict[str, float]:
    """Return the shares to draw: dev and test of a single file, dev of a folder without a dev file, else none."""
    if WHOLE in files:
        return {"test": test_share, "dev": dev_share}
    if not files["dev"]:
        say(f"{path} has no dev file: {dev_share:.0%} of the training examples become dev")
        return {"dev": dev_share}
    return {}


def _name(path: str, files: dict[str, list[RawFile]]) -> str:
    """Return the name of the task: that of its file without extensions, or of its folder."""
    if [*files] == [WHOLE]:
        return files[WHOLE][0].stem
    return PurePosixPath(path.rstrip("/")).name if "://" in path else Path(path).resolve().name


def _write(
    draft: Draft,
    settings: dict[str, Any],
    files: dict[str, list[RawFile]],
    texts: Sequence[RawFile],
    fields: Fields,
    rejects: Rejects,
    entry: TaskEntry | None,
) -> None:
    classes: list[str] = settings.get("classes", [])
    numbers = [one for one in map(str, range(len(entry.labels))) if entry.label(one, "") in classes] if entry else []
    found = read_examples(files, fields, rejects, [*classes, *numbers])
    given = Counter(example.split for example in found)
    if entry:
        found = [replace(example, label=entry.label(example.label, example.where)) for example in found]
        entry.compare(given, len({example.label for example in found}))
    asked = entry.problem if entry else settings.get("problem", "auto")
    several = labelled.has_several(found, asked)
    regression = labelled.is_regression(found, fields, asked)
    if settings["shares"]:
        found = divided(found, settings["shares"], settings["seed"], by_label=not regression)
    sizes = Counter(example.split for example in found)
    uses = Counter(label for example in found for label in example.labels)
    _check_splits(found, sizes, fields.group_field)
    labels = classes or ([] if regression else _class_labels(found, entry.order if entry else []))
    metric = _metric(settings["metric"], labels, several)
    leaks = find_leaks(*zip(*((one.split, one.labels, one.text, one.twin) for one in found), strict=True))
    more, left_out = read_unlabelled(texts, fields, rejects, found)
    table = _table([*found, *more], regression, several, grouped=bool(fields.group_field))
    for name, rows in (("examples.parquet", table), ("leaks.parquet", leaks)):
        pq.write_table(rows, draft.folder / name, compression="zstd")
        draft.rows[name] = len(rows)
    draft.counts = {"read": rejects.read, **{split: sizes[split] for split in SPLITS}, "leaks": len(leaks)}
    draft.counts["labels"] = {label: uses[label] for label in labels}
    if several:
        draft.counts["without labels"] = sum(not example.labels for example in found)
    if fields.group_field:
        drawn = given[WHOLE] or given["train"]
        draft.counts["divided groups"] = _warn_of_groups(found, fields.group_field, settings["shares"], drawn)
    if texts:
        draft.counts |= {UNLABELLED: len(more), **left_out}
    rejects.write(draft)
    draft.details = {"name": settings["name"], "labels": labels, "metric": metric, "pair": bool(fields.pair_field)}
    draft.details["problem"] = SEVERAL if several else "regression" if regression else "classification"
    if entry:
        draft.details["metrics"] = list(entry.metrics)


def _check_splits(found: Sequence[Example], sizes: Counter[str], group_field: str) -> None:
    divided = f"groups of '{group_field}', and groups with a text in common, are not divided; give more groups"
    advice = divided if group_field else "give more examples"
    for split in SPLITS:
        if not sizes[split]:
            raise InputError(f"none of the {len(found)} examples is in {split}; {advice} or another share")
    train = {label for example in found if example.split == "train" for label in example.labels}
    if len(train) < 2:
        other = f" other than '{train.pop()}'" if train else ""
        raise InputError(f"no training example has a label{other}; expected at least two labels")


def _warn_of_groups(found: Sequence[Example], group_field: str, shares: Mapping[str, float], drawn: int) -> int:
    """Return how many groups are in more than one split, as a task may have come; warn of them, and of large groups.

    `shares` are those of the `drawn` examples, which were divided.
    """
    for split, share in shares.items():
        size = sum(example.split == split for example in found)
        if abs(size - share * drawn) > FAR * share * drawn:
            why = f"groups of '{group_field}', and groups with equal texts, stay together, and some are large"
            say(f"warning: {split} has {size:,} of {drawn:,} examples, not {share:.0%}: {why}")
    uses = Counter(group for group, _ in {(example.group, example.split) for example in found})
    divided = {group for group, count in uses.items() if count > 1}
    if divided:
        tested = sum(example.split == "test" and example.group in divided for example in found)
        say(
            f"warning: {len(divided):,} of {len(uses):,} groups of '{group_field}' are in more than one split, with "
            f"{tested:,} test examples; scores may be higher than they would be for new groups"
        )
    return len(divided)


def _metric(asked: str, labels: list[str], several: bool) -> str:
    """The metric; ``f1:LABEL`` moves that label to the end of `labels`. Raises InputError if it does not fit."""
    name, _, last = asked.partition(":")
    if last and (name != POSITIVE or last not in labels):
        raise InputError(f"metric '{asked}' does not fit; expected f1:LABEL with one of {some(labels) or 'two'}")
    labels.sort(key=lambda label: label == last)  # the others stay in order
    return metric_for(labels, name, several=several)


def _class_labels(found: Sequence[Example], order: Sequence[str]) -> list[str]:
    """Return the labels of train, in `order` or sorted. Raises InputError if dev or test has another one."""
    known = {label for example in found if example.split == "train" for label in example.labels}
    labels = [label for label in order if label in known] or sorted(known)
    for example in found:
        for label in example.labels:
            if label not in known:
                advice = f"correct or remove the row, or add such texts to train{nearest(label, labels)}"
                raise InputError(f"{example.where}: label '{label}' is not in train; {advice}")
    return labels


def _warn_of_leaks(task: Artifact) -> None:
    """Warn of dev and test texts that are in train too, also where the task is already there."""
    leaks = pq.read_table(task.path("leaks.parquet"), columns=["split"])["split"].to_pylist()
    for split, count in sorted(Counter(leaks).items()):
        listed = "they are listed in leaks.parquet, not removed"
        say(f"warning: {count:,} of {task.counts[split]:,} {split} texts are also in train; {listed}")


def _say_problem(task: Artifact) -> None:
    """Say whether the labels are classes or targets, and which; warn of texts that have several, in several rows."""
    if task.details["problem"] == "regression":
        targets = examples(task)["target"].drop_null().to_pylist()
        say(f"load-task: regression, {len(targets):,} targets from {min(targets):g} to {max(targets):g}")
        return
    if task.details["problem"] != SEVERAL:
        labels = examples(task).group_by(["text", "text_pair"]).aggregate([("label", "count_distinct")])
        if count := sum(number > 1 for number in labels["label_count_distinct"].to_pylist()):
            says = "1 text is" if count == 1 else f"{count:,} texts are"
            say(f"warning: {says} in several rows with different labels; `tlm label-errors` helps to find wrong ones")
    classes = [f"{label} ({task.counts['labels'][label]:,})" for label in task.details["labels"]]
    more = f" and {len(classes) - CLASSES_SHOWN:,} more" if len(classes) > CLASSES_SHOWN else ""
    kind = f"classification, {len(classes):,} classes"
    if task.details["problem"] == SEVERAL:
        kind = f"several labels a text, {len(classes):,} labels; {task.counts['without labels']:,} texts have none"
    if task.details["metric"] == POSITIVE:
        more = f"; the metric is the F1 of {task.details['labels'][-1]} (f1:LABEL chooses another)"
    say(f"load-task: {kind}: {', '.join(classes[:CLASSES_SHOWN])}{more}")
    if task.details["problem"] == SEVERAL and set(pc.list_value_length(examples(task)["label"]).to_pylist()) == {1}:
        say("warning: all texts have one label; if all always do, write labels without lists and separators")


def _say_left_out(task: Artifact) -> None:
    """Say how many texts without labels were left out, by reason."""
    found = [f"{name} {count:,}" for name, count in task.counts.items() if name.startswith(f"{UNLABELLED}, ")]
    if found:
        say(f"load-task: left out: {', '.join(found)}")


def _table(found: Sequence[Example], regression: bool, several: bool, *, grouped: bool) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    for example in found:
        own = example.several if several else example.label or None
        label, target = (None, float(example.label)) if regression and example.label else (own, None)
        rows.append((example.id, example.text, example.pair, label, target, example.split, example.group))
    schema = SCHEMA.set(SCHEMA.get_field_index("label"), pa.field("label", LISTS)) if several else SCHEMA
    table = pa.table(list(zip(*rows, strict=True)), schema=schema)
    return table if grouped else table.drop_columns(GROUP)
