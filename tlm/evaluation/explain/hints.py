"""Hints at what decided an answer, where no exact account exists: gradients of encoders, and words left out."""

import re
from typing import Any

from tlm.evaluation.explain.exact import Explained
from tlm.evaluation.predict.predictor import Predictor

STEPS = 32  # on the way from the average token
MOST_WORDS = 200  # of a text, each left out in turn
GRADIENT = (
    "Gradient times input of each token, averaged on the way from the average token: a hint, not exact. It adds up to "
    "what the tokens together change in the logit of the class, roughly."
)
LEFT_OUT = (
    "By how much the answer falls without the word: a hint, not exact; words act together, so it adds up to nothing."
)


def gradient(classifier: Any, text: str, pair: str | None, place: int) -> Explained:
    """Gradient times input of each token, for the logit of the class in `place` (or the number).

    The gradient is the mean on the way from the average token to this one (integrated gradients, Sundararajan et al.,
    ICML 2017). At the end of the way alone it is near 0 in an encoder that has learned, whatever the token does:
    layers that normalise ignore the length of their input, and tanh is flat. Special tokens stay as they are.

    Args:
        classifier: A `tlm.evaluation.predict.classifier.Classifier`.
        text: The text.
        pair: The second text; None if there is none.
        place: Which class.
    """
    import torch

    model, tokenizer = classifier.model, classifier.tokenizer
    read = tokenizer.pad(classifier.read([text], None if pair is None else [pair]), return_tensors="pt")
    batch = {name: values.expand(STEPS, -1) for name, values in read.to(model.device).items()}
    ids, words = batch.pop("input_ids")[0], model.get_input_embeddings()
    own = torch.tensor([one not in tokenizer.all_special_ids for one in ids.tolist()], device=ids.device).unsqueeze(-1)
    with torch.no_grad():
        change = own * (words(ids) - words.weight.mean(0))
        shares = (torch.arange(STEPS, 0, -1, device=ids.device) - 0.5) / STEPS
        path = words(ids) - shares.reshape(-1, 1, 1) * change
    logits = model(**batch, inputs_embeds=path.requires_grad_()).logits
    (slopes,) = torch.autograd.grad(logits[:, place].sum(), path)
    values = (slopes.mean(0) * change).sum(-1)[own[:, 0]].tolist()
    return Explained.of(GRADIENT, zip(tokenizer.convert_ids_to_tokens(ids[own[:, 0]]), values, strict=True))


def left_out(predictor: Predictor, text: str, pair: str | None, place: int) -> Explained:
    """By how much the probability of the class (or the number) falls without each of the first `MOST_WORDS` words."""
    words = list(re.finditer(r"\S+", text))[:MOST_WORDS]
    texts = [text, *(text[: word.start()] + text[word.end() :] for word in words)]
    found = predictor.predict(texts, None if pair is None else [pair] * len(texts))[:, place]
    return Explained.of(LEFT_OUT, zip((word[0] for word in words), found[0] - found[1:], strict=True))
