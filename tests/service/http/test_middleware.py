"""Each route asks for a key, and each request is counted once."""

from __future__ import annotations

import pytest
from litestar import Litestar
from litestar.testing import TestClient

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
