"""Examples that belong together, by a field or by equal text, stay together where a split is drawn."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import write_rows as write
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples
from tlm.data.tasks.splits import connected, draw
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.settings.options import Fields

ROWS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abc")), min_size=1, max_size=40)
SHARES = st.fixed_dictionaries({"test": st.floats(0.05, 0.45), "dev": st.floats(0.05, 0.45)})


def of(rows):
    return [str(group) for group, _ in rows], [label for _, label in rows]


def possible(groups, labels, splits):
    """Whether a group can be taken for each of so many splits, with every label left: by trying all choices."""
    rows = list(zip(groups, labels, strict=True))
    return any(
        {label for group, label in rows if group not in taken} == set(labels)
        for taken in itertools.combinations(sorted(set(groups)), splits)
    )


@settings(deadline=None, max_examples=300)
@given(ROWS, SHARES, st.integers(0, 3), st.booleans())
def test_a_draw_divides_no_group_keeps_every_label_and_leaves_no_split_empty(rows, shares, seed, all_):
    groups, labels = of(rows)
    shares = shares if all_ else {"dev": shares["dev"]}
    splits = draw(groups, labels, shares, seed)
    assert len(set(zip(groups, splits, strict=True))) == len(set(groups))
    assert {label for label, split in zip(labels, splits, strict=True) if split == "train"} == set(labels)
    assert (set(splits) == {"train", *shares}) == possible(groups, labels, len(shares))


@settings(deadline=None, max_examples=300)
@given(ROWS, SHARES, st.integers(0, 3))
def test_no_group_that_train_can_spare_would_bring_a_drawn_split_closer(rows, shares, seed):
    groups, labels = of(rows)
    members, have = defaultdict(Counter), defaultdict(Counter)
    for group, label, split in zip(groups, labels, draw(groups, labels, shares, seed), strict=True):
        members[group, split].update((label, None))
        have[split].update((label, None))
    totals = sum(have.values(), Counter())

    def distance(split, more=()):
        found = have[split] + Counter(more)
        return sum((shares[split] * total - found[key]) ** 2 for key, total in totals.items())

    for (_, split), own in members.items():
        if split == "train" and all(have["train"][key] > count for key, count in own.items()):
            assert all(distance(other, own) >= distance(other) - 1e-9 for other in shares)


def test_of_groups_that_are_too_large_the_one_that_comes_closest_is_held_out():
    groups = [group for group, size in {"a": 7, "b": 6, "c": 27}.items() for _ in range(size)]
    for seed in range(4):
        assert Counter(draw(groups, ["x"] * 40, {"test": 0.1}, seed)) == {"train": 34, "test": 6}


@settings(deadline=None)
@given(ROWS, SHARES)
def test_a_draw_does_not_depend_on_the_order_of_rows(rows, shares):
    def drawn(rows):
        groups, labels = of(rows)
        return Counter(zip(groups, labels, draw(groups, labels, shares, 0), strict=True))

    assert drawn(rows) == drawn(rows[::-1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rare", [0, 7])
def test_many_groups_of_several_labels_come_close_to_the_shares(seed, rare):
    """Labels as in a task: few of some, which most groups that have one share with no other group."""
    random = np.random.default_rng(seed)
    groups = [str(author) for author in range(200) for _ in range(random.integers(1, 20))]
    labels = random.choice(list("abcd"), len(groups), p=[0.5, 0.3, 0.15, 0.05]).tolist()
    labels[:rare] = [f"rare {number}" for number in range(rare)]
    found = Counter(draw(groups, labels, {"test": 0.1, "dev": 0.1}, seed))
    assert all(abs(found[split] - 0.1 * len(groups)) <= 10 for split in ("test", "dev"))
    of_label = Counter(zip(labels, draw(groups, labels, {"test": 0.1, "dev": 0.1}, seed), strict=True))
    for label, split in itertools.product("abcd", ("test", "dev")):
        assert abs(of_label[label, split] - 0.1 * labels.count(label)) <= 0.03 * labels.count(label) + 10


def test_seeds_draw_other_groups():
    groups, labels = [str(number // 5) for number in range(500)], ["a", "b"] * 250
    drawn = [draw(groups, labels, {"test": 0.1}, seed) for seed in range(4)]
    assert [one.count("test") for one in drawn] == [50] * 4
    assert len({tuple(one) for one in drawn}) == 4


@pytest.mark.parametrize(
    ("groups", "drawn"),
    [("a a b b a a a ab", "dev test train train test dev train train"),
     ("a a b b a b ab ab", "train test train dev dev test train train")],
)  # fmt: skip
def test_a_draw_with_groups_is_what_it_was(groups, drawn):
    """Of groups with these labels: another choice, as good as this one, would give a task other test examples."""
    names = [str(number) for number, labels in enumerate(groups.split()) for _ in labels]
    splits = draw(names, groups.replace(" ", ""), {"test": 0.2, "dev": 0.2}, 0)
    assert list(dict(zip(names, splits, strict=True)).values()) == drawn.split()


def test_groups_larger_than_a_share_are_held_out_only_where_a_split_is_empty_without():
    sizes = {"a": 60, "b": 20, "c": 12, "d": 8}
    groups = [group for group, size in sizes.items() for _ in range(size)]
    splits = dict(zip(groups, draw(groups, ["x"] * 100, {"test": 0.1, "dev": 0.1}, 0), strict=True))
    assert sorted(group for group, split in splits.items() if split != "train") == ["c", "d"]
    three = ["a"] * 30 + ["b"] * 30 + ["c"] * 30
    assert set(draw(three, ["x"] * 90, {"test": 0.1, "dev": 0.1}, 0)) == {"train", "dev", "test"}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_what_shares_a_text_or_a_group_is_connected(rows):
    """Compared with merging sets until none overlap."""
    merged = [({("text", one), ("group", other)}) for one, other in rows]
    while pair := next((p for p in itertools.combinations(merged, 2) if p[0] & p[1]), None):
        merged = [one for one in merged if one is not pair[0] and one is not pair[1]] + [pair[0] | pair[1]]
    names = connected([str(one) for one, _ in rows], [str(other) for _, other in rows])
    for (first, name), (second, other) in itertools.combinations(zip(rows, names, strict=True), 2):
        together = any({("text", first[0]), ("text", second[0])} <= one for one in merged)
        assert (name == other) == together
    assert all(name <= str(group) for (_, group), name in zip(rows, names, strict=True))  # the first of the groups


def authored(authors, texts):
    """Texts by their authors; each author has a text in common with the next one in pairs."""
    return [
        {"text": f"text {number} by {author if number else author // 2}", "label": "ab"[number % 2], "by": f"a{author}"}
        for author in range(authors)
        for number in range(texts)
    ]


@pytest.mark.parametrize("given_test", [False, True])
def test_authors_and_equal_texts_are_in_one_split(tmp_path, capsys, given_test):
    write(tmp_path / "t" / "train.jsonl", authored(40, 10))
    path = tmp_path / "t" / "train.jsonl"
    if given_test:  # then dev alone is drawn
        write(tmp_path / "t" / "test.jsonl", [{"text": "else", "label": "a", "by": "b"}])
        path = path.parent
    task = Artifact.open(load_task(str(path), fields=Fields(group_field="by"), root=str(tmp_path / "root")))
    rows = examples(task).to_pylist()
    for field in ("group", "text"):
        assert len({(row[field], row["split"]) for row in rows}) == len({row[field] for row in rows})
    sizes = Counter(row["split"] for row in rows)
    assert (sizes["dev"], sizes["test"]) == (40, 1 if given_test else 40)
    assert (task.counts["leaks"], task.counts["divided groups"]) == (0, 0)
    assert "warning" not in capsys.readouterr().err


def test_a_split_far_from_its_share_is_said(tmp_path, capsys):
    rows = [dict(row, text=f"{row['by']} {row['text']}") for row in authored(4, 25)]
    task = Artifact.open(
        load_task(write(tmp_path / "all.jsonl", rows), fields=Fields(group_field="by"), root=str(tmp_path / "root"))
    )
    assert (task.counts["train"], task.counts["dev"], task.counts["test"]) == (50, 25, 25)
    assert "warning: test has 25 of 100 examples, not 10%: groups of 'by'" in capsys.readouterr().err


def test_too_few_groups_are_an_error_that_names_them(tmp_path):
    path = write(tmp_path / "all.jsonl", authored(2, 50))
    with pytest.raises(InputError, match=r"none of the 100 examples is in .*'by'.* not divided; give more groups"):
        load_task(path, fields=Fields(group_field="by"), root=str(tmp_path / "root"))


def test_a_task_that_came_with_divided_groups_is_warned_of(tmp_path, capsys):
    rows = [dict(row, text=f"{number} {row['text']}") for number, row in enumerate(authored(8, 10))]
    for split, part in {"train": rows[:45], "dev": rows[45:60], "test": rows[55:]}.items():
        write(tmp_path / "t" / f"{split}.jsonl", part)
    task = Artifact.open(load_task(str(tmp_path / "t"), fields=Fields(group_field="by"), root=str(tmp_path / "root")))
    assert task.counts["divided groups"] == 2
    assert "warning: 2 of 8 groups of 'by' are in more than one split" in capsys.readouterr().err
    ungrouped = Artifact.open(load_task(str(tmp_path / "t"), root=str(tmp_path / "root")))
    assert "divided groups" not in ungrouped.counts
