"""What the report says of cost: what a machine told, money by a price alone, the paper apart from our runs."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from research.score_and_compute import Point, published, score_against_compute
from tests.toy_reports import Page, is_safe, pages, toy_world
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import signed_json
from tlm.evaluation.pages.text import power
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline
from tlm.settings.options import Prices

EXPECTED = Path(__file__).parents[3] / "research/paper/expected.toml"


def runs(root: Path, **facts: Any) -> list[str]:
    """Two seeds; `facts` stand in the run.json of both stages, a number twice as large for the second seed."""
    world = toy_world(root)
    uris = [world.metrics("bm25", seed, 0.6) for seed in (0, 1)]
    for times, uri in enumerate(uris, 1):
        path = next(root.glob(f"metrics/{Artifact.open(uri).manifest.key}/run.json"))
        told = Artifact.open(uri).run()
        for stage in told["stages"].values():
            stage |= {name: value * times if isinstance(value, float) else value for name, value in facts.items()}
        path.write_bytes(signed_json(told))
    return uris


def made(root: Path, uris: list[str], **prices: float) -> dict[str, str]:
    return pages(report(uris, prices=Prices(**prices), root=str(root)))


def table(markdown: str) -> list[dict[str, str]]:
    """The rows of the bill that are of the arm."""
    part = markdown.partition("## The bill")[2].partition("## ")[0]
    lines = [line for line in part.splitlines() if line[:1] == "|"]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    return [row for row in found if row[head[0]].startswith(("Training of `bm25`", "– "))]


def test_each_stage_and_both_on_gpus_with_energy_and_prices(tmp_path: Path) -> None:
    uris = runs(
        tmp_path,
        seconds=3600.0,
        device="NVIDIA H200",
        processes=4,
        gpu_seconds=14400.0,
        gpu_joules=3.6e6,
        cpu_joules=1.8e6,
    )
    files = made(tmp_path, uris, gpu_hour=2.5, kilowatt_hour=0.4)
    both, first, second = table(files["md"])
    on = "(NVIDIA H200 × 4, fp32)"
    names = [f"Training of `bm25` {on}", f"– stage 1 {on}", f"– stage 2 {on}"]
    assert [row["What was spent"] for row in (both, first, second)] == names
    # seeds took 1 h and 2 h on 4 GPUs and 1.5 and 3 kWh: 1.5 h, 6 GPU hours, 2.25 kWh, 6 · 2.5 + 2.25 · 0.4
    assert (first["time"], first["GPU time"], first["energy"], first["money"]) == (
        "90 min",
        "6.0 h",
        "2.2 kWh",
        "15.90",
    )
    assert (both["time"], both["GPU time"], both["energy"], both["money"]) == ("3.0 h", "12 h", "4.5 kWh", "31.80")
    assert both["FLOPs"] == "8·10¹³"
    assert second == {**first, "What was spent": names[2]}
    told = json.loads(files["json"])["groups"][0]
    assert told["stages"]["stage 1"]["joules"]["values"] == [5.4e6, 1.08e7]
    assert told["cost"]["money"]["values"] == pytest.approx([2 * (4 * 2.5 + 1.5 * 0.4), 2 * (8 * 2.5 + 3 * 0.4)])
    is_safe(files["html"])
    text = Page(files["html"]).text
    for words in (
        "GPU time",
        "31.80",
        "2.5 for an hour of a GPU, 0.4 for a kilowatt-hour",
        "Energy is that of",
        "NVIDIA H200 × 4, fp32",
    ):
        assert words in text
    assert "2.5 for an hour of a GPU" in files["md"]


def test_only_columns_of_which_somebody_told_something(tmp_path: Path) -> None:
    files = made(tmp_path, [*runs(tmp_path), baseline(toy_world(tmp_path).task, root=str(tmp_path))])
    counted = ["steps", "tokens", "FLOPs", "FLOPs by the paper’s rule"]
    assert list(table(files["md"])[0]) == ["What was spent", *counted, "time", "CPU time"]
    head = files["html"].partition("<h2>The bill</h2>")[2].partition("</thead>")[0]
    heads = re.findall(r"<th(?!ead)[^>]*>([^<]*)", head)
    assert heads == list(table(files["md"])[0])
    assert "Prices" not in files["html"] + files["md"]
    assert "Energy" not in files["html"]


def test_a_price_of_what_was_not_used_gives_no_money(tmp_path: Path) -> None:
    uris = runs(tmp_path)  # on a CPU
    assert "money" not in table(made(tmp_path, uris, gpu_hour=3)["md"])[0]
    assert table(made(tmp_path, uris, gpu_hour=3, cpu_hour=36)["md"])[0]["money"] == "4.01"  # 401 s
    assert "money" not in table(made(tmp_path, uris, cpu_hour=36, kilowatt_hour=1)["md"])[0]  # energy: unknown


def test_prices_name_the_report_and_time_does_not(tmp_path: Path) -> None:
    uris = runs(tmp_path)
    free, paid = report(uris, root=str(tmp_path)), report(uris, prices=Prices(cpu_hour=2), root=str(tmp_path))
    assert free != paid
    assert report(uris[::-1], prices=Prices(cpu_hour=2.0), root=str(tmp_path)) == paid
    assert report(uris, prices=Prices(grams_per_kwh=20), root=str(tmp_path)) not in (free, paid)
    slower = runs(tmp_path / "slower", seconds=9000.0, cpu_joules=5.0)
    again = Artifact.open(report(slower, prices=Prices(cpu_hour=2), root=str(tmp_path / "slower")))
    assert again.manifest.key == Artifact.open(paid).manifest.key
    assert again.details == Artifact.open(paid).details


def test_the_papers_points_are_those_of_table_2() -> None:
    rows = {row["name"]: row for row in tomllib.loads(EXPECTED.read_text(encoding="utf-8"))["2"]["row"]}
    points = {point.name: point for point in published()}
    assert points.keys() == rows.keys()
    for name, row in rows.items():
        assert points[name].score == row["average"]
        assert points[name].flops == row.get("flops", points[name].flops)
        assert points[name].role == ("paper" if row["arm"] == "bm25" else "pretrained")


@pytest.mark.parametrize(
    ("flops", "words"), [(8.5e13, ": 30,000 times our compute"), (2.7e18, "models<"), (0.0, "models<")]
)
def test_how_far_the_paper_is(flops: float, words: str) -> None:
    assert words in score_against_compute([Point("x", flops, [50.0], "bm25")], published(), "accuracy")


def test_no_seed_falls_out_of_the_picture() -> None:
    """Arms of equal compute are moved aside; each of their dots lies between the ends of the score axis."""
    arms = [Point(f"arm {n}", 1e13, [10.0 * n, 10.0 * n + 40], "bm25") for n in range(4)]
    drawn = score_against_compute(arms, [Point("far", 1e18, [80.0], "paper")], "accuracy")
    x, y, width, height = (
        float(value) for value in re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"/>', drawn)[0]
    )
    clipped = re.findall(r"<g clip-path[^>]*>\s*((?:<use [^>]*var\(--bm25\)[^>]*>\s*)+)", drawn)
    marks = [(float(a), float(b)) for group in clipped for a, b in re.findall(r'x="(.*?)" y="(.*?)"', group)]
    assert len(marks) == 4 * (2 + 1)  # with the stroke
    assert len({a for a, _ in marks}) == 4
    assert all(x <= a <= x + width and y <= b <= y + height for a, b in marks)


def test_the_distance_to_the_paper_is_by_the_paper_s_rule(tmp_path: Path) -> None:
    """Its Table 2 counts padded tokens, so our padded FLOPs stand beside it, and not those without padding."""
    world = toy_world(tmp_path)
    told = json.loads(made(tmp_path, [world.metrics("bm25", 0, 0.6)])["json"])
    (group,) = told["groups"]
    ours = group["cost"]["paper_flops"]["mean"]
    assert ours != group["cost"]["flops"]["mean"], "the test tells nothing"
    (sentence,) = (one for one in told["findings"] if "small scale" in one)
    assert f"{power(ours)} FLOPs" in sentence
    assert f"The paper’s small scale cost {power(2.74e18 / ours)} times as much" in sentence
