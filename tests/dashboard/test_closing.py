from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dashboard import closing
from dashboard.closing import NotesClosing, is_closed


def ends(connection: str, code: int | None, kind: str = "websocket") -> None:
    """A connection that the browser ends with ``code``."""

    async def app(_: Any, receive: Any, __: Any) -> None:
        await receive()

    async def receive() -> dict[str, Any]:
        return {"type": f"{kind}.disconnect", "code": code}

    async def send(_: Any) -> None:
        raise AssertionError

    scope = {"type": kind, "headers": [(b"sec-websocket-key", connection.encode())]}
    asyncio.run(NotesClosing(app)(scope, receive, send))


@pytest.mark.parametrize("code", [1000, 1001])
def test_a_page_that_says_goodbye_is_closed(code: int) -> None:
    assert not is_closed(f"leaves {code}")
    ends(f"leaves {code}", code)
    assert is_closed(f"leaves {code}")


@pytest.mark.parametrize("code", [None, 1005, 1006, 1011, 1012])
def test_a_connection_that_is_lost_may_come_back(code: int | None) -> None:
    ends("lost", code)
    ends("lost", code, "http")
    assert not is_closed("lost")


def test_a_page_without_a_key_does_not_close_all_others_without_one() -> None:
    ends("", 1000)
    assert not is_closed("")


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "_MOST", 2)
    for name in ("a", "b", "c"):
        ends(name, 1001)
    assert [is_closed(name) for name in ("a", "b", "c")] == [False, True, True]
