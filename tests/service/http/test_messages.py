"""Anthropic's own client understands why a message is refused."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest
from litestar import Litestar
from litestar.testing import TestClient

ASK: dict[str, Any] = {"model": "own-template", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def sdk(client: TestClient[Litestar]) -> anthropic.Anthropic:
    def through(request: httpx2.Request) -> httpx2.Response:
        reply = client.request(
            request.method,
            request.url.raw_path.decode(),
            headers=dict(request.headers),
            content=request.content,
        )
        return httpx2.Response(reply.status_code, headers=reply.headers, content=reply.content)

    return anthropic.Anthropic(
        base_url="http://quire.localhost",
        api_key="key",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(through)),
    )


@pytest.mark.parametrize(
    ("fields", "error", "kind"),
    [
        ({"model": "claude-none"}, anthropic.NotFoundError, "not_found_error"),
        ({"messages": []}, anthropic.BadRequestError, "invalid_request_error"),
        ({"max_tokens": -1}, anthropic.BadRequestError, "invalid_request_error"),
        ({}, anthropic.InternalServerError, "overloaded_error"),  # no engine: 503
    ],
    ids=["no such model", "no messages", "a negative limit", "no engine"],
)
def test_a_refusal_is_of_the_sdks_own_kind(
    sdk: anthropic.Anthropic, fields: dict[str, Any], error: type[Exception], kind: str
) -> None:
    with pytest.raises(error) as refused:
        sdk.messages.create(**{"max_tokens": 5, **ASK, **fields})
    assert isinstance(refused.value, anthropic.APIStatusError)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["request_id"] == refused.value.request_id


def test_counting_tokens_is_refused_in_the_same_way(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        sdk.messages.count_tokens(**{**ASK, "model": "claude-none"})
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        sdk.messages.count_tokens(**{**ASK, "messages": []})
