"""The checker of docstrings: what is a bare reference, and what says something of its own."""

import pytest

from tests import prose


@pytest.mark.parametrize(
    "docstring",
    [
        "See `Engine.search`.",
        "See Engine.search",
        "see also: tlm.training.loop.Work.",
        "As `fit`.",
        "As above.",
        "As in the base class.",
        "Like ``Store.read`` and ``Store.write``.",
        "Same as `train()`.",
        "The same.",
        "Ditto.",
        "Cf. `Body.read`.",
        "That of `error`.",
        "Implements `Store`.",
        "See the\n    docstring of LayeredBody.embed.",
        "See `Body.read`. See also `Body.embedding`.",
    ],
)
def test_a_bare_reference(docstring):
    assert prose.is_bare_reference(docstring)


@pytest.mark.parametrize(
    "docstring",
    [
        "Search for a query, see `Engine.search`.",
        "See `Engine.search`; the server returns at most 10,000 hits.",
        "See `Engine.search`. Scores are those of Lucene.",
        "As many as ``TLM_THREADS`` says.",
        "As config.json has it, without what says nothing about the model.",
        "Like `ngrams`, but a text with fewer than `n` tokens has one.",
        "Assemble a batch.",
        "Seeds of all runs.",
        "Same shape.",
        "Return the hits.",
    ],
)
def test_a_sentence_of_its_own(docstring):
    assert not prose.is_bare_reference(docstring)


def test_docstrings_of_modules_classes_and_functions_are_read_with_their_lines():
    source = '''"""See tlm.runs."""

class Engine:
    """As `Store`."""

    def search(self):
        """See `Engine.search`."""

    async def close(self):
        """Close the connection."""

    def note(self):
        text = "See `Engine.search`."
'''
    assert sorted(prose.bare_references(source)) == [
        (1, "See tlm.runs."), (4, "As `Store`."), (7, "See `Engine.search`.")
    ]  # fmt: skip


def test_places_are_printed_and_lint_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prose, "HOME", tmp_path)
    (tmp_path / "tlm").mkdir()
    assert prose.main() == 0
    (tmp_path / "tlm" / "one.py").write_text('def one():\n    """See `two`."""\n')
    assert prose.main() == 1
    assert capsys.readouterr().out.splitlines()[0].startswith("tlm/one.py:2: ")
