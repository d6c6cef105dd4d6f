"""A conversation becomes the prompt that the model's template writes, by either door."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from pocket import MODEL_DIR
from service.errors import InvalidRequestError, ModelNotFoundError
from service.preparation.jobs import Noted
from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.preparation.bodies import SCHEMA, USER
from tests.service.preparation.prepared import prepared, tokenizer

SPOKEN = [
    {"role": "system", "content": "Be brief."},
    *USER,
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "And you?"},
]


def as_jinja_renders(messages: list[dict[str, Any]]) -> str:
    template = jinja2.Template((MODEL_DIR / "chat_template.jinja").read_text())
    text: str = template.render(messages=messages, add_generation_prompt=True)
    return text


def test_the_prompt_is_what_the_template_renders() -> None:
    [ids] = prepared("chat", {"messages": SPOKEN}).generation.prompts
    assert ids == tokenizer().encode(as_jinja_renders(SPOKEN), add_special_tokens=False)


def test_the_same_conversation_by_grpc_is_the_same_generation() -> None:
    message = pb.ChatRequest(
        messages=[pb.Message(role=one["role"], content=one["content"]) for one in SPOKEN],
        max_tokens=7,
        sampling=pb.Sampling(temperature=0.5, seed=3),
    )
    body = {"messages": SPOKEN, "max_tokens": 7, "temperature": 0.5, "seed": 3}
    by_http = prepared("chat", body)
    by_grpc = prepared("grpc_chat", message.SerializeToString())
    assert by_grpc.generation == by_http.generation
    assert by_http.generation.params.max_tokens == 7


def test_only_a_call_that_must_be_made_has_a_form() -> None:
    loose = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    tools = {"messages": USER, "tools": [loose]}
    assert prepared("chat", tools).asked is None
    forced = prepared("chat", {**tools, "tool_choice": "required"})
    assert forced.asked is not None
    assert not forced.asked.plain


def test_what_is_refused_is_named_and_what_was_read_is_noted() -> None:
    noted = Noted()
    body = {"messages": USER, "stream": True, "chat_template_kwargs": {"moon": 1}}
    with pytest.raises(InvalidRequestError) as refused:
        prepared("chat", body, noted=noted)
    assert refused.value.param == "chat_template_kwargs.moon"
    assert (noted.model, noted.stream) == ("pocket", True)
    with pytest.raises(ModelNotFoundError):
        prepared("chat", {"messages": USER, "model": "nobody"})
