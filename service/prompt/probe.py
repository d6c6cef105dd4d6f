"""What a chat template writes, however it puts its text together: it is rendered for a small
conversation, with reasoning, a tool call and the call's result.

Templates assemble tags from variables (``'<' + dsml_token + 'invoke'``), so their source alone does
not always show the tags of the model's family.
"""

from __future__ import annotations

import threading
from typing import Any

from observability.logging import get_logger
from service.prompt.template import ChatTemplate, TemplateError

# A template that takes longer, or writes more, is judged by its source alone.
_MAX_SECONDS = 5.0
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

_log = get_logger()


def written_by(template: ChatTemplate) -> str:
    """The texts of the conversation as the template writes it, one after the other; empty where it
    refuses them all or takes too long."""
    texts: list[str] = []
    # A thread of its own, as nothing else can be left behind when a template never ends.
    probe = threading.Thread(target=_render, args=(template, texts), name="probe", daemon=True)
    probe.start()
    probe.join(_MAX_SECONDS)
    if probe.is_alive():
        _log.warning("the chat template takes too long, its source alone is looked at")
    return "\n".join(texts)


def _render(template: ChatTemplate, texts: list[str]) -> None:
    for arguments in _ARGUMENTS:
        for variables in ({}, _VARIABLES):
            try:
                text = template.render(
                    _conversation(arguments),
                    tools=[_TOOL],
                    variables=variables,
                    max_chars=_MAX_CHARS,
                )
            except TemplateError:
                continue
            texts.append(text)


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
