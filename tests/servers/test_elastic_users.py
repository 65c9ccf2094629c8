"""An index that several stores use, on a real server: it goes with the last of them."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.searchable import columns, corpus_of, docstrings, task_of
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores import identity, open_store
from tlm.cli.upkeep import gc
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.elastic_build import alias_of
from tlm.retrieval.search.index import build_index, located

TEXTS = list(docstrings()[:60])


@pytest.fixture
def stores(elasticsearch_root):
    """Two roots, each with the same corpus and its index."""
    roots = [f"{elasticsearch_root}/{name}" for name in ("one", "two")]
    return {root: indexed(root) for root in roots}


def indexed(root):
    return build_index(corpus_of(TEXTS, root), engine="elasticsearch", root=root)


def collect(root):
    """Remove all that is old there; all is."""
    folder = Path(os.path.realpath(root.removeprefix("file://")))
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)
    gc(keep_runs=0, unused_days=30 / 86_400, delete=True, root=root)
    assert not (folder / "index").exists()


def there(elasticsearch):
    return list(elasticsearch.indices.get(index="tlm-corpus-*"))


def test_an_index_stays_until_its_last_store_is_cleaned_up(stores, elasticsearch, capsys):
    (one, _), (two, index) = stores.items()
    name = located(Artifact.open(index))["index"]
    collect(one)
    assert f"the index '{name}' stays, as another store uses it" in capsys.readouterr().err
    assert columns(retrieve(index, task_of(TEXTS[:3], two), root=two), "hits.parquet")["doc"]
    collect(two)
    assert there(elasticsearch) == []


def test_a_store_counts_once_however_its_root_is_spelt(stores, elasticsearch, tmp_path, monkeypatch):
    (one, index), (two, _) = stores.items()
    (tmp_path / "link").symlink_to(one)
    monkeypatch.chdir(Path(one).parent)
    spelt = [f"{one}/", f"file://{one}", "one", f"{tmp_path}/link", f"{two}/../one"]
    for root in spelt:
        build_index(
            f"{one}/corpus/{Artifact.open(index).input('corpus').manifest.key}", engine="elasticsearch", root=root
        )
    (found,) = elasticsearch.indices.get(index="tlm-corpus-*").values()
    assert len([name for name in found["aliases"] if name.startswith("tlm-_")]) == 2
    collect(two)
    collect(spelt[3])
    assert there(elasticsearch) == []


def test_stores_that_begin_at_once_are_all_noted(elasticsearch_root, elasticsearch):
    roots = [f"{elasticsearch_root}/{number}" for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(indexed, roots))
    (found,) = elasticsearch.indices.get(index="tlm-corpus-*").values()
    assert {alias_of(identity(open_store(root))) for root in roots} <= set(found["aliases"])
    for root in roots[:-1]:
        collect(root)
        assert len(there(elasticsearch)) == 1
    collect(roots[-1])
    assert there(elasticsearch) == []


def test_stores_that_end_at_once_leave_no_index(elasticsearch_root, elasticsearch):
    roots = [f"{elasticsearch_root}/{number}" for number in range(4)]
    for root in roots:
        indexed(root)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(collect, roots))
    assert there(elasticsearch) == []


def test_a_copied_store_does_not_end_what_the_original_uses(stores, elasticsearch, tmp_path):
    (one, _), (two, _) = stores.items()
    collect(two)
    shutil.copytree(one, tmp_path / "copy")
    collect(f"{tmp_path}/copy")
    assert len(there(elasticsearch)) == 1


def test_folders_of_the_same_name_on_two_machines_are_two_stores(tmp_path):
    first = identity(open_store(str(tmp_path)))
    assert identity(open_store(f"file://{tmp_path}/")) == first
    (tmp_path / "store.json").unlink()  # as on a machine that has another folder there
    assert identity(open_store(str(tmp_path))) != first


def test_a_store_on_s3_counts_once_however_its_root_is_spelt(s3_root):
    assert len({identity(open_store(root)) for root in (s3_root, f"{s3_root}/", f"{s3_root}//")}) == 1
    assert identity(open_store(f"{s3_root}2")) != identity(open_store(s3_root))
    assert "other file" not in gc(root=s3_root)
