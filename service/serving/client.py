"""The client of one request: its permissions, and when it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from engine.messages import Ready
from service.errors import ClientGoneError
from service.preparation.jobs import Limits
from service.serving.exchange import Exchange
from service.serving.services import Services

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Client:
    """``left`` returns when the client leaves; None if that cancels the work anyway."""

    services: Services
    exchange: Exchange
    left: Callable[[], Awaitable[None]] | None = None

    @property
    def owner(self) -> str:
        """The key's digest: the unit of fair sharing, and the owner of what the request creates."""
        return self.exchange.caller.owner

    @property
    def limits(self) -> Limits:
        """The limits of its requests, the models that they may name included."""
        return self.services.limits.allowed(self.exchange.caller)

    def admit(self) -> Ready:
        """Check a generation request; return the loaded model. Raises as ``Admission.check``
        does, or LimitError."""
        self._note_waiting()
        self.services.admission.check(self.exchange.caller)
        self.exchange.count()
        return self.services.engine

    def admit_open(self) -> Ready:
        """Check any request for the engine; return the loaded model. Raises as
        ``Admission.check_open`` does, or LimitError."""
        self._note_waiting()
        self.services.admission.check_open(self.exchange.caller)
        self.exchange.count()
        return self.services.engine

    def loaded_model(self) -> Ready:
        """Raises LoadingError while there is none."""
        return self.services.engine

    def _note_waiting(self) -> None:
        record = self.exchange.record
        record.waiting = self.services.link.waiting_sequences
        record.limited_by = self.services.records.limited_by()

    async def unless_gone(self, work: Awaitable[_Result]) -> _Result:
        """Return or raise what ``work`` does; raise ClientGoneError as soon as the client
        leaves."""
        if self.left is None:
            return await work
        return await unless_left(self.left(), work)


async def unless_left(leaving: Awaitable[None], work: Awaitable[_Result]) -> _Result:
    """Return or raise what ``work`` does; raise ClientGoneError as soon as ``leaving`` returns."""
    left = asyncio.ensure_future(leaving)
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({left, working}, return_when=asyncio.FIRST_COMPLETED)
        # The server reports it only once: waiting for it again would never end.
        if not working.done() or (left.done() and working.exception() is None):
            raise ClientGoneError("The client left before the answer was complete.")
        return working.result()
    finally:
        left.cancel()
        working.cancel()
        del left, working  # what they raise has a traceback, which refers to this call
