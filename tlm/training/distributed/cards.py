"""GPUs for steps that run at once on one machine: each waits for some that no other step has.

A step has a GPU while it holds the lock of a file. The lock ends with the process, however that ends.
"""

import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tlm.progress import say

LOCKS = "TLM_GPU_LOCKS"  # the folder of these files; without it, steps take the GPUs that they see
VISIBLE = "CUDA_VISIBLE_DEVICES"
WAIT_SECONDS = 0.5


@contextmanager
def own_cards(device: str, count: int) -> Iterator[None]:
    """Wait for `count` free GPUs, or all if there are fewer. In the block CUDA sees these alone.

    It does nothing if ``TLM_GPU_LOCKS`` is not set, or if `device` is the CPU or a GPU that somebody chose (cuda:1).
    CUDA must not be in use yet in this process.
    """
    cards = _cards() if count and os.environ.get(LOCKS) and device in ("auto", "cuda") else []
    if not cards:
        yield
        return
    before = os.environ.get(VISIBLE)
    with ExitStack() as locks:
        own = _taken(cards, min(count, len(cards)), locks)
        os.environ[VISIBLE] = ",".join(own)
        try:
            yield
        finally:
            os.environ.pop(VISIBLE) if before is None else os.environ.update({VISIBLE: before})


def _cards() -> list[str]:
    """The GPUs that this process may use, by index or UUID."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        named = [card.strip() for card in visible.split(",") if card.strip()]
        return list(itertools.takewhile(lambda card: not card.startswith("-"), named))  # from -1 on, none
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def _taken(cards: list[str], count: int, locks: ExitStack) -> list[str]:
    """Lock `count` of these cards, all at the same moment, so that no two steps wait for each other."""
    folder = Path(os.environ[LOCKS])
    folder.mkdir(parents=True, exist_ok=True)
    waited = False
    while True:
        with ExitStack() as held:
            own: list[str] = []
            for card in cards:
                if len(own) < count and _lock(folder / card.replace("/", "-"), held):
                    own.append(card)
            if len(own) == count:
                locks.push(held.pop_all())
                return own
        if not waited:
            say(f"waits for {count} free GPU{'s' if count > 1 else ''}: other steps have them")
            waited = True
        time.sleep(WAIT_SECONDS)


def _lock(path: Path, held: ExitStack) -> bool:
    """Whether the file could be locked until the end of `held`."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    held.callback(file.close)
    return True
