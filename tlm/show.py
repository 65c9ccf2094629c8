"""Showing settings: the presets there are, one of them with its sources."""

from collections.abc import Iterator, Sequence

from tlm import presets
from tlm.presets.cost import stage1_cost
from tlm.presets.published import Published, published, table_b1
from tlm.presets.scales import SCALES
from tlm.settings import SECTIONS, Preset

COLUMNS = ("preset", "K", "rho1", "rho2", "steps", "batch", "length", "model")


def show(preset: str = "", *, overrides: Sequence[str] = ()) -> str:
    """Print a preset: every setting, its value, what it means, where it comes from.

    Args:
        preset: Which one; without a name the presets there are.
        overrides: Settings to change, such as train.rho1=4.
    """
    if not preset:
        return "\n".join(_list())
    return "\n".join(_lines(presets.resolve(preset, overrides)))


def _list() -> Iterator[str]:
    yield _row(COLUMNS)
    yield "to try things out, and for one GPU (mini)"
    yield from (_row(_cells(presets.resolve(name))) for name in SCALES)
    for scale in table_b1()["scales"]:
        facts = published(scale)
        assert facts is not None
        yield f"{scale}: the paper's {scale} scale, corpus {facts.corpus}, Table B.1; without a task SciERC's column"
        names = [name for name in presets.names() if name.partition("-")[0] == scale]
        yield from (_row(_cells(presets.resolve(name))) for name in names)
    yield "tlm show NAME prints all settings of one, with their sources."


def _cells(preset: Preset) -> tuple[str, ...]:
    train, model = preset.train, preset.model
    length = f"{train.external_length}/{model.max_length}" if train.external_length != model.max_length else ""
    batch = f"{train.external_batch}/{train.internal_batch}" if train.external_batch != train.internal_batch else ""
    return (
        f"  {preset.name}", str(preset.retrieve.top_k), str(train.rho1), f"{float(train.rho2):g}", f"{train.steps:,}",
        batch or str(train.external_batch), length or str(model.max_length),
        f"{model.layers} layers of {model.hidden}",
    )  # fmt: skip


def _row(cells: Sequence[str]) -> str:
    first, *middle, last = cells
    return first.ljust(23) + "".join(cell.rjust(9) for cell in middle) + f"  {last}"


def _lines(preset: Preset) -> Iterator[str]:
    marks: dict[str, int] = {}
    for section, fields in SECTIONS.items():
        yield section
        values = getattr(preset, section)
        for name, field in fields.model_fields.items():
            setting = f"{section}.{name}"
            source = preset.source.get(setting, preset.source[section])
            mark = f"[{marks.setdefault(source, len(marks) + 1)}]"
            yield f"  {setting}={_plain(getattr(values, name))}".ljust(36) + f" {mark:4} {field.description}"
    yield "where the values come from"
    yield from (f"  [{mark}] {source}" for source, mark in marks.items())
    own_size = any(setting.partition(".")[0] in ("model", "tokenizer") for setting in _changed(preset))
    yield from _cost(preset, None if own_size else published(preset.name))


def _changed(preset: Preset) -> list[str]:
    return [setting for setting, source in preset.source.items() if source == presets.OVERRIDDEN]


def _cost(preset: Preset, facts: Published | None) -> Iterator[str]:
    cost = stage1_cost(preset)
    yield "what stage 1 comes to"
    yield f"  {cost.external_batches:,} external and {cost.internal_batches:,} internal batches"
    yield f"  {cost.padded_tokens:.3g} tokens, padding included"
    if facts is not None:
        flops = cost.flops(facts.printed_parameters)
        yield f"  {facts.parameters / 1e6:.1f}M parameters; the paper writes {facts.printed_parameters / 1e6:.0f}M"
        yield f"  {flops:.3g} FLOPs by the paper's rule, 6 · {facts.printed_parameters / 1e6:.0f}M · tokens"
    if facts is not None and facts.subset_gb is not None:
        yield f"  {facts.subset_gb:g} GB retrieved from {facts.corpus}"


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
