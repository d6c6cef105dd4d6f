"""The list of models, for OpenAI's and Anthropic's clients."""

from __future__ import annotations

from pathlib import Path

import anthropic
import httpx2
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.service.http.apps import client_of


def test_models_are_listed_without_the_version_too(client: TestClient[Litestar]) -> None:
    [card] = client.get("/models").json()["data"]
    assert client.get(f"/models/{card['id']}").json() == card


def test_anthropics_sdk_reads_the_models(own_template: Path, tmp_path: Path) -> None:
    names = ("a", "b", "c")
    with client_of(own_template, tmp_path, served_model_name=names) as opened:

        def through(request: httpx2.Request) -> httpx2.Response:
            reply = opened.request(
                request.method, request.url.raw_path.decode(), headers=dict(request.headers)
            )
            return httpx2.Response(reply.status_code, headers=reply.headers, content=reply.content)

        sdk = anthropic.Anthropic(
            base_url="http://quire.localhost",
            api_key="key",
            http_client=httpx2.Client(transport=httpx2.MockTransport(through)),
        )
        listed = list(sdk.models.list(limit=2))
        assert [(model.type, model.id, model.display_name) for model in listed] == [
            ("model", name, name) for name in names
        ]
        assert listed[0].created_at.year >= 2020
        assert sdk.models.retrieve("b").id == "b"
        backwards = sdk.models.list(before_id="c", limit=1)
        assert ([model.id for model in backwards.data], backwards.has_more) == (["b"], True)
        with pytest.raises(anthropic.BadRequestError) as unknown:
            sdk.models.list(after_id="none")
        with pytest.raises(anthropic.NotFoundError) as missing:
            sdk.models.retrieve("d")
        assert [refused.value.type for refused in (unknown, missing)] == [
            *("invalid_request_error", "not_found_error")
        ]
        assert opened.get("/models/d").json()["error"]["code"] == "model_not_found"
        assert opened.get("/v1/models").json()["object"] == "list"
