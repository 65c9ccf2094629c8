"""Another task from the same packages: predict how to handle an API error from its documentation.

The text is the documentation of an exception shape. The label is derived from information that is not in the text: the
name of the shape or, if that is not conclusive, its HTTP status. Services of one family (the name up to the first
hyphen: ``bedrock``, ``bedrock-agent``) are in the same split, so that the test split has the wording of other services.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from demo.example import SPLITS, Example, hashed
from demo.services import ApiError, Service
from tlm.data.text import tokens

NAME = "api-errors"
QUESTION = "how should an API error be handled?"
DEV_SHARE, TEST_SHARE = 0.15, 0.2
MAX_WORDS, MIN_WORDS = 60, 3

FIX, NOT_FOUND, CONFLICT = "fix the request", "not found", "conflict"
ACCESS, QUOTA, SERVER = "no access", "over quota", "server fault"

# Tried in this order on the words of the name in lower case, without "exception", "error" or "fault" at the end
NAME_RULES = (
    (NOT_FOUND, r"not found|not exists?\b|n t exist|nonexist|no such|no longer exist|not discovered|^unknown|^gone$"),
    (CONFLICT, r"already|\bexists?$|duplicate|\bin use\b"),
    (FIX, r"(size|length) (limit )?(exceeded|quota)|too (large|long|big|small|short)"),
    (QUOTA, r"quota|throttl|too many|limits? (type )?(exceeded|reached)|limit$|slow down"),
    (QUOTA, r"(throughput|storage) exceeded|(max|maximum|number|rate|requests|active) .*exceeded"),
    (ACCESS, r"denied|unauthori[sz]ed|unauthenticated|not (authori[sz]ed|entitled|permitted)|forbidden|^no access"),
    (ACCESS, r"^(no )?authori[sz]ation|permissions?$|insufficient privileges|credentials|authentication failed"),
    (SERVER, r"internal( (server|service|failure|dependency))?$|server$|service (unavailable|failure)"),
    (SERVER, r"temporarily unavailable|gateway time|bad gateway"),
    (CONFLICT, r"conflict|concurrent|in progress|\bstate( transition)?$|(non?|not) empty|not ready|pending|busy"),
    (CONFLICT, r"idempoten|(parameter|version) mismatch|modification|optimistic|^stale|outdated$|still|locked"),
    (CONFLICT, r"precondition|conditional check|(running|stopping|executing)$|not (active|disabled|complete)$"),
    (FIX, r"invalid|validation|malformed|bad request|missing|\brequired|unsupported|not supported|illegal|incorrect"),
    (FIX, r"mismatch|not valid|unprocessable|inconsistent|syntax|parsing|parameter|argument|out of (range|bounds)"),
    (FIX, r"unrecogni[sz]ed|incompatible|max results|\bsame\b|cannot|empty"),
)
# Only conclusive statuses: many services use 400, 409 or 502 for everything
STATUS_LABELS = {401: ACCESS, 403: ACCESS, 404: NOT_FOUND, 429: QUOTA, 500: SERVER, 503: SERVER, 504: SERVER}

_WORD_IN_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SUFFIX = re.compile(r"( (exception|error|fault))+$")
_STATUS_IN_TEXT = re.compile(
    r"^\d{3} response - "
    r"|\(?\b(?:(?:this error )?(?:returns|gives) )?(?:an )?(?:http )?(?:status|error) code:? (?:of )?\d{3}\b\)?[.:,]?"
    r"|\b(?:this error returns )?(?:an )?http \d{3}(?: status code)?\b\.?",
    re.IGNORECASE,
)
_NAME_IN_TEXT = re.compile(r"\b(?:[A-Z][A-Za-z0-9]*[a-z0-9])(?:Exception|Error|Fault)\b:?")


def labels() -> tuple[str, ...]:
    """The ways to handle an error."""
    return FIX, NOT_FOUND, CONFLICT, ACCESS, QUOTA, SERVER


def label_of(error: ApiError) -> str | None:
    """Return the handling that an error requires, or None if neither name nor status is conclusive."""
    name = _SUFFIX.sub("", " ".join(_WORD_IN_NAME.findall(error.name)).lower())
    for label, pattern in NAME_RULES:
        if re.search(pattern, name):
            return label
    return SERVER if error.fault else STATUS_LABELS.get(error.status or 0)


def text_of(error: ApiError) -> str:
    """Return the first words of the documentation, without exception names and status codes, which tell the label."""
    text = _NAME_IN_TEXT.sub("", _STATUS_IN_TEXT.sub("", error.text))
    for name in {error.name, re.sub(r"(Exception|Error|Fault)+$", "", error.name)}:
        if len(_WORD_IN_NAME.findall(name)) > 1:
            text = re.sub(rf"\b{re.escape(name)}\b", "", text)
    return " ".join(text.split()[:MAX_WORDS])


def split_of(service: str) -> str:
    """Return the split of a service; it depends on the name of its family only (by sha256)."""
    position = hashed(service.partition("-")[0])
    if position < TEST_SHARE:
        return "test"
    return "dev" if position < TEST_SHARE + DEV_SHARE else "train"


def examples(services: Iterable[Service]) -> tuple[dict[str, list[Example]], dict[str, int]]:
    """Return the rows of the task by split, and the number of errors that were left out by reason.

    Each text occurs once: one that several splits have stays in test, else in dev, so that no held-out text is in
    train. A text for which the names give different labels ("Returns information about an error.") is left out.
    """
    found: list[tuple[str, str, Example]] = []  # split and words of the text
    of_text: dict[str, set[str]] = defaultdict(set)  # labels, by the words
    left_out = {"no label": 0, "no text": 0, "labels differ": 0, "same text": 0}
    for service in services:
        for error in service.errors:
            text, label = text_of(error), label_of(error)
            if label is None:
                left_out["no label"] += 1
            elif len(text.split()) < MIN_WORDS:
                left_out["no text"] += 1
            else:
                words = " ".join(tokens(text))
                of_text[words].add(label)
                example = Example(f"{service.name}/{error.name}", text, label, service.name)
                found.append((split_of(service.name), words, example))
    rows: dict[str, list[Example]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for split, words, example in sorted(found, key=lambda row: -SPLITS.index(row[0])):
        if len(of_text[words]) > 1:
            left_out["labels differ"] += 1
        elif words in seen:
            left_out["same text"] += 1
        else:
            seen.add(words)
            rows[split].append(example)
    return rows, left_out
