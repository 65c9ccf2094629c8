"""Values taken out of rows, and the rows that are set aside."""

import pyarrow.parquet as pq
import pytest

from tlm.artifacts.produce import Draft
from tlm.data.reading.records import BadRow, Reject, Rejects, check_columns, name_of
from tlm.errors import InputError


def test_ids_and_sources_are_strings_or_whole_numbers():
    assert name_of({"id": 12}, "id") == "12"
    assert name_of({"id": " x\ty "}, "id") == "x y"
    for value in (True, 1.5, [1]):
        with pytest.raises(BadRow, match="not a string"):
            name_of({"id": value}, "id")


@pytest.mark.parametrize(
    ("most", "bad", "read_", "stops"),
    [(10, 10, 20, False), (10, 11, 20, True), (10, 11, 11_000, False), (0, 1, 999, True), (0, 1, 1000, False)],
)
def test_a_step_stops_over_ten_rows_or_a_thousandth(most, bad, read_, stops):
    rejects = Rejects(most)
    for line in range(bad):
        rejects.add("x.csv", Reject(line + 1, "null", "field 'text' is null"))
    rejects.read = read_
    if stops:
        with pytest.raises(InputError, match=rf"^{bad} of {read_} rows .*x\.csv:1: null, field 'text' is null"):
            rejects.check()
    else:
        rejects.check()


def test_rejects_are_kept_with_place_reason_and_what_was_found(tmp_path):
    rejects = Rejects(10)
    rejects.add("a.jsonl", Reject(3, "invalid JSON", "x\n" + "y" * 1000))
    rejects.add("b.csv", Reject(5, "null", "\ud800"))
    draft = Draft(tmp_path)
    rejects.write(draft)
    assert draft.rows == {"rejected.parquet": 2}
    rows = pq.read_table(tmp_path / "rejected.parquet").to_pylist()
    assert [(row["file"], row["line"], row["reason"]) for row in rows] == [
        ("a.jsonl", 3, "invalid JSON"),
        ("b.csv", 5, "null"),
    ]
    assert rows[1]["detail"] == "\\ud800"
    assert draft.counts == {"rejected": {"invalid JSON": 1, "null": 1}}
    Rejects(10).write(draft)
    assert draft.rows == {"rejected.parquet": 0}


@pytest.mark.parametrize(("read_", "stops"), [(11, True), (10_999, True), (11_000, False)])
def test_a_record_of_several_lines_counts_as_all_of_them(tmp_path, read_, stops):
    rejects, other = Rejects(10), Rejects(10)
    rejects.add("x.csv", Reject(3, "ragged row", "up to line 12: 3 values", lines=10))
    rejects.add("x.csv", Reject(20, "null", "field 'text' is null"))
    other.take(rejects.table(), {"x.csv": read_})  # as from a part
    draft = Draft(tmp_path)
    other.write(draft)
    assert draft.counts == {"rejected": {"ragged row": 10, "null": 1}}
    assert draft.rows == {"rejected.parquet": 2}
    assert pq.read_table(tmp_path / "rejected.parquet")["lines"].to_pylist() == [10, 1]
    assert len(other) == 11
    if stops:
        with pytest.raises(InputError, match=rf"^11 of {read_} rows cannot be used \(10 ragged row, 1 null\)"):
            other.check()
    else:
        other.check()


def test_records_of_one_line_are_written_without_the_number_of_lines(tmp_path):
    rejects = Rejects(10)
    rejects.add("x.csv", Reject(3, "null", "field 'text' is null"))
    rejects.write(Draft(tmp_path))
    assert pq.read_schema(tmp_path / "rejected.parquet").names == ["file", "line", "reason", "detail"]


@pytest.mark.parametrize(
    ("field", "names", "hint"),
    [
        (
            "data.text",
            ["data"],
            "it has 'data'; a field within a field is not read: copy it up (in jsonl, jq -c '.text = .data.text')",
        ),
        (
            "a.b.text",
            ["a"],
            "it has 'a'; a field within a field is not read: copy it up (in jsonl, jq -c '.text = .a.b.text')",
        ),
        ("text", [f"{number:02}" for number in range(31)], "'28', '29' …"),
    ],
)
def test_a_field_that_is_not_there_is_explained(field, names, hint):
    with pytest.raises(InputError) as caught:
        check_columns("t.jsonl", names, [field])
    assert str(caught.value).endswith(hint)
    assert "'30'" not in str(caught.value)
