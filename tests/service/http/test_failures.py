"""Every exception becomes a response in its API's own shape."""

from __future__ import annotations

import pytest
from litestar import Litestar
from litestar.testing import TestClient


def test_what_no_route_takes_has_an_id_too(client: TestClient[Litestar]) -> None:
    reply = client.get("/v1/messages/batches")
    assert reply.status_code == 404
    assert reply.json()["request_id"] == reply.headers["request-id"]
    assert reply.json()["request_id"].startswith("req_")


def test_unknown_paths_and_methods_answer_in_openais_shape(
    client: TestClient[Litestar],
) -> None:
    for method, path, status in (("GET", "/nope", 404), ("DELETE", "/v1/models", 405)):
        reply = client.request(method, path)
        assert reply.status_code == status
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("host", ["x:port", "x:99999", "["])
def test_a_senseless_host_header_breaks_nothing(locked: TestClient[Litestar], host: str) -> None:
    for path, statuses in (("/", (200, 400)), ("/nope", (404,)), ("/health/live", (200,))):
        reply = locked.get(path, headers={"Host": host})
        assert reply.status_code in statuses, (path, reply.text)
