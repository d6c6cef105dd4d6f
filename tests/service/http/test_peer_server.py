"""What comes on a worker's own socket."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.http.forwarding import request_headers
from service.http.peer_calls import PeerCalls
from service.http.peer_server import PeerApp, PeerServer, open_peer_socket
from service.http.scope import FORWARDED
from service.peers.asking import connected
from tests.service.serving.by_hand import loaded, services


class Seen:
    """An application that answers with what it is and keeps the scope."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.scope: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        length = (b"content-length", b"%d" % len(self.name))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": self.name, "more_body": False})


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="q-") as made:  # a socket's path must be short
        yield Path(made)


def test_only_this_user_can_open_the_socket_and_a_dead_workers_is_replaced(folder: Path) -> None:
    path = folder / "api-0.sock"
    first = open_peer_socket(path)
    with first, open_peer_socket(path):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert [one.name for one in folder.iterdir()] == ["api-0.sock"]


async def test_requests_reach_their_application_as_their_clients(folder: Path) -> None:
    public, admin = Seen(b"public"), Seen(b"admin")
    calls = PeerCalls(services(loaded()))
    path = folder / "api-0.sock"
    server = PeerServer(PeerApp(public, admin, calls), path)
    await server.start()
    sent = [(b"x-a%d" % number, b"b %d" % number) for number in range(98)]
    sent += [(b"x-empty", b""), (b"x-last", b"")]
    came: Any = {"client": ("2001:db8::7", 5012), "scheme": "https", "headers": sent}
    client, packed = request_headers(came)
    try:
        for target, name in ((b"/v1/responses/x?a=b", b"public"), (b"/admin/v1/feed", b"admin")):
            async with connected(path) as connection:
                answer = await connection.ask("GET", target, [client, packed])
                assert await answer.whole(100) == name
        for app in (public, admin):
            assert app.scope["client"] == ("2001:db8::7", 5012)
            assert app.scope["scheme"] == "https"
            assert app.scope["headers"] == [*sent, (b"content-length", b"0")]
            assert FORWARDED in app.scope["state"]
        assert public.scope["query_string"] == b"a=b"
    finally:
        assert await server.stop(5)
    assert not path.exists()
