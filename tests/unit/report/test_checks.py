"""The checks of a report: each is found where it applies, and nowhere else, and the documentation explains it."""

import json
import re
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

from tests.published import write_bert
from tests.toy_reports import LABELS, reported, told_of, toy_world
from tests.toys import Row, World, make_task, words
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples
from tlm.data.tasks.metrics import Split
from tlm.data.tasks.task import load_task
from tlm.evaluation.report import checks
from tlm.evaluation.report.runs import grouped
from tlm.evaluation.score.baseline import baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.settings.options import Prices, Problem
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import finetune, load_model, train

PAGE = Path("docs/your-task.md")


def codes(told: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(check["code"] for check in told["checks"]))


def of(told: dict[str, Any], code: str) -> str:
    """The one sentence of a check."""
    (found,) = [check["sentence"] for check in told["checks"] if check["code"] == code]
    return str(found)


def found_by(check: Callable[[Artifact, Any], Iterator[checks.Check]], task: str) -> list[checks.Check]:
    """What a check finds in a task."""
    found = Artifact.open(task)
    return list(check(found, checks._splits(found)))


def runs(world: World, arm: str = "bm25", skill: float = 0.7, seeds: int = 3) -> list[str]:
    return [world.metrics(arm, seed, skill) for seed in range(seeds)]


def test_a_small_dev_or_test_split(tmp_path: Path, monkeypatch: Any) -> None:
    metrics = runs(toy_world(tmp_path))
    small = [check["sentence"] for check in told_of(metrics)["checks"] if check["code"] == "TLM003"]
    assert [sentence.partition(" has ")[0] for sentence in small] == ["dev", "test"]
    assert small[0] == "dev has 10 examples, so the choice of a model is partly luck; 100 or more are better."
    for name in ("LEAST_EXAMPLES", "LEAST_GROUPS"):
        monkeypatch.setattr(checks, name, 10)
    monkeypatch.setattr(checks, "LEAST_PASSAGES", 10)
    assert codes(told_of(metrics)) == []


def test_few_groups_are_as_bad_as_few_examples(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks, "LEAST_EXAMPLES", 10)
    told = told_of(runs(toy_world(tmp_path, texts=[f"text {number % 4}" for number in range(60)])))
    assert next(check["sentence"] for check in told["checks"] if check["code"] == "TLM003") == (
        "dev has 10 examples in 4 groups, so the choice of a model is partly luck; 10 in 30 groups or more are better."
    )


def trained(world: World, max_length: int, cut: str = "head") -> str:
    """Metrics of a tiny encoder that reads so many tokens."""
    root, length = str(world.root), [f"model.max_length={max_length}", f"model.cut={cut}", "train.external_length=16"]
    tokenizer = build_tokenizer(world.corpus, world.task, vocab_size=300, root=root)
    checkpoint = train(world.task, tokenizer=tokenizer, preset="tiny", overrides=length, root=root)
    return evaluate(finetune(checkpoint, world.task, preset="tiny", overrides=length), world.task, root=root)


def test_texts_that_a_model_does_not_read_to_the_end(tmp_path: Path) -> None:
    world = toy_world(tmp_path, texts=[" ".join(words(8, seed)) for seed in range(60)])
    metrics = trained(world, 48)
    sentence = of(told_of([metrics]), "TLM004")
    tokens = Artifact.open(metrics).input("model").input("task_tokens")
    whole, split = np.diff(np.load(tokens.path("offsets.npy"))) + 2, examples(Artifact.open(world.task))["split"]
    said = []
    for name in ("train", "dev", "test"):
        own = whole[np.array(split) == name]
        lost = (own - own.clip(max=48)).sum() / own.sum()
        said.append(f"{name} {100 * (own > 48).mean():.0f} % and {100 * lost:.1f} %")
    assert len({one.partition(" ")[2] for one in said}) == 3
    assert sentence == (
        f"task-only reads at most 48 tokens of a text. Texts that are cut, and tokens lost: {', '.join(said)}. "
        "That is a large part: model.cut=head+tail reads the ends of texts too, and a longer model.max_length reads "
        "more."
    )
    of_both = of(told_of([trained(world, 48, "head+tail")]), "TLM004")
    assert of_both.endswith("That is a large part: a longer model.max_length reads more.")
    hardly = of(told_of([trained(world, int(whole.max()) - 1)]), "TLM004")  # one token is lost
    assert "That is a large part" not in hardly
    assert "TLM004" not in codes(told_of([trained(world, int(whole.max()))]))


@pytest.mark.parametrize("head", [True, False])
def test_a_published_model_that_was_trained_as_if_it_were_fresh(head: bool, tmp_path: Path) -> None:
    world, root = toy_world(tmp_path), str(tmp_path)
    written = write_bert(tmp_path / "bert", sorted({word for text in world.passages for word in text.split()}))
    if not head:
        written.base_model.save_pretrained(tmp_path / "bert")
    start = load_model(str(tmp_path / "bert"), world.task, preset="tiny", root=root)
    slow = ["train.lr=1e-4", "finetune.lr=1e-4"]
    of_part = ["train.lr=1e-4", "finetune.weights=head"]  # which takes a high rate
    for overrides, expected in (([], ["TLM007", "TLM007"]), (slow, []), (of_part, [])):
        checkpoint = train(world.task, start=start, preset="tiny", overrides=overrides, root=root)
        model = finetune(checkpoint, world.task, preset="tiny", overrides=overrides)
        found = [check["code"] for check in told_of([evaluate(model, world.task, root=root)])["checks"]]
        assert [code for code in found if code == "TLM007"] == expected
        assert ("TLM006" in found) == (not head)


def test_groups_in_several_splits(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    task = Artifact.open(world.task)
    assert list(checks._divided(task)) == list(checks._divided(None)) == []
    task.counts["divided groups"] = 12
    (found,) = checks._divided(task)
    assert found.severity == checks.WARNING
    assert found.sentence.startswith("12 groups are in more than one split")


def test_a_word_that_tells_the_class(tmp_path: Path) -> None:
    """As a field of a template; not a word that all texts have, and not one that half of a class has."""
    found = {}
    for form in ("of {}", "of every", "of {} {}"):
        rows: list[Row] = []
        for number, text in enumerate(words(120, 8)):
            field = form.format("bill" if number % 2 else "ship", "") if form != "of {} {}" or number % 4 < 2 else ""
            rows.append((f"{text} {field}", None, ("paid", "sent")[number % 2], "train" if number < 100 else "test"))
        task = make_task(tmp_path / form, rows, "macro_f1", ["paid", "sent"])
        found[form] = found_by(checks._telling, task)
    ((code, severity, sentence),) = found.pop("of {}")
    assert (code, severity) == ("TLM013", checks.WARNING)
    assert sentence == (
        "'ship' alone tells the class paid: 100 % of the training texts with it are paid, and 100 % of paid have it; "
        "if new texts will not have it before they have a label, remove it."
    )
    assert list(found.values()) == [[], []]
    assert list(checks._telling(None, {})) == []


def test_words_of_many_labels_take_no_memory_for_each_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several labels a text, the one that a word tells is found; each second text of a pair is read alone."""
    texts = [" ".join(f"w{200 * row + word}" for word in range(200)) for row in range(100)]
    gold = np.ones((100, 100), int)
    gold[::2, 7] = 0
    firsts = [f"{text} a" for text in texts]
    train = Split("train", np.arange(100), firsts, ["b no", "b yes"] * 50, gold, np.arange(100), np.zeros(100, bool))
    monkeypatch.setattr(checks, "classes_of", lambda _: [f"c{place}" for place in range(100)])
    tracemalloc.start()
    ((_, _, sentence),) = checks._telling(cast("Artifact", object()), {"train": train})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sentence.startswith("'yes' alone tells the class c7: 100 % of the training texts with it are c7, and 100 %")
    assert peak < 50e6, "an entry for each of four million pairs would take that"


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
@pytest.mark.parametrize("far", [20231101, 1e200, None])
def test_a_target_that_outweighs_the_others(tmp_path: Path, metric: str, far: float | None) -> None:
    """It is named as it was typed, also where its square is infinite; ranks of test do not mind it, a fit does."""
    targets = np.random.default_rng(0).normal(5, 1, 105)
    targets[70:] = 3  # a test split of the same number
    if far:
        targets[[0, 70]] = far
    splits = ["train"] * 35 + ["dev"] * 35 + ["test"] * 35
    rows: list[Row] = [(f"text {row}", None, targets[row], split) for row, split in enumerate(splits)]
    found = [said for _, _, said in found_by(checks._outlying, make_task(tmp_path, rows, metric, None))]
    for name, effect in (("train", "models may learn little else"), ("test", "one text decides a correlation")):
        if far and (name == "train" or metric == "pearson"):
            share = found.pop(0).removeprefix(f"One target of {name}, {far}, has ")
            assert re.fullmatch(rf"(97|100) % of the variance of all 35, so {effect}; is it right\?", share)
    assert found == []


def test_prices_seldom_have_a_target_that_outweighs_the_others() -> None:
    """Of 50 numbers that spread as prices do, the largest has half of the variance in one case of four."""
    draw = np.random.default_rng(0)
    drawn = ({"dev": cast("Split", SimpleNamespace(gold=draw.lognormal(0, 1, 50)))} for _ in range(200))
    task = cast("Artifact", SimpleNamespace(details={"problem": "regression", "metric": "pearson"}))
    assert sum(len(list(checks._outlying(task, splits))) for splits in drawn) < 20
    assert list(checks._outlying(None, {})) == []


def test_labels_that_a_model_doubts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"kitchen": "soup pan stir boil", "road": "car wheel drive park"}
    labels = [("kitchen", "road")[number % 2] for number in range(60)]
    rows: list[Row] = [(f"{texts[one]} {number}", None, one, "train") for number, one in enumerate(labels)]
    rows[7] = (rows[7][0], None, "kitchen", "train")
    rows += [(text, None, label, split) for text, _, label, _ in rows[20:30] for split in ("dev", "test")]
    task = Artifact.open(make_task(tmp_path, rows, "macro_f1", [*texts]))
    task.counts.update(train=60, dev=10)
    assert list(checks._doubted(task)) == list(checks._doubted(None)) == []  # too few labels
    monkeypatch.setattr(checks, "LEAST_LABELS", 70)
    (found,) = checks._doubted(task)
    assert found.severity == checks.NOTE
    assert found.sentence.startswith("Labels of train and dev that look wrong: 1 of 70.")
    monkeypatch.setattr(checks, "MOST_LEARNED", 139)
    assert list(checks._doubted(task)) == []


def test_classes_with_hardly_any_examples(tmp_path: Path) -> None:
    counts = {"a": 40, "b": 4, "c": 5, "d": 2, **{f"e{number}": 3 for number in range(4)}}
    rows: list[Row] = [
        (f"{one} {number}", None, one, "train") for one, many in counts.items() for number in range(many)
    ]
    rows += [("test", None, "a", "test")]
    found, of_test = found_by(checks._rare, make_task(tmp_path, rows, "macro_f1", [*counts]))
    assert (found.code, found.severity) == ("TLM011", checks.NOTE)
    assert found.sentence == (
        "Fewer than 5 examples in train: 6 of 8 classes, d (2), e0 (3), e1 (3), e2 (3), e3 (3), …; label more, or "
        "merge classes."
    )
    assert of_test.sentence.startswith(
        "Fewer than 5 examples in test: 8 of 8 classes, b (0), c (0), d (0), e0 (0), e1 (0), …"
    )
    (alone,) = found_by(checks._rare, make_task(tmp_path / "accuracy", rows, "accuracy", [*counts]))
    assert alone == found
    enough = [row for row in rows if counts[str(row[2])] >= 5 and row[3] == "train"]
    assert found_by(checks._rare, make_task(tmp_path / "enough", enough, "macro_f1", ["a", "c"])) == []
    assert found_by(checks._rare, toy_world(tmp_path / "numbers", labels=None).task) == []


@pytest.mark.parametrize(("metric", "always"), [("macro_f1", 0.4737), ("f1", 0.0), ("accuracy", 0.9)])
def test_a_model_no_better_than_one_answer(metric: str, always: float, tmp_path: Path) -> None:
    rows: list[Row] = [(f"text {at}", None, "rare" if at % 10 == 0 else "a", "train") for at in range(40)]
    task = make_task(tmp_path, [*rows, *((*row[:3], "test") for row in rows[:20])], metric, ["a", "rare"])

    def found(mean: float) -> list[checks.Check]:
        best = cast(Any, {"name": "linear", "test": {"mean": mean, "std": None}})
        return found_by(lambda opened, splits: checks._constant(best, opened, splits), task)

    gold, answers = ["rare", *"aaaaaaaaa"] * 2, ["a"] * 20
    exact = f1_score(gold, answers, average="macro") if metric == "macro_f1" else always
    assert exact == pytest.approx(always, abs=1e-4)
    (check,) = found(exact)
    of_both = f"linear has {100 * always:.1f} on test, and always answering a would have {100 * always:.1f}"
    assert check == ("TLM015", checks.WARNING, f"{of_both}: so far, the model is of no use.")
    assert found(exact + 0.001) == []


def test_a_model_no_better_than_one_set_of_labels(tmp_path: Path) -> None:
    """Texts without a label are the most frequent, as in a task with a rare label."""
    rows = [(f"text {at}", ["rare"] if at % 10 == 0 else ["b", "c"] if at % 10 == 1 else []) for at in range(100)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps({"text": one, "label": many}) + "\n" for one, many in rows))
    task = load_task(str(tmp_path / "all.jsonl"), problem=Problem(metric="exact_match"), root=str(tmp_path))
    best = cast(Any, {"name": "linear", "test": {"mean": 0.7, "std": None}})
    (check,) = found_by(lambda opened, splits: checks._constant(best, opened, splits), task)
    assert "and always answering no label would have" in check.sentence


def test_a_test_split_that_is_all_in_train(tmp_path: Path) -> None:
    told = told_of(runs(toy_world(tmp_path, copies=range(40, 60))))
    assert of(told, "TLM002").startswith("All 20 test texts are in train too, so no score tells")
    assert "TLM002" not in codes(told_of(runs(toy_world(tmp_path / "none"))))


@pytest.mark.parametrize(("copies", "count"), [(range(30, 40), "10"), ([30, 31], "2"), ([30], "1")])
def test_a_dev_split_that_is_in_train(tmp_path: Path, copies: Sequence[int], count: str) -> None:
    verb = "is" if count == "1" else "are"
    sentence = of(told_of(runs(toy_world(tmp_path, copies=copies))), "TLM002")
    assert sentence.startswith(f"{count} of the 10 dev texts {verb} in train too, so dev prefers models that repeat")


FORM = "Dear customer , your order number {} was sent on {} from our store in the north"


def forms(near: Sequence[int]) -> list[str]:
    """Texts 30 to 39 are dev, 40 to 59 test; those `near` differ from a text of train in two fields only."""
    texts = words(60, 5)
    texts[3] = FORM.format("one", "monday")
    for row in near:
        texts[row] = FORM.format(f"n{row}", "friday")
    return texts


def test_texts_that_train_has_with_other_words(tmp_path: Path) -> None:
    """They are counted beyond exact copies; the scores are those without either."""
    near, copies = [30, 41, 42], [44, 45]
    world = toy_world(tmp_path, texts=forms(near), copies=copies)
    metrics = [*runs(world), baseline(world.task, root=str(tmp_path))]
    told = told_of(metrics)
    sentences = [check["sentence"] for check in told["checks"] if check["code"] == "TLM002"]
    assert len(sentences) == 3
    kept = [row for row in range(40, 60) if row not in (*near, *copies)]
    means = {
        name: 100 * np.mean([score_at(uri, kept) for uri in uris])
        for name, uris in (("best", metrics[:3]), ("linear", metrics[3:]))
    }
    best, of_linear = re.findall(r"has ([\d.]+\d)|linear model ([\d.]+\d)", sentences[1])
    assert told["best"]["name"] == "bm25"
    assert float(best[0]) == pytest.approx(means["best"], abs=0.051)
    assert float(of_linear[1]) == pytest.approx(means["linear"], abs=0.051)
    assert sentences[1].startswith(
        "2 of the 20 test texts are in train with some other words, which can raise every score. Without "
        "any such text, bm25 has "
    )
    assert sentences[2] == (
        "1 of the 10 dev texts is in train with some other words, so dev prefers models that repeat what they saw."
    )


def score_at(uri: str, rows: list[int]) -> float:
    """Macro-F1 on some examples, by scikit-learn."""
    table = pq.read_table(Artifact.open(uri).path("predictions.parquet")).to_pylist()
    chosen = [row for row in table if row["example"] in rows]
    gold, predicted = ([row[name] for row in chosen] for name in ("gold", "predicted"))
    return float(f1_score(gold, predicted, average="macro", labels=sorted({*gold, *predicted})))


def test_a_test_split_of_near_copies_alone(tmp_path: Path) -> None:
    """No score is without them; where the task is gone, nothing is said."""
    metrics = runs(toy_world(tmp_path, texts=forms(range(40, 60))))
    assert of(told_of(metrics), "TLM002") == (
        "20 of the 20 test texts are in train with some other words, which can raise every score."
    )
    groups = grouped([Artifact.open(uri) for uri in metrics])
    summary = groups[0].summary(Prices())
    assert list(checks._near_copies(groups, summary, None, {})) == []


def test_pairs_are_near_copies_only_as_pairs(tmp_path: Path) -> None:
    """One text of two beside another one is a new pair."""
    for name, expected in (("one", False), ("both", True)):
        firsts, others = words(60, 6), words(60, 7)
        rows: list[Row] = []
        for n, (text, pair) in enumerate(zip(firsts, others, strict=True)):
            text = FORM.format(f"n{n}", "friday") if n in (3, 50) else text
            pair = FORM.format(f"m{n}", "sunday") if n == 3 or (n == 50 and expected) else pair
            rows.append((text, pair, LABELS[n % 3], "train" if n < 30 else "dev" if n < 40 else "test"))
        task = make_task(tmp_path / name, rows, "macro_f1", LABELS)
        world = World(tmp_path / name, task, [f"passage {text}" for text in firsts])
        assert ("TLM002" in codes(told_of(runs(world)))) == expected


def test_almost_nothing_was_retrieved(tmp_path: Path, monkeypatch: Any) -> None:
    """Few passages, or passages of few queries."""
    metrics = runs(toy_world(tmp_path))
    sentence = of(told_of(metrics), "TLM012")
    assert re.match(r"The text of bm25 has \d\d passages, so this run does not say", sentence)
    monkeypatch.setattr(checks, "LEAST_PASSAGES", 10)
    groups = grouped([Artifact.open(uri) for uri in metrics])
    assert list(checks._hardly_retrieved(groups)) == []
    monkeypatch.setattr(checks, "follow", lambda *_: SimpleNamespace(counts={"queries": 30, "no hit": 16}))
    (found,) = checks._hardly_retrieved(groups)
    assert "16 of 30 queries found none" in found.sentence


def test_what_several_subsets_have_in_common_is_said_once(tmp_path: Path, monkeypatch: Any) -> None:
    told = checks.Check("TLM012", checks.WARNING, "The text of random has 57 passages.")
    monkeypatch.setattr(checks, "_hardly_retrieved", lambda _: [told, told])
    assert codes(told_of(runs(toy_world(tmp_path)))).count("TLM012") == 1


def test_warnings_come_first_and_pages_show_them_all(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks, "LEAST_PASSAGES", 10)
    monkeypatch.setattr(checks, "FEW_COPIES", 1.0)
    world = toy_world(tmp_path, copies=[41])
    metrics = [*runs(world), *runs(world, "task-only", seeds=2)]
    told = told_of(metrics)
    assert codes(told) == ["TLM003", "TLM002"]
    files = reported(tmp_path, metrics)
    for check in told["checks"]:
        for form in ("html", "md"):
            assert check["code"] in files[form]
            assert check["sentence"][:40] in files[form]


def test_the_documentation_explains_each_code() -> None:
    source = Path(checks.__file__).read_text(encoding="utf-8")
    used = set(re.findall(r'"(TLM\d{3})"', source))
    explained = re.findall(
        r"^\| <a id=\"(tlm\d{3})\"></a>(TLM\d{3}) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = "give each code of checks.py a row, in order, in the table at the end of docs/your-task.md, with its anchor"
    assert [anchor.upper() for anchor, _ in explained] == [code for _, code in explained] == sorted(used), told
