"""An answer as the gates see it, and how raw generated text becomes one.

Standard library only, so the same gates can judge any server's parsed answers.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

Finish = Literal["stop", "length", "tool_calls"]
_THOUGHT: Final = re.compile(r"\A\s*<think>\n?(.*?)\n?</think>\s*", re.DOTALL)
_CALL: Final = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_CONTROL: Final = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as parsed; `arguments` is None if they were not a JSON object."""

    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model, or a server around it, answered."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: Finish = "stop"


def tool_call(name: str, arguments: str | dict[str, Any]) -> ToolCall:
    """A call from a server's answer, whose arguments are usually a JSON string."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return ToolCall(name, None)
    return ToolCall(name, arguments if isinstance(arguments, dict) else None)


def _call(text: str) -> ToolCall:
    try:
        value = json.loads(text)
        return tool_call(str(value["name"]), value["arguments"])
    except (ValueError, KeyError, TypeError):
        return ToolCall("", None)


def parse(text: str, stopped: bool = True) -> Answer:
    """Parse raw generated text (after the prompt, marks included) into an answer.

    A thought that never closes stays in the content, where every gate will dislike it.
    """
    for mark in _CONTROL:
        text = text.split(mark, 1)[0]
    thought = _THOUGHT.match(text)
    reasoning = thought[1] if thought else ""
    rest = text[thought.end() :] if thought else text
    calls = tuple(_call(found) for found in _CALL.findall(rest))
    content = _CALL.sub("", rest).strip() if calls else rest
    reason: Finish = "length" if not stopped else "tool_calls" if calls else "stop"
    return Answer(content, reasoning, calls, reason)
