"""Sides take turns, children's costs are counted, numbers are kept and come out on the page."""

import json
import os
import subprocess
import sys

import pytest

from research.benchmarks import __main__, kept, page, pictures
from research.benchmarks.machine import revision
from research.benchmarks.measure import CPU, MEMORY, Cost, Stopwatch, child, compare, cost_of, per_cpu_second
from research.benchmarks.row import NotMeasured, Result, Row, against, exponent, growth, limit, need, not_measured


def test_sides_take_turns_and_each_round_goes_the_other_way():
    calls: list[str] = []
    sides = {name: lambda name=name: calls.append(name) for name in "ab"}  # type: ignore[misc]
    measured = compare(sides, repeats=2, warm_up=1)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert [len(costs) for costs in measured.costs.values()] == [2, 2]


def test_ratios_are_of_rounds_and_above_one_is_better():
    ours, theirs = iter([1.0, 2.0, 1.0]), iter([2.0, 4.0, 6.0])
    sides = {"ours": lambda: Cost(0, next(ours), work=10), "theirs": lambda: Cost(0, next(theirs), work=10)}
    measured = compare(sides, repeats=3)
    assert measured.ratio("ours", "theirs", CPU) == (2, 2, 6)
    assert measured.ratio("ours", "theirs", per_cpu_second("rows")) == pytest.approx((2, 2, 6))
    assert measured.spread("ours", per_cpu_second("rows")).middle == 10


def allocate(size: int) -> float:
    return float(len(bytearray(os.urandom(1)) * size))


def burn() -> None:
    subprocess.run([sys.executable, "-c", "x = 0\nfor i in range(3_000_000): x += i"], check=True)


def test_a_child_s_memory_is_its_own():
    large, small = cost_of(child(allocate, 200_000_000)), cost_of(child(allocate, 1))
    assert large.work == 200_000_000
    assert MEMORY.of(large) - MEMORY.of(small) == pytest.approx(200, abs=20)


def test_cpu_seconds_of_children_count():
    with Stopwatch() as watch:
        burn()
    assert watch.cost().cpu > 0.02


def test_an_error_in_a_child_is_told():
    with pytest.raises(ValueError, match="invalid literal"):
        cost_of(child(int, "x"))


def test_the_exponent_of_a_power_law_is_found():
    assert exponent([(size, 3 * size**1.5) for size in (10, 20, 80)]) == pytest.approx(1.5)
    assert growth("K", [(1, 1), (2, 2.1), (4, 4)], ("K", "s")).verdict == "PASS"
    assert growth("K", [(1, 1), (2, 4), (4, 16)], ("K", "s")).verdict == "short"


def test_verdicts():
    measured = compare({"ours": lambda: Cost(1, 1), "theirs": lambda: Cost(3, 3)}, repeats=2)
    assert against("x", measured, "theirs", CPU, at_least=3).verdict == "PASS"
    assert against("x", measured, "theirs", CPU, at_least=3.1).verdict == "short"
    assert against("x", measured, "theirs", CPU).verdict == ""
    assert limit("x", 0.31, "s", 0.3).verdict == "short"
    assert page.verdict([limit("x", 1, "s", 1), limit("y", 2, "s", 1), not_measured("z", "no GPU")]) == (
        "short (1 of 2); 1 not measured"
    )


def test_what_is_not_installed_is_said_in_a_sentence():
    with pytest.raises(NotMeasured, match=r"install not_there \(pip install -r research/benchmarks/requirements.txt\)"):
        need("not_there", "json")


def a_row(results: list[Result]) -> Row:
    return Row("toy", "a toy", "another", "2×", "Nothing.", lambda quick: results)


def test_numbers_are_kept_and_come_out_on_the_page(tmp_path):
    found = [
        limit("a | b", 1.234, "s", 2.0, "A note."),
        growth("size", [(1, 1), (10, 11)], ("documents", "s")),
        Result("x", 2.0, 1.0, "docs per s", 2.0, "≥ 2×", "PASS", "theirs", 1.9, 2.2),
        not_measured("big", "no server here", "≥ 5×"),
    ]
    row, numbers = a_row(found), tmp_path / "results" / "benchmarks"
    facts = kept.Kept(
        "toy", "python -m research.benchmarks toy", "2026-01-01", "abc", False, {"cores": "2"}, {"numpy": "2"}, found
    )
    kept.keep(facts, numbers)
    assert kept.read("toy", numbers) == facts
    page.write(tmp_path / "PAGE.md", numbers, [row, a_row([])._replace(name="other", stage="the other")])
    text = (tmp_path / "PAGE.md").read_text()
    assert "| a \\| b | 1.23 | – | s | – | ≤ 2 s | PASS |" in text
    assert "| x, against theirs | 2 | 1 | docs per s | 2× (1.9–2.2) | ≥ 2× | PASS |" in text
    assert "not measured: no server here" in text
    assert "Not measured: `python -m research.benchmarks other`." in text
    assert "cores 2; numpy 2" in text
    names = ("toy-size.svg", "ratios.svg")
    assert all(f"(results/benchmarks/{name})" in text for name in names)
    before = [(numbers / name).read_bytes() for name in names]
    page.write(tmp_path / "PAGE.md", numbers, [row])
    assert [(numbers / name).read_bytes() for name in names] == before


def test_the_overview_has_a_line_for_each_side_and_target():
    def found(label: str, ratio: float, target: str, other: str) -> Result:
        return Result(label, ratio, 1.0, "docs per s", ratio, target, "PASS", other)

    mini = [found("mini, external", 2.9, "≥ 2.8×", "theirs"), found("mini, internal", 5.0, "≥ 2.8×", "theirs")]
    pocket = [found("pocket, external", 5.1, "≥ 5×", "theirs"), found("pocket, external", 2.0, "", "others")]
    assert pictures.lines([(a_row([]), [*mini, *pocket, limit("time", 1, "s", 2)])]) == [
        ("a toy, mini, against theirs", 2.8, mini),
        ("a toy, pocket, external, against theirs", 5.0, pocket[:1]),
    ]


def test_every_row_loads_without_heavy_imports():
    code = (
        "import sys\nfrom research.benchmarks.__main__ import ROWS, load\n"
        "rows = [load(name) for name in ROWS]\nassert [row.name for row in rows] == list(ROWS)\n"
        "print(sorted({'torch', 'transformers', 'kfp', 'elasticsearch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def run_here(folder, monkeypatch, rows: list[Row], *arguments: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(__main__, "ROWS", tuple(row.name for row in rows))
    monkeypatch.setattr(__main__, "revision", lambda folder: "abc")
    monkeypatch.setattr(__main__, "load", lambda name: next(row for row in rows if row.name == name))
    return __main__.main(list(arguments))


def test_a_quick_run_writes_nothing_and_a_full_one_keeps_what_it_could_measure(tmp_path, monkeypatch, capsys):
    def absent(quick: bool) -> list[Result]:
        raise NotMeasured("needs a GPU")

    row = Row("toy", "a toy", "another", "2×", "Nothing.", lambda quick: [limit("x", 1 if quick else 2, "s", 5)])
    gone = row._replace(name="gone", run=absent)
    assert run_here(tmp_path, monkeypatch, [row, gone], "all", "--quick") == 0
    assert "needs a GPU" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert run_here(tmp_path, monkeypatch, [row, gone], "toy") == 0
    numbers = tmp_path / "research" / "results" / "benchmarks"
    assert json.loads((numbers / "toy.json").read_text())["results"][0]["ours"] == 2
    assert run_here(tmp_path, monkeypatch, [row._replace(run=absent), gone], "all") == 0
    assert json.loads((numbers / "toy.json").read_text())["results"][0]["ours"] == 2
    assert "needs a GPU" in (tmp_path / "research" / "BENCHMARKS.md").read_text()


def test_a_row_that_fails_does_not_stop_the_others_but_is_an_error(tmp_path, monkeypatch, capsys):
    def broken(quick: bool) -> list[Result]:
        raise OSError("the disk is gone")

    good = Row("good", "good", "another", "", "", lambda quick: [limit("x", 1, "s")])
    assert run_here(tmp_path, monkeypatch, [good._replace(name="bad", run=broken), good], "all", "--quick") == 1
    assert "the disk is gone" in capsys.readouterr().out


def test_an_unknown_row_is_refused(capsys):
    assert __main__.main(["trainign"]) == 2
    assert "'trainign' is no row" in capsys.readouterr().err


def test_numbers_are_those_of_a_commit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(__main__, "revision", lambda folder: "abc-dirty")
    assert __main__.main(["startup"]) == 2
    assert "not that of a commit (abc-dirty)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_benchmarks_write_does_not_make_the_next_row_dirty(tmp_path):
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        subprocess.run(["git", *who, "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    assert revision(tmp_path) == "unknown"
    (tmp_path / "research").mkdir()
    page_written, code = tmp_path / "research" / "BENCHMARKS.md", tmp_path / "code.py"
    for file in (page_written, code):
        file.write_text("before")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    clean = revision(tmp_path)
    assert len(clean) >= 7
    page_written.write_text("after")
    assert revision(tmp_path) == clean
    code.write_text("after")
    assert revision(tmp_path) == f"{clean}-dirty"
