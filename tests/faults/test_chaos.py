"""The page is what the kept results of `make chaos` give."""

from tests.faults import chaos
from tests.faults.row import row


def test_the_page_has_the_table_of_what_is_kept() -> None:
    text = chaos.PAGE.read_text(encoding="utf-8")
    assert chaos.page(text) == text


def test_every_part_can_be_run() -> None:
    parts = {path.stem for path in (chaos.HOME / "tests" / "faults" / "parts").glob("*.py")}
    assert set(chaos.NAMES) <= parts


def test_steps_that_were_treated_alike_are_one_row_unless_one_was_lost() -> None:
    rows = [row("killed: index", 8, 8), row("killed: train", 8, 8), row("hurt: index", 8, 7), row("hurt: train", 8, 8)]
    assert [*chaos.folded(rows)] == [row("killed: each of 2 steps", 16, 16), *rows[2:]]


def test_rows_that_are_tried_again_say_when_and_the_others_stay_as_they_were() -> None:
    whole = {"revision": "a1", "day": "2026-11-20", "seed": 1, "seconds": 60}
    first = whole | {"rows": [row("killed: index", 8, 7), row("hurt: index", 8, 8)]}
    assert chaos.moments(first) == "revision a1, 2026-11-20, seed 1"
    again = {"revision": "b2", "day": "2026-11-21", "seed": 2, "seconds": 9}
    found = chaos.merged(first, again | {"rows": [row("killed: index", 8, 8)]})
    own = {"revision": "b2", "day": "2026-11-21", "seed": 2}
    assert found == whole | {"seconds": 69, "rows": [row("killed: index", 8, 8) | own, row("hurt: index", 8, 8)]}
    assert chaos.moments(found) == "revision a1, 2026-11-20, seed 1; revision b2, 2026-11-21, seed 2: killed: index"
    assert chaos.moments(found | {"rows": found["rows"][:1]}) == "revision b2, 2026-11-21, seed 2: killed: index"
