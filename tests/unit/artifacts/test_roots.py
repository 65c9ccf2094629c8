"""Where a step writes: the root that is named, else the store of its inputs; and it looks for all of them there."""

import shutil
from pathlib import Path

import pytest

from tests.searchable import corpus_of, docstrings, task_of
from tests.tiny import small_files
from tests.toys import make, random_model
from tests.toys_training import SMALL, checkpoint, passages, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.artifacts.stores import open_store
from tlm.artifacts.stores.s3 import S3Store
from tlm.errors import InputError
from tlm.evaluation.score.evaluate import evaluate
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.settings.options import Compute, Filters
from tlm.training.stages import finetune, train


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No root is named, and the default ``./artifacts`` would be seen."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("TLM_ROOT", raising=False)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    """A root in a file of parameters reaches us as it is written, and a folder called ~ is dangerous to remove."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert later(root="~/store").startswith(f"{tmp_path}/home/store/later/")


def test_a_home_of_nobody_and_a_folder_that_was_removed_are_a_sentence(tmp_path, monkeypatch):
    """A container's user has no home if it is not in /etc/passwd."""
    with pytest.raises(
        InputError, match=r"root '~nobody-s/store': Could not determine home dir.*; give the whole path"
    ):
        open_store("~nobody-s/store")
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    with pytest.raises(InputError, match=r"root 'artifacts': .*No such file or directory; give the whole path"):
        open_store(None)


def test_a_key_of_s3_removes_no_file_outside_the_cache(tmp_path):
    """`tlm gc` deletes what others wrote into the bucket, too, if it is called as a file of an artifact."""
    store = S3Store("s3://bucket")
    store.cache, name = tmp_path / "cache", f"task/{'0' * 24}"
    (store.cache / name).mkdir(parents=True)
    for file in (tmp_path / "mine.txt", store.cache / name / "ours.txt"):
        file.touch()
    store.forget(f"{name}/../../../mine.txt")
    store.forget(f"{name}/ours.txt")
    assert [path.name for path in tmp_path.rglob("*.txt")] == ["mine.txt"]


def test_a_fault_of_s3_is_not_taken_for_one_of_the_path(monkeypatch):
    """As in a pod without a folder for temporary files."""

    def fail(root: str) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tlm.artifacts.stores.opened", fail)
    with pytest.raises(FileNotFoundError, match="No usable temporary directory"):
        open_store("s3://bucket/prefix")


def test_a_small_file_that_finds_no_space_leaves_nothing(tmp_path):
    store = open_store(str(tmp_path / "store"))
    with small_files(10), pytest.raises(OSError, match="File too large"):
        store.write("task/used.json", b"more than that")
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_a_root_in_another_encoding_is_refused_before_any_work(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"root '.*/st-.*': the name is not valid UTF-8; rename the folder"):
        open_store(f"{tmp_path}/st-\udce9")
    (tmp_path / "here-\udce9").mkdir()
    monkeypatch.chdir(tmp_path / "here-\udce9")
    with pytest.raises(InputError, match="not valid UTF-8"):
        open_store(None)


def later(*inputs: str, root: str | None = None) -> str:
    """A step with these inputs that must not begin its work where it is refused."""
    opened = {f"input-{number}": Artifact.open(uri) for number, uri in enumerate(inputs)}
    return produce(Recipe("later", "later", 1, {}, opened), root, lambda draft: None)


def copy(uri: str, root: Path) -> str:
    """The artifact in another store."""
    artifact = Artifact.open(uri)
    shutil.copytree(uri, root / artifact.folder_name)
    return f"{root}/{artifact.folder_name}"


def test_steps_go_on_in_the_store_of_their_inputs(tmp_path):
    store = f"{tmp_path}/st"
    texts = list(docstrings()[:60])
    corpus, labelled = corpus_of(texts, store), task_of(texts[:4], store, held_out=("words that nobody wrote",))
    index = build_index(corpus)
    subset = export(retrieve(index, labelled, top_k=5), filters=Filters(overlap=False))
    assert subset.startswith(f"{store}/subset/")
    assert list(Path().iterdir()) == []


def test_training_and_its_snapshots_go_on_in_the_store_of_their_inputs(tmp_path):
    store = tmp_path / "st"
    examples = task(store)
    made = train(
        examples, tokenizer=tokenizer(store, examples), subset=passages(store, "subset"), preset="tiny",
        overrides=SMALL, compute=Compute(device="cpu", save_steps=4),
    )  # fmt: skip
    model = finetune(made, examples, preset="tiny", compute=Compute(device="cpu", save_steps=4))
    metrics = evaluate(model, examples, device="cpu")
    assert {uri.rsplit("/", 2)[0] for uri in (made, model, metrics)} == {str(store)}
    assert list(Path().iterdir()) == []
    assert not (store / "progress").exists()


def test_a_named_root_goes_before_that_of_the_inputs(tmp_path, monkeypatch):
    source = make("source", tmp_path / "st", lambda draft: None, {})
    copy(source, tmp_path / "argument")
    copy(source, tmp_path / "environment")
    monkeypatch.setenv("TLM_ROOT", f"{tmp_path}/environment")
    assert later(source).startswith(f"{tmp_path}/environment/later/")
    assert later(source, root=f"{tmp_path}/argument").startswith(f"{tmp_path}/argument/later/")


def test_inputs_of_two_stores_need_a_root(tmp_path):
    one, two = (make("source", tmp_path / name, lambda draft: None, {"name": name}) for name in ("a", "b"))
    with pytest.raises(InputError, match=rf"^{one} and {two} lie in different stores; name one .* with --root"):
        later(one, two)


def test_an_input_that_is_not_where_the_step_writes_is_named_before_any_work(tmp_path):
    source = make("source", tmp_path / "st", lambda draft: None, {})
    with pytest.raises(InputError, match=rf"^{source} is not in {tmp_path}/other, .*; give --root {tmp_path}/st, or"):
        later(source, root=f"{tmp_path}/other")
    assert not (tmp_path / "other").exists()


def test_one_of_the_same_name_and_other_content_is_not_the_input(tmp_path):
    def write(text: str, draft: Draft) -> None:
        (draft.folder / "text").write_text(text)

    source = make("source", tmp_path / "st", lambda draft: write("one", draft), {})
    make("source", tmp_path / "other", lambda draft: write("another", draft), {})
    with pytest.raises(InputError, match=f"^{source} is not in {tmp_path}/other, "):
        later(source, root=f"{tmp_path}/other")


def test_what_the_inputs_were_made_from_has_to_be_there_too(tmp_path):
    """Else a later step would miss it, after the work of this one."""
    first = make("first", tmp_path / "st", lambda draft: None, {})
    second = make("second", tmp_path / "st", lambda draft: None, {}, {"of": first})
    copy(second, tmp_path / "other")
    with pytest.raises(InputError, match=f"^{first} is not in {tmp_path}/other, "):
        later(second, root=f"{tmp_path}/other")
    copy(first, tmp_path / "other")
    assert later(second, root=f"{tmp_path}/other").startswith(f"{tmp_path}/other/later/")


def test_a_store_may_be_reached_by_another_path(tmp_path):
    source = make("source", tmp_path / "st", lambda draft: None, {})
    (tmp_path / "link").symlink_to(tmp_path / "st")
    assert later(source, root=f"{tmp_path}/link").startswith(f"{tmp_path}/link/later/")


@pytest.mark.parametrize("alone", [True, False])
def test_training_with_inputs_elsewhere_tokenizes_nothing(tmp_path, alone):
    examples, far = task(tmp_path / "st"), passages(tmp_path / "far", "subset")
    vocabulary = tokenizer(tmp_path / "st", examples)
    with pytest.raises(InputError, match=r"is not in|in different stores"):
        train(examples, tokenizer=vocabulary, subset="" if alone else far, root=f"{tmp_path}/other" if alone else None)
    start = checkpoint(tmp_path / "st", examples, alone=True)
    with pytest.raises(InputError, match="is not in"):
        finetune(start.uri, task(tmp_path / "st", rows(train=30)), preset="tiny", root=f"{tmp_path}/other")
    assert not (tmp_path / "other").exists()
    assert len(list((tmp_path / "st" / "tokens").iterdir())) == 1  # those of the checkpoint


def test_retrieve_looks_for_the_corpus_before_it_searches(tmp_path, monkeypatch):
    """Its hits would be of no use: export needs the corpus."""
    texts = list(docstrings()[:60])
    corpus, labelled = corpus_of(texts, f"{tmp_path}/st"), task_of(texts[:4], f"{tmp_path}/st")
    index = build_index(corpus)
    shutil.rmtree(corpus)
    monkeypatch.setattr("tlm.artifacts.produce.scratch_folder", lambda *_: pytest.fail("the work has begun"))
    with pytest.raises(InputError, match=r"was made from corpus/.*, which is gone; run its step again"):
        retrieve(index, labelled, top_k=5, root=f"{tmp_path}/st")


def test_evaluate_looks_for_what_the_model_was_made_from_before_it_computes(tmp_path, monkeypatch):
    examples = task(tmp_path / "st")
    start, model = random_model(tmp_path / "st", examples, ["the court and the judge", "a ship in the harbour"])
    shutil.rmtree(Artifact.open(start).input("task_tokens").input("tokenizer").uri)
    monkeypatch.setattr("tlm.artifacts.produce.scratch_folder", lambda *_: pytest.fail("the work has begun"))
    with pytest.raises(InputError, match=r"was made from tokenizer/.*, which is gone; run its step again"):
        evaluate(model, examples, device="cpu", root=f"{tmp_path}/st")
