"""Bad input, as a table: each case through the command line, with the sentence or the counts that are expected."""

import pytest

from tests.faults.case import Case, hits_of, nobody, running, texts_of, tlm
from tests.faults.cases import files, records, settings, text
from tlm.artifacts.artifact import Artifact

TABLE = {
    f"{group}: {name}": case
    for group, cases in (
        ("text", text.CASES),
        ("records", records.CASES),
        ("files", files.CASES),
        ("settings", settings.CASES),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", TABLE)
def test_bad_input(name, tmp_path, monkeypatch, capsys):
    case = TABLE[name]
    case.put(tmp_path)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TLM_ROOT", "root")
    uris = []
    for number in range(len(case.commands) - 1):
        code, out, err = tlm(case.arguments(number, uris), capsys)
        assert code == 0, err
        uris.append(out.strip())
    published = set(tmp_path.rglob("manifest.json"))
    with running(case.meanwhile), nobody(case.nobody):
        code, out, err = tlm(case.arguments(-1, uris), capsys)
    assert "Traceback" not in err
    assert case.says in err
    assert not list(tmp_path.glob("root/.scratch/*"))
    if isinstance(case.expected, str):
        refused(case.expected, code, out, err)
        assert set(tmp_path.rglob("manifest.json")) == published
    else:
        assert code == 0, err
        accepted(case, Artifact.open(out.strip()))


def refused(expected: str, code: int, out: str, err: str) -> None:
    """Exit code 2, the sentence in one line, nothing on stdout."""
    sentence = err.splitlines()[-1]
    assert (code, out) == (2, "")
    assert expected in sentence
    assert sentence.startswith(("tlm: ", "Error: "))  # of ours, or of the parser of options
    assert sentence.isprintable()


def accepted(case: Case, artifact: Artifact) -> None:
    """The counts and texts, and every row accounted for."""
    counts = artifact.counts
    assert {name: counts[name] for name in case.expected} == case.expected
    used = [name for name in ("documents", "train", "dev", "test") if artifact.manifest.kind in ("corpus", "task")]
    if used:
        assert counts["read"] == sum(counts.get(name, 0) for name in used) + sum(counts["rejected"].values())
    if case.texts is not None:
        assert texts_of(artifact) == list(case.texts)
    if case.hits is not None:
        assert [sorted(docs) for docs in hits_of(artifact)] == case.hits
