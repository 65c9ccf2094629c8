"""Settings that steps share: checked where they are made, and single parameters of commands and pipelines."""

import inspect
from typing import Any

import pytest

from research.rerank.reranked import filters_of
from tlm.cli.command import descriptions, flat
from tlm.errors import InputError
from tlm.settings.options import Compute, Fields, Filters, Layout, Options, Prices


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (Layout, {"words": 0}, "words is 0; expected 1 or more words per passage"),
        (Layout, {"words": 5, "overlap": 5}, "overlap is 5; expected 0 to 4, less than words"),
        (Layout, {"overlap": -1}, "overlap is -1; expected 0 to 99, less than words"),
        (Layout, {"text_field": ""}, "text_field is empty; give the name of the field with the text"),
        (Fields, {"text_field": ""}, "text_field is empty; give the name of the field"),
        (Fields, {"label_field": ""}, "label_field is empty; give the name of the field"),
        (Fields, {"pair_field": "label"}, "pair_field and label_field are both 'label'; expected different fields"),
        (Fields, {"pair_field": "text"}, "text_field and pair_field are both 'text'; expected different fields"),
        (Filters, {"jaccard": 0}, "jaccard is 0; expected a share above 0 and up to 1"),
        (Filters, {"jaccard": float("nan")}, "jaccard is nan; expected a share above 0 and up to 1"),
        (Filters, {"ngram": 2}, "ngram is 2; expected 3 to 1000: shorter runs of words are in every text"),
        (Prices, {"gpu_hour": 1e308}, "gpu_hour is 1e+308; expected a number, 0 or more, and less than 2**63"),
        (Filters, {"min_words": -1}, "min_words is -1; expected 0 (keep all) or more"),
        (Filters, {"overlap_share": 1.5}, "overlap_share is 1.5; expected a share above 0 and up to 1"),
        (Filters, {"passage_share": 0}, "passage_share is 0; expected a share above 0 and up to 1"),
        (Prices, {"kilowatt_hour": -1}, "kilowatt_hour is -1; expected a number, 0 or more"),
        (Prices, {"grams_per_kwh": -1}, "grams_per_kwh is -1; expected a number, 0 or more"),
        (Prices, {"gpu_hour": float("nan")}, "gpu_hour is nan; expected a number, 0 or more"),
        (Prices, {"cpu_hour": float("inf")}, "cpu_hour is inf; expected a number, 0 or more"),
        (Compute, {"save_steps": -1}, "save_steps is -1; expected 0 or more"),
        (Compute, {"save_minutes": -0.5}, "save_minutes is -0.5; expected 0 or more"),
    ],
)
def test_a_setting_out_of_its_range_is_one_sentence(kind: type[Options], values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        kind(**values)
    assert str(refused.value) == said


def test_whole_prices_are_those_with_a_fraction() -> None:
    assert repr(Prices(gpu_hour=3)) == repr(Prices(gpu_hour=3.0))


def test_the_filters_of_a_subset_are_read_from_its_settings() -> None:
    for filters in (Filters(), Filters(overlap=False), Filters(near_duplicates=False, ngram=5, min_words=0)):
        assert filters_of(filters.settings()).settings() == filters.settings()


def step(corpus: str, *, filters: Filters = Filters(near_duplicates=False), root: str | None = None) -> Any:
    """Do it.

    Args:
        corpus: URI of the corpus.
        filters: What is left out.
        ngram: Words, here.
        root: Store.
    """
    return corpus, filters, root


def test_a_dataclass_is_its_fields_in_its_place_with_the_defaults_of_the_function() -> None:
    parameters = inspect.signature(flat(step)).parameters
    assert [*parameters] == ["corpus", *vars(Filters()), "root"]
    assert (parameters["near_duplicates"].default, parameters["overlap"].default) == (False, True)
    assert flat(step)("c", jaccard=0.5) == ("c", Filters(near_duplicates=False, jaccard=0.5), None)
    with pytest.raises(InputError, match="jaccard is 5"):
        flat(step)("c", jaccard=5)


def test_the_function_s_own_words_come_first() -> None:
    told = descriptions(flat(step))
    assert (told["ngram"], told["root"]) == ("Words, here.", "Store.")
    assert told["overlap"] == descriptions(Filters)["overlap"]


def test_the_form_of_a_pipeline_has_prefixes_and_leaves_fine_settings_out() -> None:
    shown = flat(step, form=True, root="s3://b")
    assert [*inspect.signature(shown).parameters] == ["corpus", "filters_near_duplicates", "filters_overlap"]
    corpus, filters, root = shown(corpus="c", filters_near_duplicates="a placeholder", filters_overlap=True)
    assert (corpus, vars(filters), root) == ("c", {"near_duplicates": "a placeholder", "overlap": True}, "s3://b")
