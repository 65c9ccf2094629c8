"""Bad records: labels, ids, and what stands where it should not."""

from tests.faults.case import Case
from tests.faults.making import lines, objects, parquet, table, task

TASK = ["load-task task"]
GOOD = [("red apple", "a"), ("old oak", "b"), ("ripe pear", "a"), ("tall fir", "b")]
IDS = [("red", "a", "../../etc/passwd"), ("old", "b", "one\ntwo"), ("ripe", "a", "same"), ("tall", "b", "same")]
NASTY = ["a/b", "../../x", "\"q'", "l\nb", "=1+1", "<script>"]
LONG = " ".join(f"word{number}" for number in range(12))


def labelled(*labels: object, expected: object, **more: object) -> Case:
    """Good training examples, and one for each of these labels."""
    train = [*GOOD, *((f"text {number}", label) for number, label in enumerate(labels))]
    return Case(TASK, expected, task(train), **more)  # type: ignore[arg-type]


CASES = {
    "a missing label": Case(TASK, {"train": 4, "rejected": {"missing field": 1}}, task([*GOOD, ("x",)])),
    "no label at all": Case(TASK, "task/train.jsonl has no field 'label'; it has 'text'", task([("x",), ("y",)])),
    "null and empty labels": labelled(None, "", expected={"train": 4, "rejected": {"null": 1, "empty": 1}}),
    "labels that are NaN": labelled(float("nan"), "NaN", "nan", expected={"train": 4, "rejected": {"NaN": 3}}),
    "labels beyond all numbers": labelled(
        float("inf"), "1e101", "-1e400", 10**400, expected={"train": 4, "rejected": {"too large": 4}}
    ),
    "a target that is too large": Case(
        TASK,
        {"train": 3, "labels": {}, "rejected": {"too large": 1}},
        task([("x", 1.5), ("y", 2.5), ("z", 3.5), ("w", "1e160")], [("v", 1.5)], [("u", 2.0)]),
    ),
    "NaN labels in parquet": Case(
        TASK,
        {"train": 2, "rejected": {"NaN": 1, "null": 1}},
        {
            **task(GOOD, [("v", 1.5)], [("u", 2.0)]),
            "task/train.jsonl": lambda path: path.with_name("train.parquet").write_bytes(
                parquet({"text": list("abcd"), "label": [1.5, float("nan"), None, 2.5]})
            ),
        },
    ),
    "whole floats are classes": Case(
        TASK, {"labels": {"1.0": 2, "2.0": 2}}, task([("x", 1.0), ("y", 2.0)], [("v", 1.0)], [("u", 2.0)])
    ),
    "labels that are objects": labelled({"a": 1}, expected={"train": 4, "rejected": {"not a label": 1}}),
    "a label that train does not have": Case(
        TASK,
        "task/test.jsonl:1: label 'fruits' is not in train; correct or remove the row, or add such texts to train; "
        "did you mean 'fruit'?",
        task([("x", "fruit"), ("y", "tree")], [("z", "tree")], [("w", "fruits")]),
    ),
    "a single class": Case(
        TASK,
        "no training example has a label other than 'a'; expected at least two labels",
        task([("x", "a"), ("y", "a")]),
    ),
    "one example a class": Case(TASK, {"train": 2, "dev": 1, "test": 2}, task([("x", "a"), ("y", "b")])),
    "one example a class to be split": Case(
        ["load-task all.csv"],
        "none of the 5 examples is in dev; give more examples or another share",
        {"all.csv": table(("text", "label"), *((f"t{number}", number) for number in range(5)))},
    ),
    "labels with slashes, quotes, line breaks, a leading =": labelled(
        *NASTY,
        expected={
            "labels": {"../../x": 1, "\"q'": 1, "<script>": 1, "=1+1": 1, "a": 4, "a/b": 1, "b": 3, "l b": 1},
            "rejected": {},
        },
    ),
    "duplicate and odd ids are text": Case(
        ["load-task task --id-field id"],
        {"train": 4, "rejected": {}},
        task(IDS, [("blue", "a", 1)], [("x", "a", "../.."), ("y", "b", "../..")]),
    ),
    "ids that are none": Case(
        ["load-task task --id-field id"],
        {"train": 2, "rejected": {"not a string": 2, "null": 1}},
        task(
            [("x", "a", 1.5), ("y", "b", None), ("z", "b", ["1"]), ("w", "a", "1"), ("v", "b", "2")],
            [("d", "a", 2)],
            [("e", "a", 3)],
        ),
    ),
    "text that is deeply nested": Case(
        ["load-corpus c.jsonl"],
        {"documents": 1, "rejected": {"invalid JSON": 1, "not a string": 1}},
        {"c.jsonl": lines("a") + '{"text": ' + "[" * 100_000 + '\n{"text": ' + "[" * 900 + "]" * 900 + "}\n"},
    ),
    "a rank beyond all numbers": Case(
        ["import-subset s.jsonl"],
        {"kept": 1, "rejected": {"rank too large": 1}},
        {"s.jsonl": objects({"text": LONG, "rank": 0}, {"text": f"not {LONG}", "rank": 10**30})},
        texts=[LONG],
    ),
}
