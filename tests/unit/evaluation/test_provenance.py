"""`provenance`: sources and licences are counted as they are, pages are inert, and the bill is valid CycloneDX."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toys import make, save, words
from tests.unit.shallow.test_shallow import task_of
from tlm.artifacts.artifact import Artifact, remove
from tlm.artifacts.produce import Draft
from tlm.cli.command import flat
from tlm.data.corpus.load import load_corpus
from tlm.data.passages import passages
from tlm.errors import InputError
from tlm.evaluation.origins.provenance import count_sources, provenance
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.mix import mix
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export, import_subset
from tlm.settings.options import Layout

LICENCES = ["MIT", "CC-BY-4.0 OR MIT", "Our <b>own</b> words", None, ""]
SOURCES = ["news | wire", "<script>alert(1)</script>", "web"]


def corpus_file(folder: Path, count: int = 120) -> str:
    """Passages of three sources and four licences; some have none."""
    rows: list[dict[str, Any]] = [
        {"text": f"{text} because of {place}", "from": SOURCES[place % 3], "terms": LICENCES[place % 5]}
        for place, text in enumerate(words(count, 3))
    ]
    rows += [{"text": "a passage without the field", "from": "web"}]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder / "corpus.jsonl")


def load(path: str, root: Path, **values: Any) -> Artifact:
    return Artifact.open(flat(load_corpus)([path], root=str(root), **values), "corpus")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A corpus with licences, a subset of it, and the metrics of a model of the subset."""
    root = tmp_path_factory.mktemp("made")
    corpus = load(corpus_file(root / "in"), root, source_field="from", license_field="terms")
    task = task_of(root, "plain")
    subset = export(retrieve(build_index(corpus.uri, root=str(root)), task, top_k=3, root=str(root)), root=str(root))
    return {"corpus": corpus.uri, "subset": subset, "metrics": static(task, subset=subset, root=str(root))}


# Licences in the corpus


def test_a_passage_has_the_licence_of_its_document(tmp_path: Path) -> None:
    corpus = load(corpus_file(tmp_path), tmp_path, source_field="from", license_field="terms", words=4)
    rows = [row for batch in passages(corpus) for row in batch.to_pylist()]
    places = {f"corpus.jsonl:{place + 1}": LICENCES[place % 5] or "" for place in range(120)}
    assert len(rows) > 150
    assert {row["license"] for row in rows} == {"MIT", "CC-BY-4.0 OR MIT", "Our <b>own</b> words", ""}
    assert all(row["license"] == places.get(row["id"].partition("#")[0], "") for row in rows)
    assert corpus.counts["rejected"] == {}


def test_without_the_field_keys_and_columns_are_those_of_before(tmp_path: Path) -> None:
    old = {"text_field": "text", "id_field": "", "source_field": "", "words": 100, "overlap": 0}
    assert Layout().settings() == old
    corpus = load(corpus_file(tmp_path), tmp_path)
    assert corpus.manifest.settings.keys() == {*old, "files"}
    assert next(passages(corpus)).schema.names == ["doc", "id", "text", "source"]


def test_parts_know_licences_as_one_does(tmp_path: Path) -> None:
    path, options = corpus_file(tmp_path), {"source_field": "from", "license_field": "terms"}
    one = load(path, tmp_path / "one", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tlm.data.corpus.load.part_size", lambda files, least: 2_000)
        several = load(path, tmp_path / "several", **options)
    assert several.run()["parts"] > 1
    assert (several.manifest.key, several.content) == (one.manifest.key, one.content)


def test_a_misspelt_field_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no field 'term'.*did you mean 'terms'"):
        load(corpus_file(tmp_path), tmp_path, license_field="term")


# Counts


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "y"]), st.booleans()), min_size=1, max_size=40)
)
@settings(max_examples=15, deadline=None)
def test_counts_are_those_of_a_loop(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, bool]]
) -> None:
    root = tmp_path_factory.mktemp("counts")
    half = len(rows) // 2

    def corpus(draft: Draft) -> None:
        for shard, part in enumerate(filter(None, (rows[:half], rows[half:]))):
            sources, licences, _ = (list(column) for column in zip(*part, strict=True))
            save(draft, f"passages-{shard:05d}.parquet", {"source": sources, "license": licences})

    def subset(draft: Draft) -> None:
        save(draft, "passages-00000.parquet", {"doc": [doc for doc, row in enumerate(rows) if row[2]]})

    given_rows = {"license_field": "terms", "rows": [list(row) for row in rows]}
    opened = [
        Artifact.open(make(kind, root, write, given_rows)) for kind, write in (("corpus", corpus), ("subset", subset))
    ]
    whole, taken = count_sources(opened[0], opened[1:])
    assert whole == Counter(row[:2] for row in rows)
    assert taken == Counter(row[:2] for row in rows if row[2])


def test_every_passage_of_the_subset_has_its_source_and_licence(made: dict[str, str]) -> None:
    found = provenance(made["subset"]).facts
    (corpus,) = found["corpora"]
    table = {row["doc"]: (row["source"], row["license"]) for row in rows_of(made["corpus"])}
    expected = Counter(table[row["doc"]] for row in rows_of(made["subset"]))
    assert {
        (row["source"], row["license"]): row["subsets"][0] for row in corpus["sources"] if row["subsets"][0]
    } == expected
    assert sum(row["passages"] for row in corpus["sources"]) == corpus["passages"] == len(table)
    assert corpus["subsets"][0]["passages"] == expected.total()


def rows_of(uri: str) -> list[dict[str, Any]]:
    return [row for batch in passages(Artifact.open(uri)) for row in batch.to_pylist()]


def test_of_a_report_it_is_that_of_the_model_that_it_recommends(made: dict[str, str]) -> None:
    facts = provenance(report([made["metrics"]])).facts
    assert facts["subject"]["key"] == Artifact.open(made["metrics"]).input("model").manifest.key
    assert facts["subject"]["name"] == "static-bm25"


# Pages and the bill


@pytest.mark.parametrize("kind", ["corpus", "subset", "metrics"])
def test_pages_and_bill_of_each_kind(made: dict[str, str], tmp_path: Path, kind: str) -> None:
    answer = provenance(made[kind], to=str(tmp_path / "out"))
    page = (tmp_path / "out" / "provenance.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "not stated" in page
    assert json.loads((tmp_path / "out" / "provenance.json").read_text(encoding="utf-8")) == answer.facts
    text = (tmp_path / "out" / "bom.cdx.json").read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    provenance(made[kind], to=str(tmp_path / "again"))
    assert (tmp_path / "again" / "bom.cdx.json").read_text(encoding="utf-8") == text


def test_the_bill_lists_sources_with_licences_files_with_hashes_and_what_depends_on_what(
    made: dict[str, str], tmp_path: Path
) -> None:
    facts = provenance(made["metrics"], to=str(tmp_path)).facts
    bill = json.loads((tmp_path / "bom.cdx.json").read_text(encoding="utf-8"))
    listed = {one["bom-ref"]: one for one in [bill["metadata"]["component"], *bill["components"]]}
    depends = {one["ref"]: set(one.get("dependsOn", ())) for one in bill["dependencies"]}
    corpus, subset, metrics = ("/".join(made[kind].split("/")[-2:]) for kind in ("corpus", "subset", "metrics"))
    assert set(depends) <= set(listed)
    assert set().union(*depends.values()) <= set(listed)
    assert bill["metadata"]["component"]["bom-ref"] == metrics
    assert corpus in depends[subset]
    (model,) = (ref for ref in depends[metrics] if ref.startswith("model/"))
    assert listed[model]["type"] == "machine-learning-model"
    assert subset in depends[model]
    sources = [listed[ref] for ref in depends[corpus] if "#source" in ref]
    assert len(sources) == len(facts["corpora"][0]["sources"])
    known = [one["licenses"][0] for one in sources if "licenses" in one]
    names = {one.get("expression") or one["license"].get("id") or one["license"]["name"] for one in known}
    assert names == {"MIT", "CC-BY-4.0 OR MIT", "Our <b>own</b> words"}
    (file,) = (listed[ref] for ref in depends[corpus] if "#file" in ref)
    assert file["name"] == "corpus.jsonl"
    assert file["hashes"] == [{"alg": "SHA-256", "content": facts["files"][0]["digest"]}]


def test_an_address_to_write_to_is_refused_before_anything_is_counted(
    made: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("tlm.evaluation.origins.provenance.contents")
    with pytest.raises(InputError, match="s3://bucket/out is not on this machine"):
        provenance(made["corpus"], to="s3://bucket/out")


def test_without_the_library_there_is_a_page_and_a_sentence(
    made: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "tlm.evaluation.origins.bom", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cyclonedx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclonedx", None)
    provenance(made["corpus"], to=str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"provenance.{form}" for form in ("html", "json", "md")]
    assert "'.[bom]'" in capsys.readouterr().err


def test_what_is_gone_is_named(tmp_path: Path) -> None:
    task = task_of(tmp_path, "plain")
    metrics = static(task, root=str(tmp_path))
    assert "It was made without a corpus." in provenance(metrics)
    opened = Artifact.open(task)
    remove(opened.store, opened.folder_name)
    assert f"Deleted or changed: task {opened.manifest.key[:12]}" in " ".join(provenance(metrics).split())


def test_reasons_for_what_was_left_out_are_listed(made: dict[str, str]) -> None:
    found = {step["kind"]: step for step in provenance(made["subset"]).facts["dropped"]}
    assert found.keys() == {"corpus", "task", "hits", "subset"}
    counts = Artifact.open(made["subset"]).counts
    left_out = {reason["reason"]: reason["count"] for reason in found["subset"]["reasons"]}
    assert left_out
    assert all(counts[reason] == count for reason, count in left_out.items())


def test_samples_of_an_imported_subset_are_not_of_a_corpus_that_it_is_not_from(
    made: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "chosen.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("too short", *words(60, 8))))
    task = Artifact.open(made["metrics"]).input("task").uri
    imported = import_subset(str(file), task=task)
    both = mix([made["metrics"], static(task, subset=imported, seed=1), baseline(task)])
    steps = [step for step in provenance(both).facts["dropped"] if step["kind"] == "subset"]
    shown = [sample["text"] for step in steps for reason in step["reasons"] for sample in reason["samples"]]
    (unknown,) = (one for one in steps if any(reason["reason"] == "too short" for reason in one["reasons"]))
    assert any(shown)  # of the subset that the corpus is behind
    assert not any(sample["text"] for reason in unknown["reasons"] for sample in reason["samples"])
