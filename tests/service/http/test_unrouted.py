"""Wrong paths and methods are counted and logged, and the error says what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.http.unrouted import KnownRoutes, asked_path, unrouted
from service.telemetry.observer import NoTelemetry
from tests.service.http.apps import routes


def scope(**changes: Any) -> Any:
    return {
        "type": "http",
        "method": "POST",
        "path": "/nope",
        "headers": [],
        "state": {},
        **changes,
    }


@pytest.mark.parametrize(
    ("method", "path", "near"),
    [
        ("POST", "/v1/v1/chat/completions", "POST /v1/chat/completions?"),
        ("POST", "/api/v1/chat/completions", "POST /v1/chat/completions?"),
        ("POST", "/openai/deployments/gpt/chat/completions", "POST /v1/chat/completions?"),
        ("POST", "/chat/completion", "POST /v1/chat/completions?"),
        ("POST", "/v1/message", "POST /v1/messages or POST /v1/messages/count_tokens?"),
        ("GET", "/v1/model", "GET /v1/models or GET /v1/models/{model_id}?"),
    ],
)
def test_a_wrong_path_is_told_the_routes_near_it(
    client: TestClient[Litestar], method: str, path: str, near: str
) -> None:
    reply = client.request(method, path)
    assert reply.status_code == 404
    assert reply.headers["x-request-id"].startswith("req_")
    message = reply.json()["error"]["message"]
    assert message == f"There is no {method} {path}. Did you mean {near} See /docs."


def test_a_path_like_no_other_is_only_told_where_to_look(client: TestClient[Litestar]) -> None:
    message = client.get("/favicon.ico").json()["error"]["message"]
    assert message == "There is no GET /favicon.ico. See /docs."


def test_a_long_path_is_cut_in_the_answer(client: TestClient[Litestar]) -> None:
    message = client.get("/" + "a" * 5000).json()["error"]["message"]
    assert message == f"There is no GET /{'a' * 127}…. See /docs."


def test_a_wrong_method_is_told_the_right_one(client: TestClient[Litestar]) -> None:
    reply = client.get("/chat/completions")
    assert reply.status_code == 405
    message = reply.json()["error"]["message"]
    assert message == "/chat/completions does not support GET; use POST. See /docs."


def test_every_route_is_near_itself(client: TestClient[Litestar]) -> None:
    known: KnownRoutes = client.app.state.routes
    for method, path in routes(client.app):
        if method not in ("HEAD", "OPTIONS") and len(path) > 4:
            near = [
                found.split(" ")[-1].replace("{model_id}", "tiny") for found in known.near(path)
            ]
            assert path in near, (method, near)


def test_at_most_three_routes_are_told_and_the_shortest_first() -> None:
    known = KnownRoutes([("POST", f"/v1/things/{letter}") for letter in "edcba"])
    assert known.near("/thing") == [f"POST /v1/things/{letter}" for letter in "abc"]
    assert known.near("") == known.near("/") == known.near("/" * 5000) == []


def test_the_record_has_no_method_that_somebody_made_up() -> None:
    for method, recorded in (("DELETE", "DELETE"), ("CANARY", "other")):
        exchange = unrouted(scope(method=method), "req_1", NoTelemetry())
        assert (exchange.record.route, exchange.record.http_method) == ("none", recorded)


def test_the_path_is_the_one_that_the_client_sent(client: TestClient[Litestar]) -> None:
    assert asked_path(scope()) == "/nope"
    message = client.post("/chat/nope").json()["error"]["message"]
    assert message.startswith("There is no POST /chat/nope. ")
