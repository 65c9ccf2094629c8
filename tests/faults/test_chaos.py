"""The page is what the kept results of `make chaos` give."""

from tests.faults import chaos


def test_the_page_has_the_table_of_what_is_kept() -> None:
    text = chaos.PAGE.read_text(encoding="utf-8")
    assert chaos.page(text) == text


def test_every_part_can_be_run() -> None:
    parts = {path.stem for path in (chaos.HOME / "tests" / "faults" / "parts").glob("*.py")}
    assert set(chaos.NAMES) <= parts
