"""The OpenAPI document against the routes that exist."""

from __future__ import annotations

import json

from litestar import Litestar
from litestar.testing import TestClient

from service.http.openapi import OPERATIONS
from tests.service.http.apps import routes


def test_the_openapi_document_names_every_route_and_no_other(
    client: TestClient[Litestar],
) -> None:
    document = client.get("/openapi.json").json()
    declared = {
        (method.upper(), path.replace("{model_id}", "tiny"))
        for path, operations in document["paths"].items()
        for method in operations
    }
    served = {(m, p) for m, p in routes(client.app) if m not in ("OPTIONS", "HEAD")}
    assert declared == served


def test_the_openapi_document_shows_the_bodies_and_its_references_hold(
    client: TestClient[Litestar],
) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    references = {part.split('"')[0] for part in text.split('"$ref": "#/components/schemas/')[1:]}
    assert references <= set(schemas)
    chat = schemas["ChatRequest"]
    assert chat["required"] == ["messages"]
    assert {"stream", "temperature", "tools", "logit_bias"} <= set(chat["properties"])
    assert {"id", "choices", "usage"} <= set(schemas["ChatCompletion"]["properties"])
    for operation in OPERATIONS:
        assert document["paths"][operation.path][operation.method]["summary"]


def test_the_openapi_document_shows_what_an_unhealthy_server_says(
    client: TestClient[Litestar],
) -> None:
    document = client.get("/openapi.json").json()
    reply = client.get("/health/ready")
    assert reply.status_code == 503
    responses = document["paths"]["/health/ready"]["get"]["responses"]
    assert responses["503"]["content"] == responses["200"]["content"]


def test_the_openapi_document_has_the_statuses_of_a_key_s_limits(
    client: TestClient[Litestar],
) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"):
        assert {"400", "402", "429"} <= set(paths[path]["post"]["responses"])
