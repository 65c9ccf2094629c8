"""The task: labelled examples in three splits, and what kind of problem they make."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.reading.files import RawFile, raw_files
from tlm.data.reading.readers import check
from tlm.data.reading.records import Rejects
from tlm.data.registry import TaskEntry, task_entry
from tlm.data.tasks.doubts import check_problem, is_regression
from tlm.data.tasks.groups import COLUMN as GROUP
from tlm.data.tasks.labelled import Example, Fields, divided, read_examples
from tlm.data.tasks.labels import check_metric, metric_for
from tlm.data.tasks.leaks import find_leaks, write_leaks
from tlm.data.tasks.registered import as_published, fitting_fields, named_files
from tlm.data.tasks.splits import SPLITS, split_files
from tlm.errors import InputError, nearest
from tlm.progress import say

VERSION = 1
CLASSES_SHOWN = 10
WHOLE = "all"  # the one file that is to be split


def load_task(
    path: str,
    *,
    text_field: str = "text",
    pair_field: str = "",
    label_field: str = "label",
    id_field: str = "",
    group_field: str = "",
    metric: str = "auto",
    problem: str = "auto",
    files: str = "",
    dev_share: float = 0.1,
    test_share: float = 0.1,
    seed: int = 0,
    max_rejected: int = 10,
    root: str | None = None,
) -> str:
    """Load a labelled task: a folder with train, dev and test files, one file to be split, or a task by its name.

    Labels are classes, or targets of a regression if all of them are numbers and some have a fractional part; where a
    few rows would decide that, or two labels differ in spelling only, the step stops and asks for `problem`. A file is
    split by the seed, label by label, and equal texts stay together. Dev and test texts that are in train too are
    reported, not removed. The paper's tasks and GLUE's have names (paper:scierc, glue:mnli) which stand for their data
    on the Hugging Face Hub, or in `files`, with their columns, labels and published metric.

    Args:
        path: Folder with train, dev (or valid, validation, val) and test files, or one file; also on s3://; or a name.
        text_field: Field or column with the text.
        pair_field: Field with the second text of a pair; none where examples are single texts.
        label_field: Field with the label.
        id_field: Field with an example's id; none makes it <file name>:<line>.
        group_field: Field that examples share which are not independent (an author, a document), for the intervals of
            scores; none: texts that are equal but for case, punctuation and span marks.
        metric: auto, macro_f1, micro_f1, accuracy, matthews, f1 (two classes); for regression auto, pearson, spearman.
        problem: classification, regression, or auto: as the labels are.
        files: Folder with the files of a task that is given by its name, where they should not come from the Hub.
        dev_share: Share of the examples for dev, where there is no dev file.
        test_share: Share of the examples for test, where one file is split.
        seed: Draws the split, where there is one to draw.
        max_rejected: Rows that may be unusable (set aside with a reason) before the step stops; 0.1 % may always, but
            of dev and test no more than a tenth.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Returns:
        URI of the task: examples (id, text, text_pair, label, target, split), leaks, and the rejected rows.

    Raises:
        InputError: a setting out of range, a file, field or label that does not fit, too many bad rows.
    """
    check_metric(metric)
    check_problem(problem)
    _check_shares(dev_share, test_share)
    entry = task_entry(path)
    if entry and problem != "auto":
        known = "regression" if entry.regression else "classification"
        raise InputError(f"{path} is a {known}; leave problem at auto")
    if label_field in (text_field, pair_field):
        same = "text_field" if label_field == text_field else "pair_field"
        raise InputError(f"{same} and label_field are both '{label_field}'; give each its own field")
    if files and entry is None:
        raise InputError(f"{path} is not the name of a task, so files {files} cannot be its; give one of the two")
    fields = Fields(text_field, pair_field, label_field, id_field, group_field)
    rejects = Rejects(max_rejected)
    with raw_files(_places(path, files, entry)) as found:
        by_split = named_files(entry, files, found) if entry else _by_split(path, found)
        if entry and fields == Fields("text", "", "label", id_field, group_field):
            fields = replace(fitting_fields(entry, by_split, id_field), group_field=group_field)
        for file in chain.from_iterable(by_split.values()):
            check(file, fields.wanted)
        shares = _shares(files or path, by_split, dev_share, test_share)
        settings = {
            **vars(fields),
            "name": entry.name if entry else _name(path, by_split),
            "metric": entry.metrics[0] if entry and metric == "auto" else metric,
            "shares": shares,
            "seed": seed if shares else None,
            "files": [[split, file.name, file.digest()] for split, own in by_split.items() for file in own],
        }
        if problem != "auto":
            settings["problem"] = problem
        if entry:
            settings |= {"labels": entry.labels, "ordinals": entry.ordinals, "published": entry.metrics}
        recipe = Recipe("task", "load-task", VERSION, settings)
        uri = produce(recipe, root, lambda draft: _write(draft, settings, by_split, fields, rejects, entry))
    _say_problem(Artifact.open(uri, "task"))
    return uri


def examples(task: Artifact) -> pa.Table:
    """The labelled examples: columns id, text, text_pair, label, target, split; the row ordinal names the example.

    Ordered train, dev, test. `text_pair` is null without pairs, `label` for regression, `target` for classes. Where
    the task names a field for groups there is a column `group` (`tlm.data.tasks.groups`).
    """
    return pq.ParquetFile(task.path("examples.parquet")).read()


def _check_shares(dev_share: float, test_share: float) -> None:
    for name, share in (("dev_share", dev_share), ("test_share", test_share)):
        if not 0 < share < 1:
            raise InputError(f"{name} is {share}; expected a share between 0 and 1")
    if dev_share + test_share >= 1:
        raise InputError(f"dev_share {dev_share} and test_share {test_share} leave nothing for train; lower them")


def _places(path: str, files: str, entry: TaskEntry | None) -> list[str]:
    return [files or path] if files or entry is None else list(entry.addresses.values())


def _by_split(path: str, found: Sequence[RawFile]) -> dict[str, list[RawFile]]:
    if len(found) == 1 and PurePosixPath(path).name == PurePosixPath(found[0].where).name:
        return {WHOLE: list(found)}
    return split_files(path, found)


def _shares(path: str, files: dict[str, list[RawFile]], dev_share: float, test_share: float) -> dict[str, float]:
    """The shares to draw: of one file dev and test, of a folder without a dev file dev, else none."""
    if WHOLE in files:
        return {"test": test_share, "dev": dev_share}
    if not files["dev"]:
        say(f"{path} has no dev file: {dev_share:.0%} of the training examples become dev")
        return {"dev": dev_share}
    return {}


def _name(path: str, files: dict[str, list[RawFile]]) -> str:
    """What the task is called: its file's name without extensions, or its folder's."""
    if WHOLE in files:
        return files[WHOLE][0].stem
    return PurePosixPath(path.rstrip("/")).name if "://" in path else Path(path).resolve().name


def _write(
    draft: Draft,
    settings: dict[str, Any],
    files: dict[str, list[RawFile]],
    fields: Fields,
    rejects: Rejects,
    entry: TaskEntry | None,
) -> None:
    rows, found = read_examples(files, fields, rejects)
    if entry:
        found = as_published(entry, found)
        regression = entry.regression
    else:
        regression = is_regression(found, fields, settings.get("problem", "auto"))
    problem = "regression" if regression else "classification"
    if settings["shares"]:
        found = divided(found, settings["shares"], settings["seed"], by_label=not regression)
    _check_splits(found)
    labels = [] if regression else _class_labels(found, entry.order if entry else [])
    metric = metric_for(labels, settings["metric"])
    leaks = find_leaks(found)
    _warn_of(leaks, found)
    pq.write_table(
        _table(found, problem, grouped=bool(fields.group_field)), draft.folder / "examples.parquet", compression="zstd"
    )
    write_leaks(leaks, found, draft.folder / "leaks.parquet")
    draft.rows = {
        "examples.parquet": len(found),
        "leaks.parquet": len(leaks),
        "rejected.parquet": rejects.write(draft.folder / "rejected.parquet"),
    }
    sizes, uses = Counter(example.split for example in found), Counter(example.label for example in found)
    draft.counts = {
        "read": rows,
        **{split: sizes[split] for split in SPLITS},
        "labels": {label: uses[label] for label in labels},
        "leaks": len(leaks),
        "rejected": rejects.by_reason(),
    }
    draft.details = {
        "name": settings["name"],
        "problem": problem,
        "labels": labels,
        "metric": metric,
        "pair": bool(fields.pair_field),
    }
    if entry:
        draft.details["metrics"] = list(entry.metrics)


def _check_splits(found: Sequence[Example]) -> None:
    sizes = Counter(example.split for example in found)
    for split in SPLITS:
        if not sizes[split]:
            raise InputError(f"of {len(found)} examples none is left for {split}; give more examples or another share")
    train = {example.label for example in found if example.split == "train"}
    if len(train) == 1:
        raise InputError(f"all training examples have the label '{train.pop()}'; expected at least two labels")


def _class_labels(found: Sequence[Example], order: Sequence[str]) -> list[str]:
    """The labels of train, in `order` if there is one, or sorted. Raises InputError if dev or test has another."""
    known = {example.label for example in found if example.split == "train"}
    labels = [label for label in order if label in known] or sorted(known)
    for example in found:
        if example.label not in known:
            hint = nearest(example.label, labels)
            raise InputError(f"{example.where}: label '{example.label}' is not in train{hint}")
    return labels


def _say_problem(task: Artifact) -> None:
    """Say what the labels were taken for."""
    if task.details["problem"] == "regression":
        targets = examples(task)["target"].to_pylist()
        say(f"load-task: regression, {len(targets):,} targets from {min(targets):g} to {max(targets):g}")
        return
    classes = [f"{label} {task.counts['labels'][label]:,}" for label in task.details["labels"]]
    more = f" and {len(classes) - CLASSES_SHOWN:,} more" if len(classes) > CLASSES_SHOWN else ""
    say(f"load-task: classification, {len(classes):,} classes: {', '.join(classes[:CLASSES_SHOWN])}{more}")


def _warn_of(leaks: Sequence[tuple[int, int]], found: Sequence[Example]) -> None:
    by_split = Counter(found[ordinal].split for ordinal, _ in leaks)
    for split, count in sorted(by_split.items()):
        total = sum(example.split == split for example in found)
        say(
            f"warning: {count} of {total} {split} texts are in train too; they are listed in leaks.parquet, not removed"
        )


def _table(found: Sequence[Example], problem: str, *, grouped: bool) -> pa.Table:
    classes = problem == "classification"
    table = pa.table(
        {
            "id": pa.array([example.id for example in found], pa.string()),
            "text": pa.array([example.text for example in found], pa.string()),
            "text_pair": pa.array([example.pair for example in found], pa.string()),
            "label": pa.array([example.label if classes else None for example in found], pa.string()),
            "target": pa.array([None if classes else float(example.label) for example in found], pa.float64()),
            "split": pa.array([example.split for example in found], pa.string()),
        }
    )
    return table.append_column(GROUP, pa.array([example.group for example in found])) if grouped else table
