"""Work for a client ends when it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import ClientGoneError, EngineFailedError
from service.http.body import client_left
from service.serving.client import unless_left


async def test_a_client_that_leaves_as_the_work_ends_has_left() -> None:
    """The server reports it once: a second wait for it would never end."""
    told = iter([{"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(told)

    async def work() -> str:
        return "done"

    async def failing() -> str:
        raise EngineFailedError("it broke")

    with pytest.raises(ClientGoneError):
        await unless_left(client_left(receive), work())
    told = iter([{"type": "http.disconnect"}])
    with pytest.raises(EngineFailedError):
        await unless_left(client_left(receive), failing())
