"""Bad settings: out of range, unknown, misspelt."""

from tests.faults.case import Case
from tests.faults.making import lines, task

GIVEN = {"c.jsonl": lines("red", "green", "red green"), **task([("red", "a"), ("green", "b")])}
INDEX = ["load-corpus c.jsonl", "index {0}", "load-task task"]


def given(*commands: str, expected: object, **more: object) -> Case:
    """Commands over a small corpus and task."""
    return Case(commands, expected, GIVEN, **more)  # type: ignore[arg-type]


def retrieve(options: str, expected: object, **more: object) -> Case:
    """A search with these options."""
    return given(*INDEX, f"retrieve {{1}} {{2}} {options}", expected=expected, **more)


def index(options: str, expected: str) -> Case:
    """An index with these options."""
    return given(INDEX[0], f"index {{0}} {options}", expected=expected)


CASES = {
    "K is 0": retrieve("--top-k 0", "top_k is 0; expected 1 to 10000 passages per query"),
    "K is more than a server gives": retrieve("--top-k 10001", "top_k is 10001; expected 1 to 10000"),
    "K is more than there are": retrieve("--top-k 9", {"hits": 4}),
    "K is no number": retrieve("--top-k many", "Invalid value for '--top-k'"),
    "an unknown key": given(
        "show pocket --set train.rho3=1", expected="setting 'train.rho3' is unknown; did you mean 'train.rho2'?"
    ),
    "a preset out of its range": given(
        "load-task task",
        "train {0} --tokenizer root/tokenizer/none --set train.steps=0",
        expected="setting train.steps=0 cannot be: expected greater than 0",
    ),
    "fewer runs than none": given("gc --keep-runs -1", expected="keep_runs is -1; expected 0 or more"),
    "an unknown command": given("load-corpsu c.jsonl", expected="No such command 'load-corpsu'"),
    "an unknown option": given("load-corpus c.jsonl --txt-field a", expected="No such option: --txt-field"),
    "an unknown metric": given(
        "load-task task --metric macrof1", expected="unknown metric 'macrof1'; did you mean 'macro_f1'?"
    ),
    "an unknown arm": retrieve("--arm bm52", "'bm52' is not one of 'bm25', 'random'"),
    "an index name with capitals": index(
        "--name 'My Index'", "name 'My Index' is no index name; expected at most 100 of a-z, 0-9, '.', '_' and"
    ),
    "an index name that is too long": index(f"--name {'x' * 101}", "is no index name"),
    "an unknown engine": index("--engine lucene", "'lucene' is not one of 'embedded', 'elasticsearch'"),
    "k1 is NaN": index("--k1 nan", "k1 is nan; expected 0 or more"),
    "b is above 1": index("--b 1.5", "b is 1.5; expected 0 to 1"),
    "fewer than no rejected rows": given(
        "load-corpus c.jsonl --max-rejected -1", expected="max_rejected is -1; expected 0 or more"
    ),
    "a share that is NaN": given(
        "load-task task --dev-share nan", expected="dev_share is nan; expected a share between 0 and 1"
    ),
    "shares that leave nothing": given(
        "load-task task --dev-share 0.5 --test-share 0.5", expected="leave nothing for train; lower them"
    ),
    "a negative seed of random passages": given(
        *INDEX,
        "retrieve {1} {2}",
        "export {3} --min-words 1",
        "retrieve {1} {2} --arm random --same-size-as {4} --seed -1",
        expected="seed is -1; expected 0 or more",
    ),
    "a root of an unknown scheme": given(
        "load-corpus c.jsonl --root ftp://x", expected="root 'ftp://x': scheme 'ftp' is not known"
    ),
    "a URI that is none": given(
        "index nonsense", expected="'nonsense' is no artifact URI; expected <root>/<kind>/<key>"
    ),
    "an artifact of another kind": given(INDEX[0], "export {0}", expected="is a corpus; expected hits"),
}
