"""Each route requires a key, and each request is counted once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.app import create_app
from service.ids import Ids
from service.peers.peers import Peers
from service.settings import ServiceSettings
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from tests.service.http.apps import KEYS, routes

OPEN = {"/", "/health", "/health/live", "/health/ready", "/metrics", "/docs", "/openapi.json"}


def test_without_a_key_every_route_but_the_open_ones_is_closed(
    locked: TestClient[Litestar],
) -> None:
    found = routes(locked.app)
    assert len(found) > 20
    for method, path in found:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEYS[0]}):
            reply = locked.request(method, path, headers=headers)
            if path in OPEN and method in ("GET", "HEAD"):
                assert reply.status_code != 401, (method, path)
            else:
                assert reply.status_code == 401, (method, path)
                assert reply.headers["www-authenticate"] == "Bearer"
                if path.startswith("/v1/messages"):
                    assert reply.json()["error"]["type"] == "authentication_error"
                elif method != "HEAD":
                    assert reply.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens_the_door(locked: TestClient[Litestar], key: str) -> None:
    assert locked.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert locked.get("/v1/models", headers={"Authorization": f"bearer  {key} "}).status_code == 200
    assert locked.get("/v1/models", headers={"x-api-key": key}).status_code == 200


def test_without_keys_set_everybody_may_enter(client: TestClient[Litestar]) -> None:
    assert client.get("/v1/models").status_code == 200


def test_azures_header_bears_a_key(paged: TestClient[Litestar]) -> None:
    assert paged.get("/v1/models", headers={"api-key": "key"}).status_code == 200
    assert paged.get("/v1/models", headers={"api-key": "wrong"}).status_code == 401


class Counted(NoTelemetry):
    """How each request ended that was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.ended: list[tuple[str, str, int]] = []

    def request_started(self, record: RequestRecord) -> None:
        self.begun += 1

    def request_finished(self, record: RequestRecord) -> None:
        self.ended.append((record.route, record.outcome, record.status))


def test_each_request_is_counted_once_however_it_ends(own_template: Path, tmp_path: Path) -> None:
    telemetry = Counted()
    app = create_app(
        ServiceSettings(api_key=KEYS),
        model_dir=own_template,
        socket_path=tmp_path / "no-engine.sock",
        telemetry=telemetry,
    )
    key = {"x-api-key": KEYS[0]}
    with TestClient(app, base_url="http://quire.localhost") as client:
        client.get("/v1/models", headers=key)
        client.head("/v1/models", headers=key)
        client.get("/v1/models")
        client.get("/v1/models/none", headers=key)
        client.post("/v1/messages", headers=key, content=b"{")
        client.post("/v1/messages/count_tokens", headers=key, content=b"{")
        client.post("/v1/chat/completions", headers={**key, "content-type": "text/plain"})
        for path in ("/health", "/metrics", "/nope"):
            client.get(path)
        client.get("/v1/chat/completions")
    assert telemetry.ended == [
        ("models", "stop", 200),
        ("models", "stop", 200),
        ("models", "refused:unauthorized", 401),
        ("models", "refused:not_found", 404),
        ("messages", "refused:invalid", 400),
        ("count_tokens", "refused:invalid", 400),
        ("chat_completions", "refused:invalid", 415),
        ("none", "refused:not_found", 404),
        ("none", "refused:invalid", 405),
    ]
    assert telemetry.begun == len(telemetry.ended)
    assert app.state.drain.in_flight == 0


class NotedPeers(Peers):
    """Whose requests were about to be forwarded to the other worker, which does not run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Ids(0, 2), folder)
        self.owners: list[str] = []

    def place(self, owner: str = "") -> AbstractContextManager[None]:
        self.owners.append(owner)
        return super().place(owner)


@pytest.mark.parametrize("keys", [(), KEYS[:1], KEYS])
def test_keys_that_share_the_server_share_what_is_forwarded(
    own_template: Path, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    peers = NotedPeers(tmp_path)
    app = create_app(
        ServiceSettings(api_key=keys, api_workers=2),
        model_dir=own_template,
        socket_path=tmp_path / "no-engine.sock",
        telemetry=NoTelemetry(),
        peers=peers,
    )
    path = f"/v1/streams/{Ids(1, 2).new('resp_')}"
    with TestClient(app, base_url="http://quire.localhost") as client:
        for key in keys or ("any",):
            assert client.get(path, headers={"x-api-key": key}).status_code == 404
        if keys:
            assert client.get(path, headers={"x-api-key": "wrong"}).status_code == 401
    assert len(peers.owners) == max(1, len(keys))
    assert len(set(peers.owners)) == len(peers.owners)
    assert ("" in peers.owners) == (len(keys) < 2)
