"""Queries of the archive take turns, and none is waited for longer than an operator would wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class QueryTurnError(TimeoutError):
    """A query's turn did not come in time; the message is for operators."""


class QueryTurns:
    """``most``: queries at a time; more wait."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)

    async def take(self, query: Coroutine[Any, Any, _T], seconds: float) -> _T:
        """Return what a query does when it is its turn. Raises TimeoutError if both together take
        longer than ``seconds``, QueryTurnError if its turn did not come."""
        has_begun = False

        async def in_turn() -> _T:
            nonlocal has_begun
            try:
                async with self._places:
                    has_begun = True
                    return await query
            finally:
                query.close()

        try:
            return await within(seconds, in_turn())
        except TimeoutError:
            if has_begun:
                raise
            raise QueryTurnError(
                f"The database has been busy with other queries for {seconds:g} s; retry."
            ) from None


async def within(seconds: float, work: Coroutine[Any, Any, _T]) -> _T:
    """Return what ``work`` does. Raises TimeoutError, and then does not wait for its end: a driver
    may wait long for the answer to a cancellation."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError
    finally:
        if not task.done():
            task.add_done_callback(_ignore)
            task.cancel()
    return task.result()


def _ignore(task: asyncio.Task[Any]) -> None:
    """Retrieve its error, which would be logged otherwise."""
    if not task.cancelled():
        task.exception()
