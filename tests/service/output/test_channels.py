"""Headers of messages: what follows them, and the calls that they make."""

from __future__ import annotations

from typing import Any

import pytest

from service.formats import named_format
from service.output.calls.source import NotACallError
from service.output.channels import read_header
from tests.service.output.calls.reading import Call, Recorder, read

HARMONY = named_format("tool_calls", "openai").channels
TOOLS: dict[str, Any] = {"get_weather": None}


def header(
    text: str, opened: str = "<|start|>", tools: dict[str, Any] | None = TOOLS, **options: Any
) -> tuple[Recorder, str | None]:
    channels = HARMONY
    assert channels is not None
    return read(
        lambda source, sink: read_header(source, sink, channels, None, tools, opened),
        text,
        **options,
    )


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("assistant<|channel|>analysis<|message|>", True),
        ("assistant<|channel|>final<|message|>", False),
        ("assistant<|channel|>commentary<|message|>", False),
    ],
)
def test_a_header_says_whether_its_message_is_reasoning(text: str, reasoning: bool) -> None:
    told, rest = header(text + "Hm.")
    [said] = told.headers
    assert (said["reasoning"], said["shown"]) == (reasoning, True)
    assert (told.calls, rest) == ([], "Hm.")


CALL = "assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"city": "Oslo"}<|call|>', Call("get_weather", None, '{"city": "Oslo"}', True)),
        ("<|call|>", Call("get_weather", None, "{}", True)),
        (" ", Call("get_weather", None, "{}", True)),
        ("{city}<|call|>", Call("get_weather", None, "{city}", False)),
    ],
    ids=["whole", "left out", "ended by a stop token", "no JSON"],
)
def test_a_header_that_names_a_tool_makes_its_call(arguments: str, told: Call) -> None:
    found, _ = header(CALL + arguments)
    assert found.calls == [told]


def test_a_call_cut_off_before_its_arguments_is_not_made() -> None:
    found, rest = header(CALL, truncated=True)
    assert (found.calls, rest) == ([], None)


def test_without_tools_no_header_makes_a_call() -> None:
    found, rest = header(CALL + "{}", tools=None)
    assert (found.calls, rest) == ([], "{}")
    [said] = found.headers
    assert not said["reasoning"]


@pytest.mark.parametrize("text", ["x" * 1000 + "<|message|>", "assistant<|end|>"])
def test_a_header_must_end_soon_and_as_declared(text: str) -> None:
    with pytest.raises(NotACallError):
        header(text)
    with pytest.raises(NotACallError):
        header(CALL + "sorry<|call|>")
