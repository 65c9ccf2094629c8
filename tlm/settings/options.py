"""Settings that several steps share: a dataclass for each concern describes, defaults and checks each setting once.

Steps take these dataclasses as arguments. The command line and the form of a pipeline know single values only: there,
`tlm.cli.command.flat` replaces each dataclass by its fields.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import inf
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from tlm.errors import InputError

MIN_TOKENS = 3  # of an n-gram: a text of one or two ("yes", "very good") would remove every passage that has it
MIN_CHARACTERS = 8  # of a text, where a word may be one letter: "太好了" would do the same
LARGEST = 2**63 - 1  # what libraries take
FINE: Final = "fine"  # marks a setting that the form of a pipeline leaves out
LATER = ("license_field", "label_separator")  # settings that came after the first keys, which stand for empty ones


class Range(NamedTuple):
    """The numbers that a setting may be.

    Attributes:
        expected: The same in words, for the error.
        least: The smallest.
        most: The largest.
        above: What all of them exceed.
    """

    expected: str
    least: float = -inf
    most: float = inf
    above: float = -inf

    def check(self, name: str, value: float) -> None:
        """Raise InputError for another number."""
        if not (self.least <= value <= self.most and value > self.above):
            raise InputError(f"{name} is {value}; expected {self.expected}")
        if LARGEST < abs(value) < inf:
            raise InputError(f"{name} is {value}; expected {self.expected}, and less than 2**63")


NOT_NEGATIVE = Range("0 or more", 0)
POSITIVE = Range("1 or more", 1)
PROBABILITY = Range("a probability from 0 to 1", 0, 1)
Price = Annotated[float, Range("a number, 0 or more", 0, most=sys.float_info.max)]
Share = Annotated[float, Range("a share above 0 and up to 1", above=0, most=1), FINE]


def names_in(*settings: str) -> list[str]:
    """The names in settings that may each name several fields, such as 'title,body': their texts are read as one."""
    # a single name may end with a space
    parts = (map(str.strip, each.split(",")) if "," in each else [each] for each in settings)
    return [name for names in parts for name in names if name]


def check_apart(**settings: str) -> None:
    """Raise InputError for a field that two of these settings name."""
    for (one, fields), (other, others) in combinations(settings.items(), 2):
        if same := [name for name in names_in(fields) if name in names_in(others)]:
            raise InputError(f"{one} and {other} are both '{same[0]}'; expected different fields")


def value_in(values: Mapping[str, Any], field: str) -> Any:
    """The value of such a field in a row: of several, their texts one below the other, without empty ones."""
    names = names_in(field)
    if len(names) == 1:
        return values.get(names[0])
    found: list[Any] = [values[name] for name in names if values.get(name) not in (None, "")]
    others = [value for value in found if not isinstance(value, str)]
    return others[0] if others else "\n".join(found)


@dataclass(frozen=True)
class Options:
    """Settings of one concern. A number that is out of its range is an InputError."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            for limits in getattr(hint, "__metadata__", ()):
                if isinstance(limits, Range):
                    limits.check(name, getattr(self, name))

    def settings(self) -> dict[str, Any]:
        """The settings that enter a key: those of `LATER` only if they are set, so that older keys stay valid."""
        return {name: value for name, value in vars(self).items() if value or name not in LATER}


@dataclass(frozen=True)
class Layout(Options):
    """The fields of documents, and the size of passages.

    Attributes:
        text_field: Field or column with the text (ignored for txt, where paragraphs are documents); several, such as
            title,body, are joined.
        id_field: Field with the document id; default <file name>:<line>. The nth passage's id ends in #n.
        source_field: Field that names the source of a document; default the file name.
        license_field: Field that names the licence of a document, which `tlm provenance` lists; a document may lack it.
        words: Words per passage; a remainder of less than a tenth of that is joined to the previous passage.
        overlap: Words that a passage shares with the next one of the same document.
    """

    text_field: str = "text"
    id_field: str = ""
    source_field: str = ""
    license_field: str = ""
    words: Annotated[int, Range("1 or more words per passage", 1)] = 100
    overlap: Annotated[int, FINE] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not names_in(self.text_field):
            raise InputError("text_field is empty; give the name of the field with the text")
        Range(f"0 to {self.words - 1}, less than words", 0, self.words - 1).check("overlap", self.overlap)

    @property
    def fields(self) -> list[str]:
        """The fields needed of each row, the text's first."""
        others = (self.id_field, self.source_field, self.license_field)
        return [*names_in(self.text_field), *filter(None, others)]


@dataclass(frozen=True)
class Fields(Options):
    """The fields of a labelled example; empty if it has no such field.

    Attributes:
        text_field: Field or column with the text; several, such as subject,body, are joined.
        pair_field: Field with the second text of a pair; empty if examples are single texts.
        label_field: Field with the label, the number for regression, or a list of labels (in jsonl and parquet).
        label_separator: What separates the labels of a text in that field, such as ; in a csv: a text may then have
            several labels, or none. Empty: one label a text, except where the field holds lists.
        id_field: Field with the example id; default <file name>:<line>.
        group_field: Field that dependent examples share (an author, a document). A random split keeps each group
            together, and confidence intervals resample whole groups; by default, texts that are equal except for
            case, punctuation and span marks form a group.
    """

    text_field: str = "text"
    pair_field: str = ""
    label_field: str = "label"
    label_separator: str = ""
    id_field: Annotated[str, FINE] = ""
    group_field: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("text_field", "label_field"):
            if not names_in(getattr(self, name)):
                raise InputError(f"{name} is empty; give the name of the field")
        check_apart(text_field=self.text_field, pair_field=self.pair_field, label_field=self.label_field)

    @property
    def wanted(self) -> list[str]:
        """The fields needed of each row, the text's first."""
        return [*self.of_texts, *filter(None, (self.label_field, self.id_field, self.group_field))]

    @property
    def of_texts(self) -> list[str]:
        """The fields needed of a row without a label."""
        return names_in(self.text_field, self.pair_field)


@dataclass(frozen=True)
class Problem(Options):
    """The problem to learn, and its metric.

    Attributes:
        metric: auto, macro_f1, micro_f1, accuracy, matthews, f1 (of two classes, the last in alphabetical
            order) or f1:LABEL; for regression auto, pearson, spearman; for several labels a text auto, micro_f1,
            macro_f1, example_f1, exact_match.
        problem: classification, regression, or auto: decided by the labels.
    """

    metric: str = "auto"
    problem: str = "auto"


@dataclass(frozen=True)
class Filters(Options):
    """The passages that a subset leaves out.

    Attributes:
        near_duplicates: Remove passages that nearly repeat a better one (by best rank, then score, then document).
        overlap: Remove passages that overlap dev or test texts of the task.
        jaccard: Near-duplicates have at least this Jaccard similarity of their sets of word 5-grams.
        overlap_share: A passage overlaps a text if it has at least this share of the text's n-grams.
        passage_share: A passage also overlaps a long text that has at least this share of the passage's n-grams.
        ngram: Words in an n-gram, for overlap. A shorter text or passage (3 words or more) overlaps if it occurs whole.
        min_words: Remove passages with fewer words; 0 keeps all.
    """

    near_duplicates: bool = True
    overlap: bool = True
    jaccard: Share = 0.8
    overlap_share: Share = 0.3
    passage_share: Share = 0.5
    ngram: Annotated[
        int, Range(f"{MIN_TOKENS} to 1000: shorter runs of words are in every text", MIN_TOKENS, 1000), FINE
    ] = 8
    min_words: Annotated[int, Range("0 (keep all) or more", 0), FINE] = 5

    def settings(self) -> dict[str, float | None]:
        """The settings that decide the subset; None for those of a filter that is off."""
        on = {"min_words": True, "jaccard": self.near_duplicates}
        on |= dict.fromkeys(("overlap_share", "passage_share", "ngram"), self.overlap)
        return {name: getattr(self, name) if is_on else None for name, is_on in on.items()}


@dataclass(frozen=True)
class Prices(Options):
    """Prices and emissions, to compute money (in any currency) and CO2 equivalents; 0 if not given.

    Attributes:
        gpu_hour: Price of an hour of a GPU, in any currency; with a price, the report says what training cost in money.
        cpu_hour: Price of an hour of a CPU core, for work without a GPU.
        kilowatt_hour: Price of a kilowatt-hour, for machines that measure energy.
        grams_per_kwh: Grams of CO2 equivalents of a kilowatt-hour from your grid, for machines that measure energy.
    """

    gpu_hour: Price = 0.0
    cpu_hour: Price = 0.0
    kilowatt_hour: Price = 0.0
    grams_per_kwh: Price = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in vars(self).items():
            object.__setattr__(self, name, float(value))  # 3 and 3.0 are the same in a key


@dataclass(frozen=True)
class Compute(Options):
    """The device to train on, and how often the state of the training is saved.

    Attributes:
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.
        save_steps: Steps from one saved state to the next; 0: not by steps.
        save_minutes: Minutes from one saved state to the next, the first after one minute; 0: not by time.
        gpus: GPUs of this machine to train on; an error if it has fewer. Small batches use fewer: each GPU takes 32
            rows or more. 0: the CPU; -1: all of them, or the CPU.
    """

    device: str = "auto"
    save_steps: Annotated[int, NOT_NEGATIVE] = 0
    save_minutes: Annotated[float, NOT_NEGATIVE] = 5.0
    gpus: Annotated[int, Range("the number of GPUs, 0 for the CPU or -1 for all", -1)] = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gpus == 0 and self.device not in ("auto", "cpu"):
            raise InputError(f"gpus is 0, which is the CPU, and device {self.device}; give one of the two")

    @property
    def place(self) -> str:
        """The device to compute on: without GPUs, the CPU."""
        return self.device if self.gpus else "cpu"


@dataclass(frozen=True)
class Pods(Options):
    """Resources of the pods that train, as Kubernetes writes quantities (500m, 16Gi).

    Numbers are strings, because KFP's driver accepts nothing else there.

    Attributes:
        cpu: CPU limit of a training pod, 1 or more, and 2 or more for each GPU.
        gpu_type: Kubernetes resource name of the GPUs.
        gpus: GPUs of each training pod; 0 for CPU. Each takes 32 rows of a batch or more; evaluation takes one GPU.
        memory: Memory limit of a pod of train, finetune and evaluate, 2Gi or more, and 8Gi or more for each GPU.
        node_selector: Labels of the nodes to train on, as a JSON object.
        tolerations: Taints that training pods tolerate, as a JSON list of Kubernetes tolerations.
    """

    cpu: str = "4"
    gpu_type: str = "nvidia.com/gpu"
    gpus: str = "0"
    memory: str = "16Gi"
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)


THREADS = "TLM_THREADS"


def given_threads() -> int | None:
    """Return the number of threads that ``TLM_THREADS`` asks for; None if it is not set.

    Raises:
        InputError: it is not a number of threads.
    """
    given = os.environ.get(THREADS)
    if not given:
        return None
    if given.isdecimal() and int(given) > 0:
        return int(given)
    raise InputError(f"{THREADS} is '{given}'; expected the number of CPU threads")


def cores() -> int:
    """Count the cores that this process may use: the machine's, within the container's CPU limit (rounded up)."""
    from joblib import cpu_count  # a sixth of a second, which only those pay who compute

    return int(cpu_count())
