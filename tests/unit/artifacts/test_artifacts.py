"""Artifacts in a local folder: named by what made them, whole or absent, verified when read."""

import errno
import fcntl
import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.making import everything, expected, fill, leftovers, make, recipe
from tests.tiny import refused
from tlm.artifacts.artifact import (
    Artifact,
    FileEntry,
    Manifest,
    add_files,
    content_digest,
    follow,
    remove,
    share_inputs,
)
from tlm.artifacts.produce import Recipe, produce
from tlm.artifacts.stores import open_store
from tlm.artifacts.stores.local import LocalStore, make_folder, scratch_folder
from tlm.artifacts.stores.store import canonical_json, check_url, signed_json, tls_cure, value_sha256
from tlm.errors import InputError

# ---- names and digests


@given(st.permutations(["upto", "seed", "name"]))
def test_the_key_does_not_depend_on_the_order_of_settings(names):
    assert recipe(**{name: name for name in names}).key == recipe(upto="upto", seed="seed", name="name").key


def test_the_key_depends_on_all_that_decides_a_result(tmp_path):
    source, other = make(f"{tmp_path}"), make(f"{tmp_path}", lambda draft: fill(draft, "another"), seed=1)
    base = {"kind": "a", "step": "b", "version": 1, "settings": {"x": 1}, "inputs": {"source": source}}
    variants = [
        base,
        *({**base, **change} for change in ({"kind": "z"}, {"step": "z"}, {"version": 2}, {"settings": {"x": 2}})),
        {**base, "inputs": {}},
        {**base, "inputs": {"source": other}},
        {**base, "inputs": {"renamed": source}},
    ]
    assert len({Recipe(**variant).key for variant in variants}) == len(variants)


def test_the_key_depends_on_an_inputs_content_and_not_on_its_place(tmp_path):
    here, there = make(f"{tmp_path}/here"), make(f"{tmp_path}/there")
    keys = {Recipe("a", "b", 1, {}, {"source": source}).key for source in (here, there)}
    assert len(keys) == 1


def test_canonical_json_refuses_what_has_no_equal():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": float("nan")})
    assert value_sha256({"a": 1, "b": [1, "ä"]}) == value_sha256({"b": [1, "ä"], "a": 1})


NAME = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}[A-Za-z0-9]", fullmatch=True) | st.sampled_from(
    ["like-0123456789abcdef", "like-0123456789abcdef.tar.gz", "like-0123456789abcdef-0123456789abcdef.txt"]
)


@settings(deadline=None)  # it writes files
@given(names=st.sets(NAME, min_size=1, max_size=4), inner=NAME)
def test_published_files_keep_their_logical_names(tmp_path_factory, names, inner):
    folder = tmp_path_factory.mktemp("draft")
    for name in names:
        (folder / f"file-{name}").write_text(name)
        (folder / f"folder-{name}").mkdir()
        (folder / f"folder-{name}" / inner).write_text(name)
    store = LocalStore(folder / "store")
    entries = add_files(store, "made", folder, {f"file-{name}": 7 for name in names})
    logical = {entry.logical: entry for entry in entries}
    assert set(logical) == {f"file-{name}" for name in names} | {f"folder-{name}/{inner}" for name in names}
    assert all(logical[f"file-{name}"].rows == 7 for name in names)
    assert all(store.local(f"made/{entry.name}").stat().st_size == entry.size for entry in entries)
    shutil.rmtree(folder)


def test_two_hundred_thousand_files_keep_their_order():
    digest = "0123456789abcdef" * 4
    names = [f"passages-{number:05d}.parquet" for number in range(200_000)]
    files = [FileEntry(name=name.replace(".", f"-{digest[:16]}."), size=1, sha256=digest, rows=1) for name in names]
    files.sort(key=lambda entry: entry.name)
    facts = {"settings": {}, "inputs": {}, "counts": {}, "details": {}, "step": "made", "version": 1}
    made = Manifest(kind="corpus", key="0" * 24, content=content_digest(files, {}), files=files, **facts)
    again = Artifact(LocalStore(Path("nowhere")), Manifest.from_bytes(made.to_bytes(), "here"))
    assert [entry.logical for entry in again.entries("passages-*.parquet")] == names


# ---- publishing and finding


def test_what_was_made_is_found_and_never_made_twice(tmp_path):
    first = make(f"{tmp_path}")
    again = make(f"{tmp_path}", lambda draft: pytest.fail("made twice"))
    assert again.uri == first.uri == f"{tmp_path}/hits/{recipe().key}"
    assert everything(again) == expected()
    assert (again.counts, again.details, again.run()["threads"]) == ({"numbers": 100}, {"largest": 99}, 1)
    assert {entry.logical: entry.rows for entry in again.entries("*.txt")} == {"numbers.txt": 50}


def test_content_is_equal_in_another_folder_and_at_another_time(tmp_path):
    first, second = make(f"{tmp_path}/a"), make(f"{tmp_path}/b")
    assert first.content == second.content
    assert first.manifest == second.manifest


@pytest.mark.parametrize("change", [lambda draft: fill(draft, "otherwise"), lambda draft: draft.details.update(x=1)])
def test_content_follows_files_and_details(tmp_path, change):
    def write(draft):
        fill(draft)
        change(draft)

    assert make(f"{tmp_path}/a").content != make(f"{tmp_path}/b", write).content


def test_content_ignores_counts_and_run(tmp_path):
    def write(draft):
        fill(draft)
        draft.counts["numbers"], draft.run["threads"] = 1, 8

    assert make(f"{tmp_path}/a").content == make(f"{tmp_path}/b", write).content


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_whoever_may_enter_the_folder_may_read_the_files(tmp_path, umask, mode):
    """safetensors closes its files to others, and a colleague could list a model, but not use it."""

    def write(draft):
        fill(draft)
        (draft.folder / "model" / "config.json").chmod(0o600)

    before = os.umask(umask)
    try:
        path = make(f"{tmp_path}", write).path("model/config.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_in_the_folder_of_a_group_all_members_may_read_and_write_whatever_their_umask(tmp_path):
    """Else a colleague's step works for an hour, and may then not publish beside what another made first."""
    (store := tmp_path / "store").mkdir()
    store.chmod(0o2770)
    before = os.umask(0o077)
    try:
        make(f"{store}")
        make_folder(private := tmp_path / "private")
    finally:
        os.umask(before)
    found = list(store.rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o2770}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o640}
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_file_in_place_of_a_folder_is_no_sign_that_the_artifact_exists(tmp_path):
    (tmp_path / "model").touch()
    with pytest.raises(NotADirectoryError):
        LocalStore(tmp_path).create("model/0123/manifest.json", b"{}")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_store_that_only_others_may_write_to_is_named_with_what_to_do(tmp_path, monkeypatch, code):
    def refuse(path, **_):
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = refused(make, f"{tmp_path}")
    asked = "ask its owner to let you, or name another folder: for downloads in TLM_CACHE, or a copy of the whole store"
    assert said == f"{tmp_path}/.scratch cannot be written to: {os.strerror(code)}; {asked} with --root"


def test_new_releases_of_openssl_say_otherwise_that_a_server_has_no_tls():
    assert "http://" in tls_cure("[SSL: RECORD_LAYER_FAILURE] record layer failure (_ssl.c:1033)", "its authority")


def test_the_manifest_is_removed_first_so_that_half_an_artifact_is_none(tmp_path, monkeypatch):
    made, removed = make(f"{tmp_path}"), []
    monkeypatch.setattr(LocalStore, "delete", lambda _, name: removed.append(name))
    remove(made.store, made.folder_name)
    assert removed[0] == f"{made.folder_name}/manifest.json"
    assert len(removed) == len([path for path in Path(made.uri).rglob("*") if path.is_file()]) > 1


def test_a_step_that_fails_leaves_nothing(tmp_path):
    def write(draft):
        fill(draft)
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        make(f"{tmp_path}", write)
    assert list(open_store(f"{tmp_path}").list("")) == []
    assert leftovers(tmp_path / ".scratch") == []


def test_the_first_of_two_writers_wins_and_the_second_changes_nothing(tmp_path):
    def slower(draft):
        fill(draft, "too late")
        make(f"{tmp_path}")  # meanwhile another one publishes

    late = make(f"{tmp_path}", slower)
    assert everything(late) == expected()
    assert everything(make(f"{tmp_path}")) == expected()


def test_an_artifact_is_a_sub_folder_of_its_root_as_a_file_uri_too(tmp_path):
    made = make(f"file://{tmp_path}")
    assert made.uri == make(f"{tmp_path}").uri
    assert everything(Artifact.open(f"file://{tmp_path}/{made.folder_name}/")) == expected()


def test_the_root_is_given_or_in_the_environment_or_here(monkeypatch, tmp_path):
    monkeypatch.setenv("TLM_ROOT", "/there")
    assert [open_store(root).root for root in ("/given", None, "")] == ["/given", "/there", "/there"]
    monkeypatch.delenv("TLM_ROOT")
    monkeypatch.chdir(tmp_path)
    assert open_store(None).root == f"{tmp_path}/artifacts"


def test_a_place_on_s3_with_one_slash_is_no_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="root 's3:/bucket/x' has one slash; give s3://bucket/prefix"):
        open_store("s3:/bucket/x")


# ---- reading


def test_paths_lead_to_files_and_folders_by_the_names_their_step_gave(tmp_path):
    made = make(f"{tmp_path}")
    assert made.path("numbers.txt").read_bytes() == expected()["numbers.txt"]
    model = made.path("model")
    assert (model / "deep" / "weights.bin").read_bytes() == expected()["model/deep/weights.bin"]
    assert made.path("model/config.json") == model / "config.json"
    assert [path.suffix for path in map(made.verified, made.entries("*.parquet"))] == [".parquet"]
    with pytest.raises(InputError, match=r"no file 'nombers.txt'; it has .*numbers\.txt"):
        made.path("nombers.txt")


def test_inputs_are_found_by_lineage_under_the_same_root(tmp_path):
    root = f"{tmp_path}"
    source = make(root)
    middle = Artifact.open(produce(Recipe("middle", "m", 1, {}, {"numbers": source}), root, lambda draft: None))
    last = Artifact.open(produce(Recipe("last", "l", 1, {}, {"of": middle}), root, lambda draft: None))
    assert last.input("of").input("numbers").uri == source.uri
    assert [one.uri for one in last.lineage()] == [last.uri, middle.uri, source.uri]
    with pytest.raises(InputError, match="no input 'numbers'; it has of"):
        last.input("numbers")


def test_followed_inputs_are_opened_once_and_none_where_they_are_gone_or_another(tmp_path):
    root = f"{tmp_path}"
    source = make(root)
    middle = Artifact.open(produce(Recipe("middle", "m", 1, {}, {"numbers": source}), root, lambda draft: None))
    inputs = {"numbers": source, "of": middle}
    first, second = (
        Artifact.open(produce(Recipe("last", "l", 1, {"n": number}, inputs), root, lambda draft: None))
        for number in range(2)
    )
    found = follow(first, "of", "numbers")
    assert found is not None
    assert found.uri == source.uri
    assert follow(first, "numbers") is found
    assert follow(second, "numbers") is not found
    share_inputs([first, second])
    assert follow(first, "numbers") is follow(second, "of", "numbers")
    assert follow(first, "nombers") is follow(None, "numbers") is follow(first, "nombers", "numbers") is None
    assert [one.uri for one in first.lineage()] == [first.uri, source.uri, middle.uri]  # the nearest first
    assert first.nearest("middle") is follow(first, "of")
    assert first.nearest("corpus") is None
    shutil.rmtree(source.uri)
    again = Artifact.open(first.uri)
    assert (follow(again, "numbers"), [one.uri for one in again.lineage()]) == (None, [first.uri, middle.uri])
    make(root, lambda draft: fill(draft, "otherwise"))
    assert follow(Artifact.open(first.uri), "numbers") is None


def test_an_input_that_is_gone_or_another_is_said(tmp_path):
    root = f"{tmp_path}"
    source = make(root)
    later = Artifact.open(produce(Recipe("later", "l", 1, {}, {"numbers": source}), root, lambda draft: None))
    shutil.rmtree(source.uri)
    with pytest.raises(InputError, match="which is gone; run"):
        later.input("numbers")
    make(root, lambda draft: fill(draft, "otherwise"))
    with pytest.raises(InputError, match=r"differs from what .* was made from; run the later step again"):
        later.input("numbers")


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("{root}/hits/0123", "no finished hits here"),
        ("{root}/nombers/{key}", "no finished nombers here"),
        ("numbers", "no artifact URI"),
        ("", "no artifact URI"),
        ("gs://bucket/hits/{key}", "scheme 'gs' is not known"),
    ],
)
def test_a_uri_that_leads_nowhere_is_said_in_one_sentence(tmp_path, uri, sentence):
    make(f"{tmp_path}")
    with pytest.raises(InputError, match=sentence):
        Artifact.open(uri.format(root=tmp_path, key=recipe().key))


def test_an_artifact_of_another_kind_is_refused(tmp_path):
    with pytest.raises(InputError, match="is hits; expected letters or words"):
        Artifact.open(make(f"{tmp_path}").uri, "letters", "words")


# ---- damage


def manifest_of(tmp_path: Path) -> Path:
    return Path(make(f"{tmp_path}").uri) / "manifest.json"


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2}, {"schema_name": "other"}, {"surprise": 1}, {"files": "none"},
        {"details": {"largest": 98}}, {"content": "0" * 64}, {"files": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_is_not_what_was_published_is_said(tmp_path, change):
    path = manifest_of(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(InputError, match=r"manifest\.json: .*; repeat its step$"):
        Artifact.open(f"{path.parent}")


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"surprise": 1}], ids=str)
def test_what_a_newer_version_made_is_neither_read_nor_replaced(tmp_path, change):
    """A store may be shared by machines of which one is upgraded first."""
    path = manifest_of(tmp_path)
    facts = json.loads(path.read_bytes()) | change
    del facts["sha256"]
    path.write_bytes(newer := signed_json(facts))
    with pytest.raises(InputError, match="a newer tlm wrote it; upgrade here"):
        Artifact.open(f"{path.parent}")
    with pytest.raises(InputError, match="a newer tlm wrote it; upgrade here"):
        make(f"{tmp_path}")
    assert path.read_bytes() == newer


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "..", ".", "a/./b", "a//b", "", "a/", "a\\b", "a\n", "a b", "ä"]
)
def test_a_file_name_that_leaves_the_folder_is_refused(tmp_path, name):
    manifest = json.loads(manifest_of(tmp_path).read_bytes())
    manifest["files"][0]["name"] = name
    del manifest["sha256"]
    with pytest.raises(InputError, match=r"files\.0\.name.*leaves the artifact's folder"):
        Manifest.from_bytes(signed_json(manifest), "here")


def test_a_copied_manifest_is_not_mistaken_for_another_artifact(tmp_path):
    made = make(f"{tmp_path}")
    shutil.copytree(made.uri, f"{tmp_path}/hits/elsewhere")
    with pytest.raises(InputError, match=r"is the manifest of hits/.*; move it back there"):
        Artifact.open(f"{tmp_path}/hits/elsewhere")


# ---- the store underneath (what both stores do is in tests/servers/test_both_stores.py)


def test_no_empty_folders_are_left(tmp_path):
    store = LocalStore(tmp_path / "root")
    store.write("a/b/c", b"1")
    store.write("a/d", b"1")
    store.delete("a/b/c")
    assert not (store.folder / "a/b").exists()
    store.delete("a/d")
    assert not (store.folder / "a").exists()
    assert store.folder.exists()


def test_a_folder_of_the_living_is_not_swept_and_one_of_the_dead_is(tmp_path):
    with scratch_folder(tmp_path, "mine") as mine, scratch_folder(tmp_path, "mine") as other:
        assert mine != other
        (mine / "file").write_text("still there")
        dead = tmp_path / "dead-0000"
        dead.mkdir()
        (tmp_path / "dead-0000.lock").touch()
        with scratch_folder(tmp_path, "third"):
            assert (mine / "file").exists()
            assert not dead.exists()
    assert leftovers(tmp_path) == []


def test_small_files_of_the_dead_are_swept_when_they_are_old(tmp_path):
    old, new = tmp_path / "tmp-old", tmp_path / "tmp-new"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    with scratch_folder(tmp_path, "mine"):
        assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("lacking", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])  # exFAT; network drives; FUSE
def test_file_systems_without_links_locks_and_synced_folders_will_do(tmp_path, monkeypatch, lacking):
    def refused(*_):
        raise OSError(lacking, os.strerror(lacking))

    def sync(handle, real=os.fsync):
        refused() if stat.S_ISDIR(os.fstat(handle).st_mode) else real(handle)

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(os, "fsync", sync)
    made = make(f"{tmp_path}")
    assert everything(made) == expected()
    assert not open_store(f"{tmp_path}").create(f"{made.folder_name}/manifest.json", b"another")
    assert make(f"{tmp_path}", lambda draft: pytest.fail("made twice")).manifest == made.manifest
    assert leftovers(tmp_path / ".scratch") == []
    (tmp_path / ".scratch/others.lock").touch()
    (tmp_path / ".scratch/others").mkdir()
    with scratch_folder(tmp_path / ".scratch", "mine") as mine:  # who knows whether the other process lives
        assert mine.is_dir()
        assert (tmp_path / ".scratch/others").is_dir()


def test_links_among_unfinished_files_reach_nothing_outside(tmp_path):
    """A store that somebody else gave us may have them: what is swept there, and its locks, must not be elsewhere."""
    theirs = tmp_path / "theirs"
    (theirs / "notes").mkdir(parents=True)
    for name in ("notes.lock", "old"):
        (theirs / name).write_text("precious")
        os.utime(theirs / name, (0, 0))
    store = LocalStore(tmp_path / "root")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.scratch").symlink_to(theirs)
    with pytest.raises(InputError, match="leads out of"):
        store.scratch()
    assert {path.name for path in theirs.iterdir()} == {"notes", "notes.lock", "old"}
    (tmp_path / "root/.scratch").unlink()
    (tmp_path / "root/.scratch").mkdir()
    (tmp_path / "root/.scratch/new.lock").symlink_to(tmp_path / "created")
    with scratch_folder(store.scratch(), "mine"):
        assert not (tmp_path / "created").exists()
        assert not (tmp_path / "root/.scratch/new.lock").is_symlink()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="which file a handle is of, only Linux tells")
def test_all_is_on_the_disk_before_the_manifest_appears(tmp_path, monkeypatch):
    """A power cut may lose what is not synced: data, the manifest's own bytes, the names in a folder."""
    synced: set[int | Path] = set()  # inodes of files (their names still change), paths of folders
    before: set[int | Path] = set()  # those synced before the manifest appeared
    sync, link = os.fsync, os.link

    def watched_sync(handle):
        sync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced.add(path if path.is_dir() else path.stat().st_ino)

    def watched_link(source, target):
        before.update(synced)
        synced.clear()
        link(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "link", watched_link)
    folder = Path(produce(recipe(), f"{tmp_path}", fill))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 6
    assert {path.name for path in files if path.stat().st_ino not in before} == set()
    assert {path.parent for path in files} <= before
    assert folder in synced, "the name of the manifest itself"


@pytest.mark.parametrize("address", ["https://me:hun ter2@host", "me:hunter2@host:1", "https://me:hun\tter2@host:9200"])
def test_passwords_in_broken_addresses_are_not_shown(address, monkeypatch):
    with pytest.raises(InputError, match="expected https://host:port") as error:
        check_url(address, "TLM_ELASTICSEARCH_URL")
    assert "ter2" not in str(error.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
    with pytest.raises(InputError, match="AWS_ENDPOINT_URL_S3 has a password in it") as error:
        open_store("s3://bucket/prefix").read("x")
    assert "ter2" not in str(error.value)


def test_a_password_in_boto3_s_own_file_is_refused_too(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[default]\nendpoint_url = https://me:hunter2@host:9000\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # which has read the file of earlier tests
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="has a password in it") as error:
        open_store("s3://bucket/prefix").read("x")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("Hostname mismatch, certificate is not valid for 'a'", "give a host that the certificate names"),
        ("IP address mismatch, certificate is not valid for '::1'", "give a host that the certificate names"),
        ("authority and subject key identifier mismatch", "name the authority"),
    ],
)
def test_only_where_a_certificate_names_other_hosts_is_the_host_at_fault(said, cure):
    assert tls_cure(f"certificate verify failed: {said}", "name the authority") == cure
