"""Finds out what a chat template writes by rendering it for a small conversation with reasoning, a
tool call and the call's result.

Templates assemble tags from variables (``'<' + dsml_token + 'invoke'``), so their source alone does
not always show the tags of the model's family.

``python -m service.checkpoint.probe`` does this for an untrusted template, in a process with
limited time and memory. It reads a ``_Question`` from standard input and writes a ``_Finding``.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from engine.python_command import python_command
from observability.logging import get_logger
from observability.stacks import write_stacks_on_sigusr1
from service.checkpoint.template import ChatTemplate, TemplateError, TemplateLimitError
from service.supervision.child_process import child_environment, describe_exit

# A template that needs more, or writes more, is judged by its source alone.
_MAX_CHARS = 256 * 1024
_CPU_SECONDS = 2
_MAX_MEMORY_BYTES = 256 << 20
# For a process that gets no CPU time.
_PATIENCE_SECONDS = 120.0

_log = get_logger()

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
_ARGUMENTS: tuple[Any, ...] = ({"city": "Oslo"}, '{"city": "Oslo"}')  # some want a string
_VARIABLES = {
    "enable_thinking": True,
    "thinking": True,
    "reasoning_effort": "high",
    "functions": "[]",
    "datetime": "",
}


class _Question(msgspec.Struct, frozen=True):
    source: str
    special_tokens: dict[str, str]
    tool_use: str | None = None


class _Finding(msgspec.Struct, frozen=True):
    """``error``: why the template does not parse."""

    written: str = ""
    error: str | None = None


def written_by(template: ChatTemplate) -> str:
    """Return the conversation as the template renders it in several variants, concatenated; empty
    if it rejects all of them."""
    texts: list[str] = []
    for arguments in _ARGUMENTS:
        for variables in ({}, _VARIABLES):
            with contextlib.suppress(TemplateError):
                text = template.render(
                    _conversation(arguments),
                    tools=[_TOOL],
                    variables=variables,
                    max_chars=_MAX_CHARS,
                )
                texts.append(text)
    return "\n".join(texts)


def written_by_stranger(
    source: str, special_tokens: dict[str, str], *, tool_use: str | None = None
) -> str:
    """Like ``written_by``, for an untrusted template, in a separate process; empty if that does not
    finish within its limits. Raises TemplateError when the template does not parse."""
    try:
        ended = subprocess.run(
            python_command("-m", "service.checkpoint.probe"),
            input=msgspec.json.encode(_Question(source, special_tokens, tool_use)),
            stdout=subprocess.PIPE,
            env=child_environment(os.environ),
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _log.warning("gave up a chat template that does not end", seconds=_PATIENCE_SECONDS)
        return ""
    if ended.returncode:
        _log.warning("gave up a costly chat template", exit=describe_exit(ended.returncode))
        return ""
    finding = msgspec.json.decode(ended.stdout, type=_Finding)
    if finding.error is not None:
        raise TemplateError(finding.error)
    return finding.written


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


def _find(question: _Question) -> _Finding:
    template = ChatTemplate(question.source, question.special_tokens, tool_use=question.tool_use)
    try:
        template.compile()
    except TemplateLimitError:
        return _Finding()
    except TemplateError as error:
        return _Finding(error=str(error))
    return _Finding(written=written_by(template))


def main() -> int:
    write_stacks_on_sigusr1()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    seconds = math.ceil(time.process_time()) + _CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.stdout.buffer.write(msgspec.json.encode(_find(question)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
