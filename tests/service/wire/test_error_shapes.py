"""Errors as each vendor's own SDK reads them."""

from __future__ import annotations

import json

import pytest

from service.errors import (
    ContextTooLongError,
    EngineFailedError,
    InvalidRequestError,
    ModelNotFoundError,
    NoThreadsError,
    OverloadedError,
    QuireError,
    QuotaError,
    RequestOverLimitError,
)
from service.wire.error_shapes import anthropic_shape, openai_shape, shape_for


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequestError("m"), "invalid_request_error"),
        (RequestOverLimitError("m"), "invalid_request_error"),
        (QuotaError("m"), "billing_error"),
        (ModelNotFoundError("m"), "not_found_error"),
        (OverloadedError("m"), "rate_limit_error"),
        (EngineFailedError("m"), "api_error"),
    ],
    ids=["400", "limit", "402", "404", "429", "5xx"],
)
def test_anthropics_clients_get_their_own_words(error: QuireError, kind: str) -> None:
    body = json.loads(anthropic_shape(error, "req_1"))
    assert body == {
        "type": "error",
        "error": {"type": kind, "message": "m"},
        "request_id": "req_1",
    }


def test_a_client_that_uses_threads_gets_an_error_that_names_what_is_unsupported() -> None:
    error = NoThreadsError("no threads")
    details = json.loads(anthropic_shape(error, "r"))["error"]["details"]
    assert details == {"error_code": error.kind.code, "unsupported": ["thread"]}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("No name.", "tools.1: No name."),
        ("'tools.1' has no name.", "'tools.1' has no name."),
    ],
)
def test_anthropics_clients_are_shown_where_it_is(message: str, shown: str) -> None:
    body = json.loads(anthropic_shape(InvalidRequestError(message, param="tools.1"), "req_1"))
    assert body["error"]["message"] == shown


def test_anthropics_clients_recognize_a_prompt_that_is_too_long() -> None:
    error = ContextTooLongError("This model's maximum …", param="messages")
    assert json.loads(anthropic_shape(error, "r"))["error"]["message"] == error.message
    error.tokens = (12014, 4095)
    said = "prompt is too long: 12014 tokens > 4095 maximum. Shorten the messages."
    assert json.loads(anthropic_shape(error, "r"))["error"]["message"] == said
    assert json.loads(openai_shape(error, "r"))["error"]["message"] == error.message


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/no"])
def test_every_path_under_messages_has_anthropics_shape(path: str) -> None:
    assert shape_for(path) is anthropic_shape


def test_the_list_of_models_has_the_shape_of_its_client() -> None:
    for path in ("/v1/models", "/v1/models/x"):
        assert shape_for(path) is openai_shape
        assert shape_for(path, by_anthropics_client=True) is anthropic_shape
    assert shape_for("/v1/chat/completions", by_anthropics_client=True) is openai_shape


def test_what_no_route_takes_has_the_shape_of_its_client() -> None:
    for path in ("/v1/files", "/v1/chat/completions"):
        assert shape_for(path, is_routed=False) is openai_shape
        assert shape_for(path, by_anthropics_client=True, is_routed=False) is anthropic_shape


@pytest.mark.parametrize("path", ["/", "/v1/chat/completions", "/nowhere", "/v1/models"])
def test_every_other_path_has_openais(path: str) -> None:
    error = InvalidRequestError("m", param="p")
    assert json.loads(shape_for(path)(error, "r"))["error"]["param"] == "p"
    assert shape_for(path) is openai_shape
