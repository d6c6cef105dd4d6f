"""Finds out what a chat template writes by rendering it for a small conversation with reasoning, a
tool call and the call's result, and which words of effort it knows.

Templates assemble tags from variables (``'<' + dsml_token + 'invoke'``), so their source alone does
not always show the tags of the model's family. Nor does it show how calls must be passed to it.

``python -m service.checkpoint.probe`` does this for an untrusted template, in a process with
limited time and memory. It reads a ``_Question`` from standard input and writes two findings, a
line each: the words of effort, then everything. The first is kept if rendering exceeds the limits.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.python_command import python_command
from observability.logging import get_logger
from observability.stacks import write_stacks_on_sigusr1
from service.checkpoint.call_style import CallStyle, CallStyles
from service.checkpoint.template import ChatTemplate, TemplateError, TemplateLimitError
from service.conversation import JsonObject
from service.supervision.child_process import child_environment, describe_exit

# A template that needs more, or writes more, is judged by its source alone.
_MAX_CHARS = 256 * 1024
_CPU_SECONDS = 2
_MAX_MEMORY_BYTES = 256 << 20
# For a process that gets no CPU time.
_PATIENCE_SECONDS = 120.0

_log = get_logger()

_TOOL: JsonObject = {
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
_TOOLS = ([_TOOL], None)
_CITY = "Oslo"  # only in the call
_ARGUMENTS = {"city": _CITY}
_CALL = {
    "id": "call00000",
    "type": "function",
    "function": {"name": "get_weather", "arguments": _ARGUMENTS},
}
_CONVERSATION: list[JsonObject] = [
    {"role": "user", "content": "How is the weather?"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Let me see.",
        "reasoning": "Let me see.",
        "tool_calls": [_CALL],
    },
    {"role": "tool", "tool_call_id": "call00000", "name": "get_weather", "content": "Rain"},
]
_STYLES = (
    CallStyle(),
    CallStyle(text_arguments=True),
    CallStyle(null_content=True),
    CallStyle(text_arguments=True, null_content=True),
)
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


class ProbedTemplate(msgspec.Struct, frozen=True):
    """``written``: the conversation as the template renders it in several variants, concatenated;
    empty if it rejects all of them. ``styles``: how calls must be passed to it. ``efforts``: the
    words that it compares ``reasoning_effort`` with."""

    written: str = ""
    styles: CallStyles = CallStyles()
    efforts: frozenset[str] = frozenset()


class _Finding(msgspec.Struct, frozen=True):
    """``error``: why the template does not parse."""

    probed: ProbedTemplate = ProbedTemplate()
    error: str | None = None


def probe_template(template: ChatTemplate) -> ProbedTemplate:
    """Search the template's source for words of effort, and render it. Its own ``styles`` must not
    be set yet."""
    return _rendered(template, _efforts(template))


def _efforts(template: ChatTemplate) -> frozenset[str]:
    with contextlib.suppress(TemplateError):
        return template.find_efforts()
    return frozenset()


def _rendered(template: ChatTemplate, efforts: frozenset[str]) -> ProbedTemplate:
    styles = CallStyles(*(_style(template, tools) for tools in _TOOLS))
    return ProbedTemplate(_written_by(template), styles, efforts)


def _written_by(template: ChatTemplate) -> str:
    texts = (
        _render(template, style, variables, _TOOLS[0])
        for style in _STYLES
        for variables in ({}, _VARIABLES)
    )
    return "\n".join(filter(None, texts))


def _style(template: ChatTemplate, tools: list[JsonObject] | None) -> CallStyle:
    """Return the first style in which the call's arguments are seen, as JSON rather than as Python
    writes an object."""
    for variables in ({}, _VARIABLES):
        for style in _STYLES:
            text = _render(template, style, variables, tools)
            if _CITY not in text:
                continue
            as_json = msgspec.structs.replace(style, text_arguments=True)
            printed = text.replace(str(_ARGUMENTS), json.dumps(_ARGUMENTS))
            if text != printed == _render(template, as_json, variables, tools):
                return as_json
            return style
    return CallStyle()


def _render(
    template: ChatTemplate,
    style: CallStyle,
    variables: dict[str, Any],
    tools: list[JsonObject] | None,
) -> str:
    """Return the conversation; empty if the template rejects it."""
    with contextlib.suppress(TemplateError):
        return template.render(
            style.messages(_CONVERSATION), tools=tools, variables=variables, max_chars=_MAX_CHARS
        )
    return ""


def probe_stranger(
    source: str, special_tokens: dict[str, str], *, tool_use: str | None = None
) -> ProbedTemplate:
    """Like ``probe_template``, for an untrusted template, in a separate process; finds no more than
    words of effort if that does not end within its limits. Raises TemplateError when the template
    does not parse."""
    try:
        ended = subprocess.run(
            python_command("-m", "service.checkpoint.probe"),
            input=msgspec.json.encode(_Question(source, special_tokens, tool_use)),
            stdout=subprocess.PIPE,
            env=child_environment(os.environ),
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        _log.warning("gave up a chat template that does not end", seconds=_PATIENCE_SECONDS)
        return _last_finding(expired.stdout or b"").probed
    finding = _last_finding(ended.stdout)
    if ended.returncode:
        _log.warning("gave up a costly chat template", exit=describe_exit(ended.returncode))
    if finding.error is not None:
        raise TemplateError(finding.error)
    return finding.probed


def _last_finding(written: bytes) -> _Finding:
    """Return the last one that was written to its end."""
    *lines, _cut_off = written.split(b"\n")
    return msgspec.json.decode(lines[-1], type=_Finding) if lines else _Finding()


def _findings(question: _Question) -> Iterator[_Finding]:
    """Find the words of effort first: the source is only parsed for them."""
    template = ChatTemplate(question.source, question.special_tokens, tool_use=question.tool_use)
    efforts = _efforts(template)
    yield _Finding(ProbedTemplate(efforts=efforts))
    try:
        template.compile()
    except TemplateLimitError:
        return
    except TemplateError as error:
        yield _Finding(error=str(error))
    else:
        yield _Finding(_rendered(template, efforts))


def main() -> int:
    write_stacks_on_sigusr1()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    seconds = math.ceil(time.process_time()) + _CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    for finding in _findings(question):
        sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
