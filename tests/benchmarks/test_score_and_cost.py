"""The picture of score against cost of choosing, from the results that are kept."""

from pathlib import Path

from research.benchmarks.score_and_cost import ROLES, draw, scores, seconds
from research.paper.results import FOLDER

RESULTS = Path(__file__).parents[2] / FOLDER
UNTIMED = {"", "task-only"}  # the linear model alone, and the control, which fetches nothing


def test_each_selector_has_its_time_and_its_scores_at_the_same_places():
    taken, scored = seconds(RESULTS), scores(RESULTS)
    assert set(taken) == {("scierc", 0.48), ("scierc", 0.1), ("scierc", 0.02), ("acl-arc", 0.48)}
    for place, costs in taken.items():
        assert set(costs) == set(ROLES) == set(scored[place]) - UNTIMED
        assert {len(runs) for runs in scored[place].values()} == {3}


def test_the_picture_names_places_and_selectors():
    drawn = draw(RESULTS)
    for text in ("SciERC, 48% on topic", "SciERC, 2% on topic", "ACL-ARC, 48% on topic", *ROLES, "CPU seconds"):
        assert text in drawn
    assert drawn == draw(RESULTS)
