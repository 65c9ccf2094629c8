"""Blocks of pages: headings, sentences, tables, figures. A page is described once; `render` and `plain` show it.

Every string is shown as it is: nothing in it can act as markup. Texts and names from outside are `Quote` and `Span`,
which Markdown shows in code spans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Span:
    """A few words within a line.

    Attributes:
        text: The words.
        kind: What they are; a name or a label is from outside.
        role: The role of the colour of a dot before them, as in `COLOURS`; "" for none.
    """

    text: str
    kind: Literal["name", "bold", "code", "label", "small"] = "name"
    role: str = ""


@dataclass(frozen=True)
class Quote:
    """A text from outside, in pieces with a flag: whether it is marked."""

    pieces: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, text: str) -> "Quote":
        """A text without marks."""
        return cls(((text, False),))

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece for piece, _ in self.pieces)


Inline: TypeAlias = str | Span | Quote
Line: TypeAlias = Inline | tuple[Inline, ...]
Row: TypeAlias = tuple[Line, ...]


@dataclass(frozen=True)
class Heading:
    """A heading; `kicker` says above the title what kind of page it is."""

    line: Line
    level: int = 2
    kicker: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    line: Line
    style: Literal["", "lede", "facts", "small", "note", "legend", "legend curves", "warning"] = ""


@dataclass(frozen=True)
class Items:
    """A list."""

    lines: tuple[Line, ...]
    style: Literal["", "findings", "samples"] = ""


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, and whether it has numbers, short words or sentences."""

    name: Line
    kind: Literal["number", "left", "words"] = "number"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: A column, or its name: the first column has the names of the rows, the others have numbers.
        rows: Cells; a row of one cell is a heading of the rows below it.
        note: A sentence below the table.
        strong: Places of the rows that stand out.
        shares: For each number of a confusion matrix, its share of the row, which shades it.
        role: The role of the colour of the shades.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Row]
    note: Line = ""
    strong: frozenset[int] = frozenset()
    shares: Sequence[Sequence[float]] = ()
    role: str = ""

    @property
    def whole_columns(self) -> list[Column]:
        """The columns with their kinds."""
        return [
            one if isinstance(one, Column) else Column(one, "number" if place else "left")
            for place, one in enumerate(self.columns)
        ]


@dataclass(frozen=True)
class Figure:
    """An SVG with its caption.

    Attributes:
        caption: What it is of.
        svg: The drawing.
        style: How much of the page it takes.
        narrow: Another drawing for phones; "" for the same.
        says: What it shows, for those who cannot see it.
    """

    caption: str
    svg: str
    style: Literal["", "single", "full", "natural"] = ""
    narrow: str = ""
    says: str = "the numbers are in the tables, or in the JSON file of this page"


@dataclass(frozen=True)
class Drawn:
    """Figures, with the sentences that explain them: what Markdown and terminals leave out."""

    blocks: "tuple[Block, ...]"


@dataclass(frozen=True)
class Card:
    """Texts that belong together, such as a passage and the example that asked for it, each in a line about it."""

    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Details:
    """Blocks that stay folded until a reader opens them."""

    summary: str
    blocks: "tuple[Block, ...]"


Block: TypeAlias = Heading | Text | Items | Table | Figure | Drawn | Card | Details


def opening(
    kicker: str, title: Line, facts: Line, findings: Sequence[Line], note: str = "", warnings: Iterable[Line] = ()
) -> list[Block]:
    """The top of a page: its title, what it is of, what was found, the first sentence large, and what to beware of."""
    blocks: list[Block] = [Heading(title, 1, kicker), Text(facts, "facts")]
    blocks += [Text(sentence, "lede") for sentence in findings[:1]]
    blocks += [Text(warning, "warning") for warning in warnings]
    blocks += [Items(tuple(findings[1:]), "findings")] if findings[1:] else []
    return [*blocks, Text(note, "note")] if note else blocks


def inlines(line: Line) -> tuple[Inline, ...]:
    """The pieces of a line."""
    return line if isinstance(line, tuple) else (line,)


def words(line: Line) -> str:
    """A line as plain text."""
    return "".join(one if isinstance(one, str) else one.text for one in inlines(line))


INK, MUTED, RULE = "#010203", "#040506", "#070809"


COLOURS = {  # role: (marker, light, dark)
    "ink": (INK, "#1f2024", "#e8e6e1"),
    "muted": (MUTED, "#6f6f76", "#9d9ca3"),
    "rule": (RULE, "#dedbd5", "#37383f"),
    "baseline": ("#0a0b0c", "#77757f", "#a3a1ab"),
    "task-only": ("#0d0e0f", "#c77700", "#f0b35a"),
    "random": ("#101112", "#2f7fc1", "#7ab8ee"),
    "bm25": ("#131415", "#00775a", "#3ccba0"),
    "other-0": ("#161718", "#a2417f", "#e48fc6"),
    "other-1": ("#191a1b", "#7a5c3e", "#c9a683"),
    "other-2": ("#1c1d1e", "#5b53b8", "#a7a1f0"),
    "other-3": ("#1f2021", "#a33b31", "#f08d83"),
    "other-4": ("#222324", "#5f7a12", "#b4cf5a"),
}


OWN_ROLES = ("baseline", "task-only", "random", "bm25")  # arms with a colour of their own


SPARE_ROLES = tuple(f"other-{number}" for number in range(5))  # the colours of all others, in turn


DASHES = dict(zip(SPARE_ROLES, ((8, 2), (1, 1.5), (3, 1.5), (4, 4), (1.5, 4)), strict=True))  # of curves: line, gap


def roles(arms: Iterable[str]) -> list[str]:
    """Colour roles: the first of an arm in `OWN_ROLES` gets the arm's own colour, all others a spare one."""
    found: list[str] = []
    spare = cycle(SPARE_ROLES)
    for arm in arms:
        found.append(arm if arm in OWN_ROLES and arm not in found else next(spare))
    return found


def css_colours(mode: int) -> str:
    """The colours as CSS variables: mode 1 is light, 2 is dark."""
    return "".join(f"--{role}:{tones[mode]};" for role, tones in COLOURS.items())
