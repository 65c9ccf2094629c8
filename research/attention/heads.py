"""The command `heads`: score and speed of a model by the number of its attention heads."""

import json


def heads(model: str, *, steps: int = 10) -> None:
    """Print the score on dev and texts per CPU second for fewer and fewer attention heads, as lines of JSON.

    The least important heads are cut out first; `by_chance` are the scores of as many heads drawn at random. Each layer
    keeps one head.

    Args:
        model: URI of a fine-tuned model of the architecture bert.
        steps: How many numbers of heads, at even distances.
    """
    from research.attention.cut import by_share

    for row in by_share(model, steps):
        print(json.dumps(row), flush=True)
