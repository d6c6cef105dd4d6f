"""Reads the one message of a call, within limits of time and of memory for all calls together.

gRPC reports a message's size only once it has arrived, and keeps what has arrived in memory. So
only a few calls are read at once, and keys take turns. A call whose message is not there quickly
gives up its turn and from then on counts with the most that gRPC lets in, until the message has
arrived. Messages that are not being read stay on the client's side, except for their first 64 KiB.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc

from service.admission.drain import Drain
from service.errors import BodyTooLargeError, InvalidRequestError, SlowSenderError
from service.serving.limits import longest_seconds
from service.tenants.caller import Caller
from service.tenants.turns import Turns
from service.tenants.upload_room import UploadRoom

AT_ONCE_SECONDS = 1.0
_READ_AT_ONCE = 32
_MOST_WAITING = 4096
# How long gRPC's core may take to cancel a call whose message it refused.
_REFUSAL_SECONDS = 0.05
# The caller's own clock ends its call as ours does, and its cancellation may arrive first.
_DEADLINE_SLACK_SECONDS = 0.25


def most_received(limit: int) -> int:
    """Return the limit to set in gRPC where messages may have ``limit`` bytes. When gRPC refuses a
    message, it looks to us as if the client had left. So messages that are a little too large are
    let in, and we refuse them."""
    return limit + limit // 4


class Arrivals:
    """Reads messages of at most ``limit`` bytes. ``receive_timeout``: as for bodies over HTTP."""

    def __init__(self, limit: int, receive_timeout: float, drain: Drain, room: UploadRoom) -> None:
        self._limit = limit
        self._seconds = longest_seconds(limit, receive_timeout)
        self._drain = drain
        self._room = room
        self._turns = Turns(
            _READ_AT_ONCE,
            most_waiting=_MOST_WAITING,
            what="reading messages",
        )
        self._calls: Counter[str] = Counter()  # that wait or have a turn, by connection

    async def read(self, context: Any, caller: Caller) -> bytes:
        """Return the one message of the call.

        Raises BodyTooLargeError; InvalidRequestError if there is none; OverloadedError;
        SlowSenderError when it does not arrive in time; DrainingError when the server begins to
        shut down meanwhile.
        """
        reading: asyncio.Future[Any] | None = None
        try:
            with self._room.arriving(caller) as gained:
                async with self._turn(caller.owner, context.peer()):
                    reading = asyncio.ensure_future(context.read())
                    with self._turns.timed():
                        done, _ = await asyncio.wait({reading}, timeout=AT_ONCE_SECONDS)
                    if not done:
                        gained(most_received(self._limit))
                message = reading.result() if done else await self._rest(reading)
            if message is grpc.aio.EOF:
                # Either there is none, or the core refused it, or the client is leaving; then this
                # task is cancelled shortly.
                await asyncio.sleep(_REFUSAL_SECONDS)
                raise InvalidRequestError("The call ended without a message.")
        finally:
            if reading is not None:
                reading.cancel()
        if len(message) > self._limit:
            raise BodyTooLargeError(f"The message may have at most {self._limit} bytes.")
        data: bytes = message
        return data

    @contextlib.asynccontextmanager
    async def _turn(self, owner: str, peer: str) -> AsyncIterator[None]:
        """Among the calls of one owner, those on the connection with the fewest others here go
        first: so many that send nothing hold up only calls on their own connection."""
        others = self._calls[peer]
        self._calls[peer] += 1
        try:
            async with self._turns.turn(owner, others):
                yield
        finally:
            self._calls[peer] -= 1
            if not self._calls[peer]:
                del self._calls[peer]

    async def _rest(self, reading: Awaitable[Any]) -> Any:
        timeout = asyncio.timeout(0.0 if self._drain.refuses else self._seconds)
        try:
            async with timeout:
                self._drain.uploads.add(timeout)
                return await reading
        except TimeoutError:
            if self._drain.refuses:
                raise self._drain.refusal() from None
            raise SlowSenderError(
                f"The message did not arrive within {self._seconds:.0f} s."
            ) from None
        finally:
            self._drain.uploads.discard(timeout)


def deadline_is_over(context: Any) -> bool:
    """True if the caller's deadline has passed."""
    left: float | None = context.time_remaining()
    return left is not None and left <= _DEADLINE_SLACK_SECONDS
