"""A little of it: the short version of `make chaos PART=security`."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import missing, started
from tests.faults import browser, building, escapes, planted
from tests.faults.parts import security
from tests.faults.row import Row
from tlm.artifacts.stores.local import cache_folder
from tlm.errors import InputError

SEED = 7


def survived(rows: Iterable[Row]) -> None:
    """Something was tried, and nothing was lost (what was, stands in stderr)."""
    found = list(rows)
    assert found
    assert [row for row in found if row["tried"] != row["survived"] or not row["tried"]] == []


def all_well(outcomes: Iterable[str]) -> None:
    found = list(outcomes)
    assert found
    assert list(filter(None, found)) == []


def test_no_source_runs_data_as_code() -> None:
    all_well(security.code())


def test_a_pickle_is_found_wherever_it_is(tmp_path: Path) -> None:
    all_well(security.pickles(tmp_path))


def test_models_that_would_run_code_are_refused(tmp_path: Path) -> None:
    all_well(security.models(tmp_path / "models"))


def test_no_name_leads_out_of_a_root(tmp_path: Path) -> None:
    all_well(escapes.manifests(str(tmp_path), escapes.names(60, SEED)))


def test_no_name_leads_out_of_a_root_on_s3(s3_root: str) -> None:
    all_well(escapes.manifests(s3_root, escapes.names(40, SEED)))


def test_no_link_leads_out_of_a_root(tmp_path: Path) -> None:
    all_well(escapes.links(tmp_path))


def test_no_key_leads_out_of_the_downloads(tmp_path: Path) -> None:
    all_well(escapes.keys(tmp_path, escapes.names(20, SEED)))


def test_only_servers_that_are_meant_are_talked_to(tmp_path: Path) -> None:
    survived(security.addresses(tmp_path, (301, 307)))


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TLM_CACHE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = cache_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(InputError, match="can be written to by other users"):
        cache_folder()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="can be written to by other users"):
        cache_folder()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_named_cache_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    folder = tmp_path / "deep" / "cache"
    monkeypatch.setenv("TLM_CACHE", str(folder))
    assert cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(folder)
    for name in ("deep/cache", "link"):
        monkeypatch.setenv("TLM_CACHE", f"{tmp_path}/{name}")
        folder.chmod(0o755)
        assert cache_folder() == tmp_path / name
        folder.chmod(mode)
        with pytest.raises(InputError, match=f"^{tmp_path}/{name} can be written to by other users"):
            cache_folder()


def test_a_named_cache_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("a folder of another user: run as root")
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 65534, 65534)
    monkeypatch.setenv("TLM_CACHE", f"{tmp_path}/cache")
    with pytest.raises(InputError, match="can be written to by other users"):
        cache_folder()


def test_a_named_cache_that_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file", "file/cache"):
        monkeypatch.setenv("TLM_CACHE", f"{tmp_path}/{name}")
        with pytest.raises(
            InputError, match=rf"^{tmp_path}/{name} cannot be made .*; name another folder in TLM_CACHE$"
        ):
            cache_folder()


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    """By a parser; and in a browser. With CI=true a missing browser is a failure: .ci/run installs one."""
    survived(security.pages(tmp_path, range(SEED, SEED + 1), encoder=False))
    if browser.program() is None:
        missing(browser.MISSING)


def test_predictions_act_nowhere() -> None:
    all_well(security.predictions(500, SEED))


def test_the_dockerfile_installs_only_what_is_locked() -> None:
    all_well(building.faults_of_dockerfile())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    yield from started(lambda: planted.planted(tmp_path_factory.mktemp("planted")))


@pytest.mark.slow
def test_secrets_are_told_nowhere(run: planted.Run) -> None:
    survived(security.secrets(run, "bm25", some=True))
