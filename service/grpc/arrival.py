"""Reads the one message of a call, within limits of time and of memory for all calls together.

gRPC reports a message's size only once it has arrived, and keeps what has arrived in memory. So
only a few calls are read at once, and keys take turns. A call whose message is not there quickly
gives up its turn and from then on counts with the maximum message size, until the message has
arrived. Messages that are not being read stay on the client's side, except for their first 64 KiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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
# How long the core may take to report that the read failed because of the message's size. A
# compressed message looks the same: its encoding is not in the call's metadata.
_REFUSAL_SECONDS = 0.05
# The caller's own clock ends its call as ours does, and its cancellation may arrive first.
_DEADLINE_SLACK_SECONDS = 0.25


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

    async def read(self, context: Any, caller: Caller) -> bytes:
        """Return the one message of the call.

        Raises BodyTooLargeError; InvalidRequestError if there is none; OverloadedError;
        SlowSenderError when it does not arrive in time; DrainingError when the server begins to
        shut down meanwhile.
        """
        reading: asyncio.Future[Any] | None = None
        try:
            with self._room.arriving(caller) as gained:
                async with self._turns.turn(caller.owner, 0):
                    reading = asyncio.ensure_future(context.read())
                    with self._turns.timed():
                        done, _ = await asyncio.wait({reading}, timeout=AT_ONCE_SECONDS)
                    if not done:
                        gained(self._limit)
                message = reading.result() if done else await self._rest(reading)
            if message is grpc.aio.EOF:
                # Either there is none, or the core rejected it; then it cancels this task shortly.
                await asyncio.sleep(_REFUSAL_SECONDS)
        except asyncio.CancelledError:
            if _found_none(reading) and not deadline_is_over(context):
                raise BodyTooLargeError(
                    f"The message may have at most {self._limit} bytes."
                ) from None
            raise
        finally:
            if reading is not None:
                reading.cancel()
        if message is grpc.aio.EOF:
            raise InvalidRequestError("The call ended without a message.")
        data: bytes = message
        return data

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


def _found_none(reading: asyncio.Future[Any] | None) -> bool:
    """True if reading has ended without a message."""
    if reading is None or not reading.done() or reading.cancelled():
        return False
    return reading.exception() is None and reading.result() is grpc.aio.EOF


def deadline_is_over(context: Any) -> bool:
    """True if the caller's deadline has passed."""
    left: float | None = context.time_remaining()
    return left is not None and left <= _DEADLINE_SLACK_SECONDS
