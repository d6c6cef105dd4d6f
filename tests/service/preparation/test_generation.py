"""From a conversation to what the engine generates: its limits, its prompt's end, its form."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from service.constraint.request import ConstraintRequest, OneOf, ToolShape
from service.conversation import Conversation, ToolDefinition
from service.errors import ContextTooLongError, InvalidRequestError
from service.formats import Opening
from service.generation.request import GenerationRequest
from service.preparation.generation import asked_form, constraint_request, generation_of
from service.preparation.jobs import Asked
from service.wire.chat.request import ChatRequest, Message, chat_task, decode_chat
from service.wire.task import Task
from tests.service.preparation.bodies import SCHEMA, USER
from tests.service.preparation.prepared import engine, tokenizer, work_of

MESSAGES = [Message(role="user", content="Hi")]


def generated(
    conversation: Conversation,
    *,
    tools: tuple[ToolShape, ...] = (),
    limit: int | None = None,
    context: int = 4096,
    **sampling: Any,
) -> tuple[GenerationRequest, Asked | None]:
    request = ChatRequest(messages=MESSAGES, **sampling)
    task = Task(conversation, request, token_limit=limit, tools=tools)
    return generation_of(task, work_of("chat", loaded=engine(max_model_len=context)))


def test_the_limit_is_cut_to_the_context_that_is_left() -> None:
    conversation = Conversation(messages=USER)
    generation, _ = generated(conversation, limit=5)
    assert generation.params.max_tokens == 5
    [prompt] = generation.prompts
    cut, _ = generated(conversation, limit=5, context=len(prompt) + 2)
    assert (cut.params.max_tokens, cut.prompts) == (2, [prompt])
    with pytest.raises(ContextTooLongError) as refused:
        generated(conversation, limit=5, context=len(prompt))
    assert refused.value.param == "messages"


def test_an_answer_that_goes_on_begins_where_it_was_left() -> None:
    begun = {"role": "assistant", "content": "I am"}
    generation, _ = generated(
        Conversation(
            messages=[*USER, begun], add_generation_prompt=False, continue_final_message=True
        )
    )
    assert generation.continues_text
    assert tokenizer().decode(generation.prompts[0]).endswith("I am")
    assert generation.opening is Opening.TEXT
    fresh, _ = generated(Conversation(messages=[*USER, begun, *USER]))
    assert not fresh.continues_text


def test_the_parser_gets_the_names_and_types_of_arguments_and_nothing_else() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {}}}
    tools = (
        ToolDefinition(name="f", description="long " * 99, parameters=schema),
        ToolDefinition(name="g"),
    )
    generation, asked = generated(Conversation(messages=USER, tools=tools))
    assert generation.tools == {
        "f": {"properties": {"a": {"type": ["integer"]}, "b": {}}},
        "g": None,
    }
    assert asked is None
    forbidden, _ = generated(Conversation(messages=USER, tools=tools, tool_choice="none"))
    assert forbidden.tools is None


def test_a_call_that_must_be_made_is_a_form() -> None:
    tools = (ToolShape(name="f", parameters=SCHEMA, param="tools.0"),)
    _, asked = generated(Conversation(messages=USER, tool_choice="required"), tools=tools)
    assert asked is not None


def test_only_an_answer_in_a_form_is_parsed_as_one() -> None:
    task = Task(Conversation(messages=USER), ChatRequest(messages=MESSAGES), token_limit=None)
    formed = task._replace(answer=OneOf(options=("a",), param="choice"))
    for one, has_form in ((task, False), (formed, True)):
        generation, _ = generation_of(one, work_of("chat"))
        assert generation.has_form == has_form


def test_a_beam_search_can_have_no_form() -> None:
    form = ConstraintRequest(answer=OneOf(options=("a", "b"), param="guided_choice"))
    sampled, _ = generated(Conversation(messages=USER), n=2)
    searched, _ = generated(Conversation(messages=USER), n=2, use_beam_search=True)
    assert asked_form(form, sampled) is not None
    assert asked_form(ConstraintRequest(), searched) is None
    with pytest.raises(InvalidRequestError) as refused:
        asked_form(form, searched)
    assert refused.value.param == "use_beam_search"


def test_a_chat_s_tools_are_carried_with_their_places() -> None:
    tools = [
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "function": {"name": "g"}},
    ]
    fields = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    request = decode_chat(json.dumps({"messages": USER, **fields}).encode(), max_choices=4)
    task = chat_task(request)
    asked = constraint_request(task.conversation, None, tools=task.tools, opening=Opening.REASONING)
    first, second = asked.tools
    assert (first.name, first.parameters, first.strict) == ("f", SCHEMA, True)
    assert (second.name, second.parameters, second.strict) == ("g", None, False)
    assert second.param == "tools.1.function.parameters"
    assert asked.tool_choice == "required"
    assert not asked.parallel_tool_calls
    assert asked.opening is Opening.REASONING


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({}, True),
        ({"thinking": True}, True),
        ({"thinking": False}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"variables": {"enable_thinking": False}}, False),
    ],
)
def test_reasoning_is_left_out_where_it_is_switched_off(
    fields: dict[str, Any], reasons: bool
) -> None:
    conversation = Conversation(messages=[], tools=(ToolDefinition(name="f"),), **fields)
    asked = constraint_request(conversation, None, opening=Opening.TEXT)
    assert asked.reasoning is reasons
    assert msgspec.json.encode(asked)  # plain data throughout
