"""Names of the models or subsets that a study compares."""

from collections.abc import Sequence

from tlm.errors import InputError


def unique_names(names: Sequence[str], default: Sequence[str], sources: Sequence[str], what: str) -> list[str]:
    """The names given on the command line, or the default ones if there are none.

    Args:
        names: Names given, in the order of `sources`; may be empty.
        default: Names to use otherwise.
        sources: URIs or folders of what is named, for the error message.
        what: What is named, in the plural.

    Raises:
        InputError: The number of names is wrong, or two of them are equal.
    """
    if names and len(names) != len(sources):
        raise InputError(f"{len(names)} names for {len(sources)} {what}; give one name for each, in their order")
    chosen = list(names or default)
    for name in chosen:
        same = [source for source, other in zip(sources, chosen, strict=True) if other == name]
        if len(same) > 1:
            raise InputError(f"{' and '.join(same[:2])} are both called '{name}'; give --names that differ")
    return chosen
