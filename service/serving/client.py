"""The client of one request: what may be done for it, and when it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from service.errors import ClientGoneError
from service.serving.exchange import Exchange
from service.serving.services import Services

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Client:
    """``left`` returns when it leaves; None where that cancels the work anyway."""

    services: Services
    exchange: Exchange
    left: Callable[[], Awaitable[None]] | None = None

    @property
    def owner(self) -> str:
        """Whose key it is: who takes turns with others, and to whom what it makes belongs."""
        return self.exchange.caller.owner

    def admit(self) -> None:
        """The gate before generation. Raises as ``Admission.check`` does."""
        self.services.admission.check(self.exchange.caller)

    def admit_open(self) -> None:
        """The gate before any work of the engine. Raises as ``Admission.check_open`` does."""
        self.services.admission.check_open(self.exchange.caller)

    async def unless_gone(self, work: Awaitable[_Result]) -> _Result:
        """What ``work`` returns or raises; ClientGoneError as soon as it leaves."""
        if self.left is None:
            return await work
        return await unless_left(self.left(), work)


async def unless_left(leaving: Awaitable[None], work: Awaitable[_Result]) -> _Result:
    """What ``work`` returns or raises; ClientGoneError as soon as ``leaving`` returns."""
    left = asyncio.ensure_future(leaving)
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({left, working}, return_when=asyncio.FIRST_COMPLETED)
        # A server reports it once: a second wait for it would never end.
        if not working.done() or (left.done() and working.exception() is None):
            raise ClientGoneError("The client left before the answer was complete.")
        return working.result()
    finally:
        left.cancel()
        working.cancel()
