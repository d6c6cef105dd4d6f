"""The request for a response: which fields are served, and in which form an answer is wanted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.constraint.request import AnyJsonObject, JsonSchema
from service.errors import InvalidRequestError
from service.wire.responses.request import (
    ResponsesRequest,
    decode_message,
    decode_responses,
    ignored_fields,
    text_shape,
)


def decode(**fields: Any) -> ResponsesRequest:
    return decode_responses(json.dumps({"input": "x", **fields}).encode())


def test_a_message_of_a_socket_is_the_same_request_as_a_stream() -> None:
    fields = {"input": "x", "temperature": 0.5, "metadata": {"a": "b"}}
    message = {"type": "response.create", "stream_id": "s", "generate": True, **fields}
    request = decode_message(json.dumps(message).encode())
    assert type(request) is ResponsesRequest
    assert request == decode(**fields, stream=True)
    with pytest.raises(InvalidRequestError) as caught:
        decode_message(json.dumps({**message, "type": "response.other"}).encode())
    assert caught.value.param == "type"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"n": 2}, "n"),
        ({"background": True, "store": False}, "background"),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"response_format": {"type": "text"}}, "response_format"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"moderation": {}}, "moderation"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
    ],
)
def test_unsupported_fields_are_refused_by_their_names(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(**fields)
    assert caught.value.param == param


def test_fields_that_request_nothing_are_accepted() -> None:
    decode(n=1, use_beam_search=False, moderation=None, background=True)
    decode(input=None, previous_response_id="resp_1")


def test_a_response_is_kept_unless_that_is_refused() -> None:
    assert decode().kept
    assert decode(store=None).kept
    assert not decode(store=False).kept


def test_logprobs_come_only_where_they_are_included() -> None:
    included = ["message.output_text.logprobs"]
    assert decode(top_logprobs=3).engine_logprobs is None
    assert decode(include=included).engine_logprobs == 0
    assert decode(include=included, top_logprobs=3).engine_logprobs == 3


def test_the_form_of_the_text_is_passed_with_its_position() -> None:
    def shape(form: dict[str, Any]) -> Any:
        return text_shape(decode(text={"format": form}))

    schema = {"type": "object"}
    assert shape({"type": "text"}) is None
    assert shape({"type": "json_object"}) == AnyJsonObject(param="text.format")
    form = {"type": "json_schema", "name": "n", "schema": schema}
    assert shape(form) == JsonSchema(schema=schema, param="text.format.schema", strict=False)
    assert shape({**form, "strict": True}).strict


def test_two_forms_for_one_answer_are_refused() -> None:
    body = {"input": "x", "text": {"format": {"type": "json_object"}}, "guided_regex": "a"}
    with pytest.raises(InvalidRequestError) as caught:
        text_shape(decode_responses(json.dumps(body).encode()))
    assert caught.value.param == "guided_regex"


def test_only_what_could_have_changed_the_answer_is_reported() -> None:
    assert ignored_fields(decode(text={"verbosity": "medium"}, reasoning={"effort": "low"})) == []
    assert ignored_fields(decode(text={"verbosity": "low"}, reasoning={"context": "auto"})) == [
        "text.verbosity",
        "reasoning.context",
    ]
    assert ignored_fields(decode(reasoning={"summary": "auto"})) == []
    included = ["reasoning.encrypted_content", "file_search_call.results", "foo"]
    assert ignored_fields(decode(include=included)) == ["include[1]", "include[2]"]
