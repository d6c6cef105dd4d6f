"""Handlers have their path and method from the table."""

from __future__ import annotations

import pytest

from service.http.serves import served_by, serves, serves_admin
from service.routes.tables import ADMIN, PUBLIC


async def function() -> str:
    return ""


def test_a_handler_serves_the_routes_that_it_names() -> None:
    handler = serves("GET /health", "GET /health/ready")(function)
    assert (handler.paths, handler.http_methods) == ({"/health", "/health/ready"}, {"GET"})
    assert [route.path for route in served_by([handler])] == ["/health", "/health/ready"]
    assert set(served_by([handler])) < set(PUBLIC)


def test_parameters_are_texts_unless_the_table_says_otherwise() -> None:
    stored = serves("DELETE /v1/responses/{response_id}")(function)
    assert stored.paths == {"/v1/responses/{response_id:str}"}
    model = serves("GET /v1/models/{model_id:path}")(function)
    assert model.paths == {"/v1/models/{model_id:path}"}


def test_each_port_has_its_own_table() -> None:
    handler = serves_admin("POST /admin/v1/load", status=202)(function)
    assert (handler.status_code, set(served_by([handler])) < set(ADMIN)) == (202, True)
    with pytest.raises(LookupError, match="public port"):
        serves("POST /admin/v1/load")
