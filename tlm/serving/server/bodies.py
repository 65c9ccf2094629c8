"""Bodies of requests: received within limits of size, number and time, and parsed beside the event loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from tlm.errors import InputError
from tlm.serving.server.batcher import Busy
from tlm.serving.server.protocol import Asked

SMALL = 1 << 14  # bytes; such a body is parsed sooner than another thread is asked
RECEIVE_SECONDS = 60  # what arrives more slowly would take room from others


class Bodies:
    """Receives bodies and parses them, one at a time in a thread if they are large.

    Attributes:
        held: Bytes of requests that are received, wait or are being predicted, as they were sent.
    """

    def __init__(self, most_bytes: int, most_held: int) -> None:
        """Hold nothing yet; `most_bytes` is the largest body, and `most_held` what all may have together."""
        self.held = 0
        self._most_bytes, self._most_held = most_bytes, most_held
        self._thread = ThreadPoolExecutor(1, "parse")

    @asynccontextmanager
    async def asked(self, request: Request, read: Callable[[Any], Asked]) -> AsyncIterator[Asked]:
        """What a request asks for, by `read` of its JSON value. Its bytes count as held until the block ends.

        Raises:
            InputError: the body ends early, is not JSON, or `read` raises it.
            HTTPException: the body is too large (413) or too slow (408).
            Busy: too many bytes are held by others.
        """
        body, size = bytearray(), 0
        try:
            await self._receive(request, body)
            size = len(body)
            if size <= SMALL:
                found = _parsed(body, read)
            else:
                found = await asyncio.get_running_loop().run_in_executor(self._thread, _parsed, body, read)
            body.clear()  # the texts take as much memory, or up to four times as much
            yield found
        finally:
            self.held -= size or len(body)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Append what arrives. What finds no room is received and dropped: who still sends reads no answer."""
        size, busy = 0, ""
        if request.headers.get("content-length", "").isdecimal():
            self._refuse_large(int(request.headers["content-length"]))  # rather than wait for it
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    self._refuse_large(size)
                    busy = busy or self._lacks_room(len(body), len(part))
                    if busy:
                        self.held -= len(body)
                        body.clear()
                    else:
                        self.held += len(part)
                        body += part
        except ClientDisconnect:
            raise InputError("the connection ended before the body") from None
        except TimeoutError:
            raise HTTPException(408, f"the body took more than {RECEIVE_SECONDS} seconds; send it faster") from None
        if busy:
            raise Busy(busy)

    def _lacks_room(self, own: int, more: int) -> str:
        """Why a body that holds `own` bytes may not hold `more`, or "". A body alone always may."""
        others = self.held - own
        if not others or self.held + more <= self._most_held:
            return ""
        return f"{others} bytes of requests are waiting, and {self._most_held} may; try again in a second"

    def _refuse_large(self, size: int) -> None:
        if size > self._most_bytes:
            raise HTTPException(413, f"the body has more than {self._most_bytes} bytes; send fewer texts")


def _parsed(body: bytearray, read: Callable[[Any], Asked]) -> Asked:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON in UTF-8") from None
    return read(value)
