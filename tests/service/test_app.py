"""What the app shows without an engine: who may enter, what is documented, how it is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.app import create_app
from service.http.openapi import OPERATIONS
from service.settings import ServiceSettings
from service.telemetry.observer import NoTelemetry

OPEN = {"/", "/health", "/health/live", "/health/ready", "/metrics", "/docs", "/openapi.json"}
KEYS = ("sk-first", "sk-second")


def new_app(model: Path, folder: Path, **settings: Any) -> Litestar:
    return create_app(
        ServiceSettings(**settings),
        model_dir=model,
        socket_path=folder / "no-engine.sock",
        telemetry=NoTelemetry(),
    )


@pytest.fixture
def locked(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    with TestClient(
        new_app(tiny_model, tmp_path, api_key=KEYS), base_url="http://quire.localhost"
    ) as client:
        yield client


@pytest.fixture
def open_client(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    with TestClient(new_app(tiny_model, tmp_path), base_url="http://quire.localhost") as client:
        yield client


def routes(app: Litestar) -> list[tuple[str, str]]:
    """Every method and path that the app answers, parameters filled in."""
    return [
        (method, route.path_format.replace("{model_id}", "tiny"))
        for route in app.routes
        for method in sorted(route.methods)  # type: ignore[union-attr]  # all are HTTP routes
    ]


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


def test_without_keys_set_everybody_may_enter(open_client: TestClient[Litestar]) -> None:
    assert open_client.get("/v1/models").status_code == 200


def test_the_openapi_document_names_every_route_and_no_other(
    open_client: TestClient[Litestar],
) -> None:
    document = open_client.get("/openapi.json").json()
    declared = {
        (method.upper(), path.replace("{model_id}", "tiny"))
        for path, operations in document["paths"].items()
        for method in operations
    }
    served = {(m, p) for m, p in routes(open_client.app) if m not in ("OPTIONS", "HEAD")}
    assert declared == served


def test_the_openapi_document_shows_the_bodies_and_its_references_hold(
    open_client: TestClient[Litestar],
) -> None:
    document = open_client.get("/openapi.json").json()
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


def test_pages_need_nothing_from_elsewhere(open_client: TestClient[Litestar]) -> None:
    for path in ("/", "/docs"):
        page = open_client.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for remote in ('src="http', 'href="http', "url(http", "@import", "import("):
            assert remote not in page.text


def test_head_of_the_front_page_says_that_a_server_is_there(
    open_client: TestClient[Litestar],
) -> None:
    reply = open_client.head("/")
    assert (reply.status_code, reply.content) == (200, b"")


def test_the_front_page_speaks_html_to_browsers_and_json_to_programs(
    tiny_model: Path, tmp_path: Path
) -> None:
    app = new_app(tiny_model, tmp_path, served_model_name=('<b>"tiny"</b>',))
    with TestClient(app, base_url="http://quire.localhost") as client:
        page = client.get("/", headers={"Accept": "text/html"}).text
        facts = client.get("/").json()
    assert "curl" in page
    assert "/v1/chat/completions" in page
    assert "<b>" not in page
    assert facts["model"] == '<b>"tiny"</b>'
    assert facts["docs"].endswith("/docs")
    assert facts["status"] == "loading"


def test_unknown_paths_and_methods_answer_in_openais_shape(
    open_client: TestClient[Litestar],
) -> None:
    for method, path, status in (("GET", "/nope", 404), ("DELETE", "/v1/models", 405)):
        reply = open_client.request(method, path)
        assert reply.status_code == status
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


def test_the_app_is_imported_without_what_takes_seconds_to_import() -> None:
    program = (
        "import sys; import service.app;"
        "print([m for m in ('torch', 'transformers', 'engine.model') if m in sys.modules])"
    )
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("host", ["x:port", "x:99999", "["])
def test_a_senseless_host_header_breaks_nothing(locked: TestClient[Litestar], host: str) -> None:
    for path, statuses in (("/", (200, 400)), ("/nope", (404,)), ("/health/live", (200,))):
        reply = locked.get(path, headers={"Host": host})
        assert reply.status_code in statuses, (path, reply.text)


def test_the_openapi_document_shows_what_an_unhealthy_server_says(
    open_client: TestClient[Litestar],
) -> None:
    document = open_client.get("/openapi.json").json()
    reply = open_client.get("/health/ready")
    assert reply.status_code == 503
    responses = document["paths"]["/health/ready"]["get"]["responses"]
    assert responses["503"]["content"] == responses["200"]["content"]


SMALLEST: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
}


def test_unknown_fields_are_reported_on_every_route(open_client: TestClient[Litestar]) -> None:
    for path, body in SMALLEST.items():
        answer = open_client.post(path, json={"model": "m", **body, "mirostat": 2})
        assert "mirostat" not in answer.text, path  # what it says is that there is no such model
        assert answer.headers["x-quire-ignored"] == "mirostat", path


def test_unknown_fields_are_refused_on_every_route_where_that_is_set(
    tiny_model: Path, tmp_path: Path
) -> None:
    app = new_app(tiny_model, tmp_path, unknown_fields="refuse")
    with TestClient(app, base_url="http://quire.localhost") as client:
        for path, body in SMALLEST.items():
            answer = client.post(path, json={"model": "m", **body, "mirostat": 2})
            assert answer.status_code == 400, path
            assert "Unrecognized request argument supplied: mirostat" in answer.text
