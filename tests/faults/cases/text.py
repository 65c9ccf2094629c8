"""Bad text: what is none, what has none, what is too much of it, what looks like something else."""

from tests.faults.case import Case
from tests.faults.making import lines, objects, table, task
from tlm.data.reading.records import CONVERT
from tlm.retrieval.search.query import MOST_TERMS

CORPUS = "load-corpus c.jsonl"
SEARCH = ("load-corpus c.jsonl", "index {0}", "load-task task", "retrieve {1} {2} --query ")
BAD_BYTE = b'{"text": "good"}\n{"text": "b\xffd"}\n'
WORDS = [f"w{number}" for number in range(MOST_TERMS + 500)]
FAMILY = "👩‍👩‍👧 🇩🇪 👍🏽 1️⃣"
OPERATORS = 'NOT +red -green "apple pie"~2 text:* (tart TO [pear]) \\ / ^2 && || {! } red?'


def search(corpus: list[str], train: list[str], query: str, **expected: object) -> Case:
    """A search of these passages with these training texts."""
    rows = [(text, "ab"[number % 2]) for number, text in enumerate(train)]
    given = {"c.jsonl": lines(*corpus), **task(rows)}
    return Case([*SEARCH[:3], SEARCH[3] + query], given=given, **expected)  # type: ignore[arg-type]


def told(data: bytes | str, expected: object, name: str = "c.jsonl", **more: object) -> Case:
    """A corpus of one file."""
    return Case([f"load-corpus {name}"], expected, {name: data}, **more)  # type: ignore[arg-type]


CASES = {
    "invalid UTF-8 in plain text": told(
        b"good\n\nb\xffd\n", {"rejected": {"invalid UTF-8": 1}}, "c.txt", texts=["good"]
    ),
    "invalid UTF-8 in a header": told(
        b"te\xffxt\na\n",
        f"c.csv:1: invalid UTF-8, byte 0xff at 2 ({CONVERT}); expected the column names with commas",
        "c.csv",
    ),
    "invalid UTF-8 everywhere": told(
        BAD_BYTE[17:] * 30,
        f"c.jsonl:1: invalid UTF-8, byte 0xff at 11 ({CONVERT}); none of the first rows is readable jsonl",
    ),
    "Latin-1 in too many rows": told(
        lines("good").encode() + '{"text": "Zürich"}\n'.encode("latin-1") * 11,
        "11 of 12 rows cannot be used (11 invalid UTF-8), more than 10 and more than 0.1 %, "
        f"the first at c.jsonl:2: invalid UTF-8, byte 0xfc at 11 ({CONVERT}); "
        "fix them or raise max_rejected",
    ),
    "lone surrogates": told(
        '{"text": "\\ud800 a"}\n{"text": "\\ud83d\\ude42"}\n{"text": "a \\udc00"}\n',
        {"documents": 1, "rejected": {"lone surrogate": 2}},
        texts=["🙂"],
    ),
    "a lone surrogate in a field's name": told(
        '{"te\\ud800xt": "a"}\n', "c.jsonl has no field 'text'; it has 'te\\ud800xt'; did you mean 'te\\ud800xt'?"
    ),
    "UTF-16 in JSON lines": told(
        lines("a b").encode("utf-16"),
        "c.jsonl is UTF-16 or UTF-32 text, despite its extension; convert it to UTF-8 text or fix the extension",
    ),
    "UTF-16 in CSV": told(
        table(("text",), ("a",)).encode("utf-16"), "c.csv is UTF-16 or UTF-32 text, despite its extension", "c.csv"
    ),
    "UTF-32 in plain text": told("a b".encode("utf-32"), "c.txt is UTF-16 or UTF-32 text", "c.txt"),
    "UTF-16 without a mark": told(
        "hello world\n\nmore".encode("utf-16-le"),
        "c.txt is UTF-16 text or binary data (many of its bytes are 0), despite its extension",
        "c.txt",
    ),
    "a byte order mark in the middle": told(
        lines("a") + "\ufeff" + lines("b"), {"documents": 1, "rejected": {"invalid JSON": 1}}, texts=["a"]
    ),
    "NUL and control characters": told(
        lines("a\0b\x1b[31m\x07c\x7f\x85d"), {"documents": 1, "rejected": {}}, texts=["a b [31m c d"]
    ),
    "NUL in CSV": told("text,n\na\0b,1\n", {"documents": 1, "rejected": {}}, "c.csv", texts=["a b"]),
    "a raw control character in JSON": told(
        b'{"text": "a"}\n{"text": "a\0b"}\n', {"rejected": {"invalid JSON": 1}}, texts=["a"]
    ),
    "a line of 10 MB": Case(
        [CORPUS],
        {"documents": 1, "passages": 1, "duplicates": 19_999, "rejected": {}},
        {"c.jsonl": lines("word " * 2_000_000)},
    ),
    "white space": told(lines(" \t\n\u00a0\u3000", "", "a"), {"documents": 1, "rejected": {"empty": 2}}, texts=["a"]),
    "nothing but white space": told(
        lines(" ", "\t"),
        "2 of 2 rows cannot be used (2 empty), the first at c.jsonl:1: empty, field 'text' has no text; fix them",
    ),
    "a corpus of punctuation only": search(
        ["?!", "..."], ["red", "?!"], "full", expected={"queries": 2, "hits": 0, "no hit": 1, "empty": 1}
    ),
    "stop words only, by RAKE": search(
        ["of all", "red"], ["of the", "red"], "rake", expected={"queries": 2, "hits": 1, "empty": 1}, hits=[[], [1]]
    ),
    "a token of 1 MB in a corpus": told(
        lines("x" * 1_000_000), {"documents": 1, "passages": 1, "duplicates": 199, "rejected": {}}, texts=["x" * 5000]
    ),
    "a token of 1 MB in a task": search(
        ["red", "x" * 255], ["x" * 1_000_000, "red"], "full", expected={"queries": 2, "hits": 2}, hits=[[1], [0]]
    ),
    "a token of 1 MB, by RAKE": search(
        ["red", "x" * 255], ["x" * 1_000_000, "red"], "rake", expected={"queries": 2, "hits": 2}, hits=[[1], [0]]
    ),
    "more than 1,000 unique terms": search(
        ["w3 w4", "red"],
        [" ".join(WORDS), "red"],
        "full",
        expected={"queries": 2, "cut": 1, "hits": 2},
        hits=[[0], [1]],
        says="1 queries have more than 1000 terms",
    ),
    "Lucene operators are text": search(
        ["red", "pie", "not", "text", "to", "unrelated"],
        [OPERATORS, "red AND unrelated"],
        "full",
        expected={"queries": 2, "hits": 7},
        hits=[[0, 1, 2, 3, 4], [0, 5]],
    ),
    "Chinese is found": search(["我们用模型", "red"], ["模型", "red"], "full", expected={"hits": 2}, hits=[[0], [1]]),
    "twins in NFC and NFD find the same": search(
        ["café", "cafe"], ["cafe\u0301", "x"], "full", expected={"hits": 1, "no hit": 1}, hits=[[0], []]
    ),
    "a letter with half a million accents": told(
        lines("a" + "\u0301\u0327" * 250_000), {"documents": 1, "rejected": {}}
    ),
    "emoji sequences": told(lines(FAMILY), {"documents": 1, "rejected": {}}, texts=[FAMILY]),
    "bidi overrides stay text": told(lines("a \u202ecba\u202c b"), {"documents": 1}, texts=["a \u202ecba\u202c b"]),
    "bidi overrides do not reach the terminal": Case(
        ["load-task task"],
        "task/dev.jsonl:1: label '\\u202etxt.exe' is not in train; correct or remove the row, or "
        "add such texts to train; known are a, b",
        task([("x", "a"), ("y", "b")], dev=[("z", "\u202etxt.exe")]),
    ),
    "escape sequences do not reach the terminal": told(
        objects({"\x1b]0;owned\x07": "a"}), "c.jsonl has no field 'text'; it has '\\x1b]0;owned\\x07'"
    ),
}
