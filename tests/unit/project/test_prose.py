"""The checker of texts: bare references, and words that no text should use."""

import pytest

from tests import prose


@pytest.mark.parametrize(
    "docstring",
    [
        "See `Engine.search`.", "See Engine.search", "see also: tlm.training.loop.Work.", "As in the base class.",
        "Same as `train()`.", "Ditto.", "That of `error`.", "Implements `Store`.",
        "See the\n    docstring of LayeredBody.embed.", "See `Body.read`. See also `Body.embedding`.",
    ],
)  # fmt: skip
def test_a_bare_reference(docstring):
    assert prose.is_bare_reference(docstring)


@pytest.mark.parametrize(
    "docstring",
    [
        "Search for a query, see `Engine.search`.", "See `Engine.search`; the server returns at most 10,000 hits.",
        "See `Engine.search`. Scores are those of Lucene.",
        "Like `ngrams`, but a text with fewer than `n` tokens has one.", "Assemble a batch.", "Return the hits.",
    ],
)  # fmt: skip
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


WRONG = (
    "The fetched passages.|Fetch the model again.|What a passage is worth.|as told by the server|How to mend it|"
    "Drop those\n    that repeat.|Ten passages, of which five repeat.|Random text is shown to be worse.|"
    "A request is put off.|Guests are let in."
)


@pytest.mark.parametrize("text", WRONG.split("|"))
def test_words_that_no_text_should_use(text):
    assert len(list(prose.wrong_words(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Passages that BM25 retrieved.", "Run `tlm download`; it sets `told`.",
        "```\ntlm download $model my-model  # worth it\n```\n", "those who read; that which was shown",
        "Recommend it, amend it: worthwhile.", "A setting of whichever kind.",
        "The input lets inference begin, and puts offers in order.",
    ],
)  # fmt: skip
def test_other_words(text):
    assert list(prose.wrong_words(text)) == []


def test_words_are_found_in_docstrings_and_sentences_with_their_lines_and_names_are_not():
    source = '''"""Retrieve passages.

What they are worth.
"""

def told(row):
    """Say it."""
    return f"{row['told']} was fetched"
'''
    found = [(line, advice) for first, text in prose.texts(source) for line, advice in prose.wrong_words(text, first)]
    assert [(line, advice.split("'")[1]) for line, advice in found] == [(3, "worth"), (8, "fetched")]


def test_lines_of_a_page_are_counted_across_its_code():
    assert [line for line, _ in prose.wrong_words("# Page\n\n```\nfetched\n```\n\nA `told`, told.\n")] == [7]


def test_places_are_printed_and_lint_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prose, "HOME", tmp_path)
    (tmp_path / "tlm").mkdir()
    assert prose.main() == 0
    (tmp_path / "tlm" / "one.py").write_text('def one():\n    """See `two`."""\n')
    assert prose.main() == 1
    assert capsys.readouterr().out.splitlines()[0].startswith("tlm/one.py:2: ")
    (tmp_path / "tlm" / "one.py").write_text('def one():\n    return "What it is worth."\n')
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/page.md", "docs/ERRATA.md"):
        (tmp_path / page).write_text("Those that remain.\n")
    assert prose.main() == 1
    places = [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()]
    assert places == ["README.md:1", "docs/page.md:1", "tlm/one.py:2"]
