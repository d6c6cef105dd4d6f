"""Renders chat messages to prompt text with the checkpoint's own Jinja template, in a sandbox.

Templates come with the checkpoint and are not trusted: they run in Jinja's immutable sandbox, see
only plain JSON values, and their output is limited. The conventions (which globals and filters a
template may use) are those of ``apply_chat_template`` in transformers.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.exceptions import SecurityError
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from service.checkpoint.call_style import CallStyles
from service.checkpoint.effort_words import compared_words
from service.checkpoint.message_offsets import MessageOffsets
from service.conversation import JsonObject

MAX_PROMPT_CHARS = 64 * 1024 * 1024
# Marks the end of the final message, so that what the template adds after it can be cut off. Its
# trailing space shows whether the template strips messages.
_CONTINUE_MARK = "\u2063quire-continues-here\u2063 "


class TemplateError(ValueError):
    """The template rejected these messages, failed on them, or produced too much output."""


class TemplateLimitError(TemplateError):
    """It used more memory, or was nested deeper, than allowed."""


class _GenerationBlocks(jinja2.ext.Extension):
    """``{% generation %}`` marks assistant text for training; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> Node | list[Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    @staticmethod
    def _pass(caller: Callable[[], str]) -> str:
        return caller()


class _PlainDict:
    """``dict(...)`` for templates, without the attributes of the real class."""

    def __call__(self, *args: Any, **kwargs: Any) -> JsonObject:
        return dict(*args, **kwargs)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter, does not escape for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlocks, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["dict"] = _PlainDict()
    return environment


_GLOBALS = frozenset(_environment().globals)


def syntax_problem(source: str) -> str:
    """Return why a template does not parse; empty if it does. Nothing of it is evaluated."""
    try:
        _environment().parse(source)
    except jinja2.TemplateSyntaxError as error:
        return f"the chat template does not parse: {error.message} (line {error.lineno})"
    except (RecursionError, ValueError):  # found when it is compiled
        return ""
    return ""


class ChatTemplate:
    """A chat template, with a second one for conversations with tools if the checkpoint has one. It
    is compiled on first use, never before, because compiling alone may take any time and memory:
    Jinja evaluates constant expressions then. ``render`` may be called from several threads.
    ``sources`` are the texts of both; ``styles`` and ``efforts``, the words that it compares
    ``reasoning_effort`` with, are set once it has been probed."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        tool_use: str | None = None,
    ) -> None:
        """``special_tokens`` (bos_token, eos_token, …) become variables of the template, unless
        they have the name of a function such as ``raise_exception``; ``tool_use`` is the template
        for conversations with tools."""
        self._with_tools = None if tool_use is None else ChatTemplate(tool_use, special_tokens)
        self.source = source
        self.styles = CallStyles()
        self.efforts: frozenset[str] = frozenset()
        self._special_tokens = {
            name: text for name, text in (special_tokens or {}).items() if name not in _GLOBALS
        }
        self.sources: tuple[str, ...] = (source,)
        if self._with_tools is not None:
            self.sources += self._with_tools.sources

    def compile(self) -> None:
        """Raises TemplateError when a source does not parse, or TemplateLimitError."""
        _ = self.variables

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        """The external variables that it reads. Raises TemplateError."""
        _, names = self._compiled
        return names if self._with_tools is None else names | self._with_tools.variables

    def find_efforts(self) -> frozenset[str]:
        """Return the words that it compares ``reasoning_effort`` with. Raises TemplateError."""
        try:
            words = compared_words(_environment().parse(self.source), "reasoning_effort")
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template does not parse: {error}") from error
        except RecursionError as error:
            raise TemplateLimitError("the chat template exceeded its limits") from error
        return words if self._with_tools is None else words | self._with_tools.find_efforts()

    @functools.cached_property
    def _compiled(self) -> tuple[jinja2.Template, frozenset[str]]:
        environment = _environment()
        try:
            parsed = environment.parse(self.source)
            template = environment.from_string(parsed)
            names = jinja2.meta.find_undeclared_variables(parsed)
        except (jinja2.TemplateError, SyntaxError) as error:
            raise TemplateError(f"the chat template does not parse: {error}") from error
        except (RecursionError, OverflowError, MemoryError) as error:
            raise TemplateLimitError("the chat template exceeded its limits") from error
        return template, frozenset(names) - set(environment.globals)

    def render(
        self,
        messages: list[JsonObject],
        *,
        tools: list[JsonObject] | None = None,
        documents: list[JsonObject] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
        max_chars: int | None = None,
        offsets: MessageOffsets | None = None,
    ) -> str:
        """Return the prompt's text. ``offsets`` observes where each message begins. Raises
        TemplateError."""
        style = self.styles.without_tools if tools is None else self.styles.with_tools
        chosen = self if tools is None else self._with_tools or self
        if continue_final_message:
            messages = _mark_final(messages)
        messages = style.messages(messages)
        if offsets is not None:
            messages = offsets.watched(messages)
        context = {
            **self._special_tokens,
            **(variables or {}),
            "messages": messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        template, _ = chosen._compiled
        try:
            pieces: Iterable[str] = template.generate(context)
            if offsets is not None:
                pieces = offsets.follow(pieces)
            text = _bounded(pieces, max_chars or MAX_PROMPT_CHARS)
        except SecurityError as error:
            raise TemplateError(f"the chat template tried something forbidden: {error}") from error
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template refused the messages: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise TemplateError(f"the chat template failed on the messages: {error}") from error
        except (RecursionError, OverflowError, MemoryError) as error:
            raise TemplateLimitError("the chat template exceeded its limits") from error
        return _cut_at_mark(text) if continue_final_message else text


def _bounded(pieces: Iterable[str], max_chars: int) -> str:
    kept: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > max_chars:
            raise TemplateError(f"the chat template wrote more than {max_chars} characters")
        kept.append(piece)
    return "".join(kept)


def _mark_final(messages: list[JsonObject]) -> list[JsonObject]:
    final = messages[-1]
    content = final.get("content")
    if not isinstance(content, str):
        raise TemplateError("continue_final_message needs a final message with text content")
    return [*messages[:-1], {**final, "content": content + _CONTINUE_MARK}]


def _cut_at_mark(text: str) -> str:
    cut = text.rfind(_CONTINUE_MARK.rstrip())
    if cut < 0:
        raise TemplateError("the chat template dropped the final message, it cannot be continued")
    strips = not text.startswith(_CONTINUE_MARK, cut)
    return text[:cut].rstrip() if strips else text[:cut]
