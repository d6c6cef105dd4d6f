"""Every exception becomes a response in its API's own shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from litestar import Litestar, Request
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.testing import TestClient

from service.errors import (
    BodyTooLargeError,
    InternalError,
    InvalidRequestError,
    MethodNotAllowedError,
    NotFoundError,
    OverloadedError,
    QuireError,
)
from service.http.failures import as_quire_error, respond_to_failure
from service.http.scope import EXCHANGE
from service.serving.exchange import Exchange
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord


def test_a_request_without_a_route_has_an_id_too(client: TestClient[Litestar]) -> None:
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


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/files", 404), ("DELETE", "/v1/models", 405), ("PUT", "/v1/embeddings", 405)],
)
def test_anthropics_client_gets_its_shape_where_no_route_is_taken(
    client: TestClient[Litestar], method: str, path: str, status: int
) -> None:
    reply = client.request(method, path, headers={"anthropic-version": "2023-06-01"})
    assert reply.status_code == status
    assert set(reply.json()) == {"type", "error", "request_id"}


@pytest.mark.parametrize("host", ["x:port", "x:99999", "["])
def test_a_senseless_host_header_breaks_nothing(locked: TestClient[Litestar], host: str) -> None:
    for path, statuses in (("/", (200, 400)), ("/nope", (404,)), ("/health/live", (200,))):
        reply = locked.get(path, headers={"Host": host})
        assert reply.status_code in statuses, (path, reply.text)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverloadedError("busy"), OverloadedError),
        (NotFoundException(), NotFoundError),
        (MethodNotAllowedException(), MethodNotAllowedError),
        (HTTPException(status_code=413), BodyTooLargeError),
        (HTTPException("no such", status_code=400), InvalidRequestError),
        (HTTPException("secret", status_code=502), InternalError),
        (RuntimeError("secret"), InternalError),
    ],
)
def test_every_exception_becomes_one_of_our_errors_and_ours_hide_their_cause(
    error: Exception, kind: type[QuireError]
) -> None:
    told = as_quire_error(error, method="POST", path="/v1/nope")
    assert type(told) is kind
    assert "secret" not in told.message
    if kind in (NotFoundError, MethodNotAllowedError):
        assert "POST" in told.message
        assert "/v1/nope" in told.message


@pytest.mark.parametrize(
    ("path", "anthropic"), [("/v1/messages/none", True), ("/v1/models", False)]
)
def test_an_internal_error_is_a_500_in_the_format_of_its_api(path: str, anthropic: bool) -> None:
    record = RequestRecord("req_1", "messages", "POST", path, 0.0, 0)
    exchange = Exchange(record, NoTelemetry())
    scope: Any = {
        **{"type": "http", "method": "POST", "path": path, "headers": []},
        "state": {EXCHANGE: exchange},
    }
    response = respond_to_failure(Request(scope), ZeroDivisionError("secret"))
    assert (response.status_code, record.status, record.outcome) == (500, 500, "error:internal")
    body = json.loads(response.content)
    assert ("request_id" in body) == anthropic
    assert "secret" not in str(body)
    assert response.headers["x-request-id"] == "req_1"
