"""The commands `show` and `explain`: a preset with its sources, and why a model answers as it does."""

from collections.abc import Iterator, Sequence

from tlm.cli.command import descriptions
from tlm.errors import InputError
from tlm.evaluation.pages.plain import terminal
from tlm.progress import Answer
from tlm.settings import presets
from tlm.settings.presets import SCALES, paper_flops, published, stage1_cost, table_b1
from tlm.settings.sections import SECTIONS, Preset

COLUMNS = ("preset", "K", "rho1", "rho2", "steps", "batch", "length", "model")


def show(preset: str = "", *, overrides: Sequence[str] = ()) -> str:
    """Print a preset: every setting, its value, what it means, where it comes from.

    Args:
        preset: Name of the preset; without it, all presets are listed.
        overrides: A setting to change, such as train.rho1=4; may be repeated.
    """
    return "\n".join(_lines(presets.resolve(preset, overrides)) if preset else _list())


def _list() -> Iterator[str]:
    yield _row(COLUMNS)
    yield "our own: to try things out; mini for one GPU; the last two for published models, which keep their own shape"
    yield from map(_summary, SCALES)
    for scale, facts in table_b1()["scales"].items():
        yield f"{scale}: the paper's {scale} scale, corpus {facts['corpus']}, Table B.1; without a task SciERC's column"
        yield from (_summary(name) for name in presets.names() if name.partition("-")[0] == scale)
    yield "tlm show NAME prints all settings of one, with their sources."


def _summary(name: str) -> str:
    preset = presets.resolve(name)
    train, model = preset.train, preset.model
    batch = dict.fromkeys([train.external_batch, train.internal_batch])
    length = dict.fromkeys([train.external_length, model.max_length])
    cells = [preset.retrieve.top_k, train.rho1, f"{float(train.rho2):g}", f"{train.steps:,}"]
    cells += ["/".join(map(str, batch)), "/".join(map(str, length)), f"{model.layers} layers of {model.hidden}"]
    return _row([f"  {name}", *map(str, cells)])


def _row(cells: Sequence[str]) -> str:
    first, *middle, last = cells
    return first.ljust(23) + "".join(cell.rjust(9) for cell in middle) + f"  {last}"


def _lines(preset: Preset) -> Iterator[str]:
    marks: dict[str, int] = {}
    for section, fields in SECTIONS.items():
        yield section
        for name, meaning in descriptions(fields).items():
            setting, value = f"{section}.{name}", getattr(getattr(preset, section), name)
            source = preset.source.get(setting, preset.source[section])
            mark = f"[{marks.setdefault(source, len(marks) + 1)}]"
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            yield f"  {setting}={shown}".ljust(36) + f" {mark:4} {meaning}"
    yield "where the values come from"
    yield from (f"  [{mark}] {source}" for source, mark in marks.items())
    yield from _cost(preset)


def _cost(preset: Preset) -> Iterator[str]:
    cost = stage1_cost(preset)
    yield "what stage 1 comes to"
    yield f"  {cost.external_batches:,} external and {cost.internal_batches:,} internal batches"
    yield f"  {cost.padded_tokens:.3g} tokens, padding included"
    changed = {name.partition(".")[0] for name, source in preset.source.items() if source == presets.OVERRIDDEN}
    facts = published(preset.name)
    if facts is None or changed & {"model", "tokenizer"}:  # the paper's numbers hold for the size of its own models
        return
    flops = paper_flops(facts.printed_parameters, cost.padded_tokens)
    yield f"  {facts.parameters / 1e6:.1f}M parameters; the paper writes {facts.printed_parameters / 1e6:.0f}M"
    yield f"  {flops:.3g} FLOPs by the paper's rule, 6 · {facts.printed_parameters / 1e6:.0f}M · tokens"
    if facts.subset_gb is not None:
        yield f"  {facts.subset_gb:g} GB retrieved from {facts.corpus}"


def explain(model: str, text: str, *, pair: str = "", label: str = "", top: int = 10, device: str = "auto") -> Answer:
    """Say why a model answers a text as it does: what decided, the nearest training texts, passages it learned from.

    For linear and static models, the numbers of words and n-grams are exact: with the bias, they add up to the logit of
    the class. For a mixture, each part says what it adds to the answer; of several seeds, the first is explained. For
    encoders, the gradient times the input of each token is only a hint. For ONNX models and published embeddings, the
    change when a word is left out is only a hint, too. As JSON: all features, not only the first.

    Args:
        model: URI of a model, checkpoint, metrics or report, or a model folder (which does not know its texts).
        text: The text.
        pair: The second text, for a task on pairs.
        label: The class to explain; by default the likeliest.
        top: How many features, training texts and passages to show.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.
    """
    if top < 1 or not text.strip():
        raise InputError(f"top is {top} and the text has {len(text.split())} words; expected 1 or more of both")
    from tlm.evaluation.origins.explain import blocks, explained

    found = explained(model, text, pair or None, label, top, device)
    return Answer(terminal(blocks(found, top)), found)
