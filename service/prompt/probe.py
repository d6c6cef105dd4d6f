"""What a chat template writes, however it puts its text together: it is rendered for a small
conversation, with reasoning, a tool call and the call's result.

Templates assemble tags from variables (``'<' + dsml_token + 'invoke'``), so their source alone does
not always show the tags of the model's family.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from service.prompt.template import ChatTemplate, TemplateError

# A template that takes more lines of Python, or writes more, is judged by its source alone.
_MAX_LINES = 300_000
_MAX_CHARS = 256 * 1024

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city."}},
            "required": ["city"],
        },
    },
}
_ARGUMENTS: tuple[Any, ...] = ({"city": "Oslo"}, '{"city": "Oslo"}')  # families want either
_VARIABLES = {
    "enable_thinking": True,
    "thinking": True,
    "reasoning_effort": "high",
    "functions": "[]",
    "datetime": "",
}


def written_by(template: ChatTemplate) -> str:
    """The texts of the conversation as the template writes it, one after the other; empty where it
    refuses them all, or does not come to an end."""
    texts: list[str] = []
    # A thread of its own: lines are counted by its trace function, and nobody else's is touched.
    probe = threading.Thread(target=_render_all, args=(template, texts), name="template-probe")
    probe.start()
    probe.join()
    return "\n".join(texts)


def _render_all(template: ChatTemplate, texts: list[str]) -> None:
    lines = _Lines()
    for arguments in _ARGUMENTS:
        for variables in ({}, _VARIABLES):
            sys.settrace(lines.count)
            try:
                text = template.render(
                    _conversation(arguments),
                    tools=[_TOOL],
                    variables=variables,
                    max_chars=_MAX_CHARS,
                )
            except TemplateError:
                continue
            finally:
                sys.settrace(None)
            texts.append(text)


class _Lines:
    """Raises TemplateError when there were too many."""

    def __init__(self) -> None:
        self._left = _MAX_LINES

    def count(self, frame: FrameType, event: str, argument: object) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TemplateError("the chat template takes too long")
        return self.count


def _conversation(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "get_weather", "arguments": arguments}
    call = {"id": "call00000", "type": "function", "function": function}
    return [
        {"role": "user", "content": "How is the weather?"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Let me see.",
            "reasoning": "Let me see.",
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "call00000", "name": "get_weather", "content": "Rain"},
    ]
