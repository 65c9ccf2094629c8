"""How many threads a model computes with."""

import os

from tlm.errors import InputError

THREADS = "TLM_THREADS"


def given_threads() -> int | None:
    """The number of threads that ``TLM_THREADS`` asks for; None if it is not set.

    Raises:
        InputError: it is not a number of threads.
    """
    given = os.environ.get(THREADS)
    if not given:
        return None
    if given.isdecimal() and int(given) > 0:
        return int(given)
    raise InputError(f"{THREADS} is '{given}'; expected the number of CPU threads")


def cores() -> int:
    """The cores that this process may use: those of the machine, within the container's CPU limit (rounded up)."""
    from joblib import cpu_count  # a sixth of a second, which only those pay who compute

    return int(cpu_count())
