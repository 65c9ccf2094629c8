"""The paper's tables as data, and the settings that make each cell."""

import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import tlm.data
from research.paper.plan import top_k
from research.paper.tables import CORPUS, PAPER, RETRIEVING, cells, expected, ladders
from tlm.errors import InputError
from tlm.runs.advise import paper_top_k
from tlm.settings import presets
from tlm.settings.presets import table_b1

SMALL_SCALES = list(ladders())
PAPER_CELLS = [cell for table in expected() for scale in PAPER for cell in cells(table, scale)]


def test_all_tables_with_numbers_are_there():
    assert list(expected()) == ["2", "3", "4", "5", "6", "7", "8", "10"]
    assert all(f"Table {number}" in facts["source"] for number, facts in expected().items())
    assert {facts["split"] for facts in expected().values()} == {"dev", "test"}
    assert all(expected()[number]["split"] == "dev" for number in "34567")


@pytest.mark.parametrize("table", ["2", "8"])
def test_averages_are_those_of_the_printed_values(table):
    """But for the large scale, where the paper prints 85.74."""
    for row in expected()[table]["row"]:
        assert tuple(row["values"]) == tuple(table_b1()["tasks"])
        mean = sum(value[0] for value in row["values"].values()) / 8
        if row["name"] == "TLM (large)":
            assert (round(mean, 2), row["average"]) == (85.73, 85.74)
        else:
            assert abs(mean - row["average"]) <= 0.005 + 1e-9, row["name"]


def test_glue_averages_are_those_of_the_printed_values():
    """A task with two scores counts once; so do the two halves of MNLI."""
    for row, average in zip(expected()["10"]["row"], (82.97, 82.59), strict=True):
        by_task = defaultdict(list)
        for column, (value,) in row["values"].items():
            by_task[column.partition("/")[0].removesuffix("-mismatched")].append(value)
        assert len(by_task) == 8
        mean = sum(sum(values) / len(values) for values in by_task.values()) / 8
        assert mean == pytest.approx(average, abs=0.005)
        assert row["average"] == pytest.approx(average, abs=0.0101)


def test_the_flops_of_table_2_are_the_presets_own():
    from tlm.settings.presets import paper_flops, published, stage1_cost

    for row in expected()["2"]["row"]:
        if row["arm"] == "bm25":
            names = [f"{row['scale']}-{task}" for task in table_b1()["tasks"]]
            sizes = [(published(name).printed_parameters, stage1_cost(presets.resolve(name))) for name in names]
            told = [paper_flops(parameters, stage1.padded_tokens) for parameters, stage1 in sizes]
            assert float(f"{sum(told) / 8:.2e}") == row["flops"]


def test_cells_that_are_one_run_have_one_published_value():
    """86.07 of SciERC stands in four tables, 83.64 of ChemProt in five, rows of Table 2 in Table 8."""
    values = defaultdict(set)
    for cell in PAPER_CELLS:
        if cell.published:
            values[cell.key, cell.split, cell.column].add(cell.published[0])
    assert {where: found for where, found in values.items() if len(found) > 1} == {}
    tables = {cell.table for cell in PAPER_CELLS if cell.key == "small-scierc-bm25" and cell.split == "dev"}
    assert tables == {"3", "4", "5", "6"}


def test_runs_of_one_key_have_one_recipe_and_other_keys_other_ones():
    recipes = defaultdict(set)
    for cell in (*PAPER_CELLS, *(one for scale in SMALL_SCALES for table in expected() for one in cells(table, scale))):
        recipe = (cell.task, cell.arm, cell.start, cell.corpus, cell.stages, cell.preset, repr(cell.settings()))
        recipes[cell.key].add(recipe)
    assert {key for key, found in recipes.items() if len(found) > 1} == set()
    assert len({next(iter(found)) for found in recipes.values()}) == len(recipes)


@pytest.mark.parametrize("scale", [*PAPER, *SMALL_SCALES])
def test_the_paper_chose_one_row_for_each_task(scale):
    for table in expected():
        chosen = defaultdict(list)
        for cell in cells(table, scale):
            chosen[cell.column] += [cell.row] if cell.chosen else []
        assert all(len(rows) == 1 for rows in chosen.values()), (table, chosen)


def test_the_chosen_row_is_table_b1_s():
    rows = {(cell.table, cell.column): cell.row for cell in PAPER_CELLS if cell.chosen and cell.scale == "small"}
    assert rows["4", "agnews"] == "top 50"
    assert rows["4", "scierc"] == "top 5000"
    assert rows["5", "helpfulness"] == "rho1 1"
    assert rows["5", "chemprot"] == "rho1 999"
    assert rows["6", "rct-20k"] == "rho2 20"
    assert rows["3", "imdb"] == "BM25, C_BERT"
    assert rows["7", "acl-arc"] == "two stages"
    assert rows["10", "cola"] == "TLM (small)"


def test_a_cell_has_the_settings_of_its_row():
    found = {cell.row: cell for cell in cells("5", "small", ["scierc"])}
    assert found["rho1 99"].settings()["train.rho1"] == 99
    assert found["external only"].settings()["train.rho1"] == "inf"
    assert found["rho1 999"].overrides == ()
    assert {cell.settings()["retrieve.top_k"] for cell in found.values()} == {5000}
    by_row = {cell.row: cell.settings() for cell in cells("7", "small", ["imdb"])}
    assert "finetune.lr" in by_row["two stages"]
    assert "finetune.lr" not in by_row["without stage 2"]
    plm = next(cell for cell in cells("2", "large", ["imdb"]) if cell.arm == "published")
    assert {name.partition(".")[0] for name in plm.settings()} == {"finetune", "start"}
    assert plm.settings()["start"] == "roberta-large"
    mlm = next(cell for cell in cells("8", "medium", ["imdb"]) if cell.arm == "published-task-only")
    assert {name.partition(".")[0] for name in mlm.settings()} == {"train", "finetune", "start"}
    assert mlm.settings()["train.rho2"] == "inf"


def test_glue_takes_its_k_from_the_rule():
    path = Path(tlm.data.__file__).parent / "tasks.toml"
    loaders = tomllib.loads(path.read_text(encoding="utf-8"))["glue"]
    for cell in cells("10", "small"):
        train = expected()["10"]["train"][cell.task]
        assert train == loaders[cell.task]["sizes"]["train"]
        if cell.arm == "bm25":
            assert top_k(cell) == paper_top_k(train)


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_small_scales_keep_the_order_of_the_settings(scale):
    """And tell them apart; what the scale's own preset has is among the values."""
    own = presets.resolve(ladders()[scale].get("preset", scale))
    for name, ladder in ladders()[scale].items():
        if name in ("note", "preset", "published"):
            continue
        section, _, field = name.partition(".")
        values = [ladder[step] for step in sorted(ladder, key=float)]
        numbers = [float(value) for value in values]
        assert numbers == sorted(set(numbers))
        assert getattr(getattr(own, section), field) in values
        rows = [row for facts in expected().values() for row in facts["row"]]
        wanted = {str(row["set"][name]) for row in rows if name in row.get("set", {})}
        assert set(ladder) >= wanted
        for value in values:
            presets.resolve(scale, [f"{name}={value}"])


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_published_models_of_its_own_size_stand_for_the_paper_s_at_a_small_scale(scale):
    """Depth and width are in their names; the number of heads is the width by 64, as in all of that family."""
    own = presets.resolve(scale).model
    width = max(own.hidden, 128)  # the narrowest there is
    rows = {table: [row["name"] for row in expected()[table]["row"]] for table in ("8", "10")}
    for table, names in {"2": ["BERT-Base", "TLM (small)"], **rows}.items():
        found = cells(table, scale)
        assert list(dict.fromkeys(cell.row for cell in found)) == names
        for cell in found:
            assert bool(cell.start) == cell.arm.startswith("published")
            if cell.start:
                assert cell.start == f"google/bert_uncased_L-{own.layers}_H-{width}_A-{width // 64}"
                assert ("train.rho2=inf" in cell.overrides) == (cell.arm == "published-task-only")
                presets.resolve(cell.preset, cell.overrides)
    keys = {cell.key for table in ("2", "8") for cell in cells(table, scale, ["scierc"]) if cell.arm == "published"}
    assert len(keys) == 1  # both rows are one run


@pytest.mark.parametrize("scale", SMALL_SCALES)
def test_what_small_scales_cannot_have(scale):
    assert "BERT-Large" not in {cell.row for cell in cells("2", scale)}
    for table in "34567":
        assert {cell.arm for cell in cells(table, scale)} <= {*RETRIEVING, "task-only"}
    assert {row.get("corpus", CORPUS) for row in expected()["3"]["row"]} == {CORPUS, "C_RoBERTa"}
    assert [cell.row for cell in cells("3", scale, ["scierc"])] == ["random, C_BERT", "BM25, C_BERT"]


def test_small_scales_take_tasks_that_the_paper_does_not_have():
    own = cells("4", "pocket", ["mine"])
    assert [cell.published for cell in own] == [None] * 4
    assert [top_k(cell) for cell in own if cell.arm == "bm25"] == [1, 5, 50]
    assert cells("4", "small", ["mine"]) == []
    agnews = {cell.row: cell for cell in cells("4", "pocket", ["agnews"])}
    assert top_k(agnews["top 50"]) == 1
    assert agnews["top 50"].chosen


@pytest.mark.parametrize(
    ("table", "scale", "sentence"), [("9", "small", "the paper's table '9'"), ("4", "pockt", "did you mean 'pocket'?")]
)
def test_what_there_is_not_is_said(table, scale, sentence):
    with pytest.raises(InputError, match=sentence):
        cells(table, scale)
