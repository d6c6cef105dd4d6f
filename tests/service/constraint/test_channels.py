"""Families whose messages have headers: what their grammars allow from the middle of one on."""

from __future__ import annotations

from typing import Any

import pytest

from engine.messages import Constraint
from service.constraint.build import build_constraint
from service.constraint.request import AnyJsonObject, ConstraintRequest, NamedTool, ToolShape
from service.formats import Opening, ShippedFormat
from tests.service.constraint.grammars import accepts, token_id
from tests.service.constraint.shipped import EMPTY, SHIPPED, constraint, form, walk

pytestmark = pytest.mark.integration


CHANNELS = pytest.mark.parametrize(
    "shipped", [one for one in SHIPPED if one.channels], ids=lambda shipped: shipped.names[0]
)


@CHANNELS
def test_a_message_that_the_prompt_began_is_ended_before_what_comes_next(
    shipped: ShippedFormat,
) -> None:
    channels = shipped.channels
    assert channels is not None
    end = "".join(channels.between)
    said = f"{channels.text_headers[0]}Hello"
    ping = (ToolShape(name="ping", parameters=EMPTY, strict=True, param="t"),)

    def asked(at: Opening, tools: tuple[ToolShape, ...] = ping, **fields: Any) -> Constraint | None:
        request = ConstraintRequest(tools=tools, opening=at, **fields)
        return build_constraint(request, form(shipped), token_id)

    forced = next(filter(None, (walk(constraint_of_ping(shipped), seed) for seed in range(8))))
    for at in (Opening.TEXT, Opening.REASONING):
        free = asked(at)
        assert accepts(free, " and so on")
        assert accepts(free, f" and so on{end}{said}")
        assert accepts(free, f" and so on{end}{forced}")
        required = asked(at, tool_choice="required")
        assert accepts(required, f" and so on{end}{forced}")
        assert not accepts(required, " and so on")
        assert not accepts(required, forced)
    answer = AnyJsonObject(param="p")
    assert accepts(asked(Opening.TEXT, (), answer=answer), "{}")
    behind = asked(Opening.REASONING, (), answer=answer)
    assert accepts(behind, f" and so on{end}{channels.text_headers[0]}{{}}")
    assert not accepts(behind, "{}")


def constraint_of_ping(shipped: ShippedFormat) -> Constraint:
    return constraint(shipped, tool_choice=NamedTool("ping"), reasoning=False)


@CHANNELS
def test_no_reasoning_message_opens_after_a_prompt_that_closed_reasoning(
    shipped: ShippedFormat,
) -> None:
    channels = shipped.channels
    assert channels is not None
    if not channels.reasoning_header:
        return
    thought = f"{channels.reasoning_header}so{''.join(channels.between)}"
    said = f"{channels.text_headers[0]}Hello"
    assert accepts(constraint(shipped), thought + said)
    assert accepts(constraint(shipped, reasoning=False), said)
    assert not accepts(constraint(shipped, reasoning=False), thought + said)
    forced = walk(constraint_of_ping(shipped), 0)
    assert forced is not None
    one = NamedTool("ping")
    assert accepts(constraint(shipped, tool_choice=one), thought + forced)
    assert not accepts(constraint_of_ping(shipped), thought + forced)
