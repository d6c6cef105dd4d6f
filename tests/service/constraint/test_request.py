"""What a request asks travels to another process and is the same there."""

from __future__ import annotations

import msgspec
import pytest

from service.constraint.request import (
    AnswerShape,
    AnyJsonObject,
    ConstraintRequest,
    Grammar,
    JsonSchema,
    NamedTool,
    OneOf,
    Regex,
    ToolChoice,
    ToolShape,
)
from service.formats import Opening

SHAPES: list[AnswerShape | None] = [
    None,
    JsonSchema(schema={"type": "object"}, param="p", strict=True),
    JsonSchema(schema=True, param="p", any_whitespace=False),
    AnyJsonObject(param="p"),
    Regex(pattern="a+", param="p"),
    OneOf(options=("a", "b"), param="p"),
    Grammar(text="start: /a/", param="p", syntax="lark"),
]
CHOICES: list[ToolChoice] = ["none", "auto", "required", NamedTool("f")]


@pytest.mark.parametrize("answer", SHAPES, ids=lambda shape: type(shape).__name__)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_shape_and_choice_is_distinguished(
    answer: AnswerShape | None, choice: ToolChoice
) -> None:
    request = ConstraintRequest(
        answer=answer,
        tools=(
            ToolShape(name="f", param="tools.0", parameters={"type": "object"}, strict=True),
            ToolShape(name="g", param="tools.1", custom=True, input=Regex(pattern="a", param="t")),
            ToolShape(name="h", param="tools.2", custom=True, input=Grammar(text="x", param="t")),
        ),
        tool_choice=choice,
        opening=Opening.REASONING,
    )
    sent = msgspec.msgpack.encode(request)
    assert msgspec.msgpack.decode(sent, type=ConstraintRequest) == request
