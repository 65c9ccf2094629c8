"""`tlm show` and `tlm advise`: what a person reads, and what a pipeline takes."""

import pytest

from tests.toys import make_task
from tlm.cli.command import descriptions
from tlm.cli.show import show
from tlm.runs.advise import advise_command
from tlm.settings import presets
from tlm.settings.sections import SECTIONS
from tlm.settings.selectors import RERANKED, SELECTORS


def test_the_list_has_every_preset_once_under_its_scale():
    lines = show().splitlines()
    first = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(first) == sorted(presets.names())
    scales = [name.partition("-")[0] for name in first]
    assert list(dict.fromkeys(scales)) == [
        "tiny", "demo", "pocket", "mini", "finetune", "adapt", "small", "medium", "large",
    ]  # fmt: skip
    assert scales == sorted(scales, key=list(dict.fromkeys(scales)).index)  # those of a scale stand together
    assert max(map(len, lines)) <= 120
    assert [line.split(":")[0] for line in lines if ": the paper's" in line] == ["small", "medium", "large"]


@pytest.mark.parametrize("name", ["pocket", "small", "large-imdb", "small-glue"])
def test_each_value_stands_with_its_meaning_and_its_source(name):
    preset, text = presets.resolve(name), show(name)
    sources = dict(line.strip().split(" ", 1) for line in text.splitlines() if line.startswith("  ["))
    for section, fields in SECTIONS.items():
        for field, meaning in descriptions(fields).items():
            line = next(line for line in text.splitlines() if line.startswith(f"  {section}.{field}="))
            assert line.endswith(meaning)
            mark = next(word for word in line.split() if word.startswith("["))
            assert sources[mark] == preset.source.get(f"{section}.{field}", preset.source[section])


def test_what_the_paper_prints_beside_its_settings_is_told():
    text = show("large-imdb")
    assert "495,000 external and 5,000 internal batches" in text
    assert "355.4M parameters; the paper writes 355M" in text
    assert "11 GB retrieved from C_RoBERTa" in text
    assert "parameters" not in show("pocket").rpartition("stage 1 comes to")[2]


def test_a_changed_value_is_marked_and_a_changed_size_claims_no_parameters():
    assert presets.OVERRIDDEN in show("small", overrides=["train.lr=0.5"])
    for change in ("model.layers=3", "tokenizer.vocab_size=20000"):
        assert "109.5M" not in show("small", overrides=[change])
    assert "109.5M" in show("small", overrides=["train.lr=0.5"])


def task(root, train, words):
    text = " ".join(["word"] * words)
    rows = [(f"{text} {i}", None, "ab"[i % 2], "train") for i in range(train)]
    rows += [(f"{text} {split}", None, "a", split) for split in ("dev", "test")]
    return make_task(root, rows, "macro_f1", ["a", "b"])


def test_advice_is_read_on_stderr_and_taken_from_stdout(tmp_path, capsys):
    overrides = advise_command(task(tmp_path, 40, 120), preset="small")
    assert presets.resolve("small", overrides.split()).retrieve == presets.resolve("small").retrieve.model_copy(
        update={"query": "rake"}
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert "40 training examples are fewer than 5,000" in err
    assert "121 words" in err
    assert err.count("\n- ") == 5


def test_advice_on_selectors_names_selectors_that_were_judged(tmp_path, capsys):
    advise_command(task(tmp_path, 40, 12))
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("- Text: ")]
    assert said.startswith("- Text: the arm bm25; ")
    judged, where = said.split(" has a significantly higher score, ")
    names = judged.partition("; none of ")[2].replace(" and ", ", ").split(", ")
    assert {"random", "dsir", "hybrid", RERANKED} <= set(names) <= SELECTORS.keys() - {"bm25"}
    assert "CPU time, not FLOPs" in where
    assert "research/RESULTS.md" in where
