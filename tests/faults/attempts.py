"""Experiments that are tried many times, and commands that are repeated as their sentences ask."""

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tests.faults.row import Row
from tests.faults.tally import tally
from tlm.errors import InputError, Interrupted, TlmError

T = TypeVar("T")
PATIENCE = 300.0  # seconds: longer than any server is gone


def trials(what: str, experiment: Callable[[int], object], seeds: Iterable[int]) -> Row:
    """One experiment for each seed; it survives if it raises nothing."""
    return tally(what, (_outcome(experiment, seed) for seed in seeds))


def _outcome(experiment: Callable[[int], object], seed: int) -> str:
    try:
        experiment(seed)
    except Exception:
        return f"seed {seed}: {traceback.format_exc()}"
    return ""


def repeated(command: Callable[[], T], pause: float = 1.0) -> tuple[T, list[TlmError]]:
    """What the command gives in the end, repeated after each error of ours; and those errors, each one sentence."""
    said: list[TlmError] = []
    started = time.monotonic()
    while True:
        try:
            return command(), said
        except (InputError, Interrupted) as error:
            said.append(error)
        assert str(said[-1]).isprintable(), said[-1]
        assert time.monotonic() < started + PATIENCE, said[-1]
        time.sleep(pause)


@contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """These variables set (or, with None, unset) for a while."""
    before = {name: os.environ.get(name) for name in variables}
    _put(variables)
    try:
        yield
    finally:
        _put(before)


def _put(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
