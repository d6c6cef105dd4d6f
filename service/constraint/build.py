"""Builds one grammar for the engine from a request's constraints.

    start = reasoning, free, then the answer's form, or calls, or free text with calls in it

Reasoning and text are unconstrained, except that they cannot contain tags that would have a
different meaning there. A forced call (``required``, or a named tool) follows the reasoning
directly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from engine.messages import MAX_GRAMMAR_CHARS, Constraint
from service.constraint.calls import CallTerms, opening_of_calls, other_openings_of_calls
from service.constraint.channels import ChannelTerms
from service.constraint.lark import (
    SPACE,
    Rules,
    Tag,
    TokenIds,
    TooLargeError,
    either,
    literal,
    pattern,
    quoted,
    spelled,
    tag,
)
from service.constraint.request import (
    AnswerShape,
    AnyJsonObject,
    ConstraintRequest,
    Grammar,
    JsonSchema,
    NamedTool,
    OneOf,
    Regex,
    ToolShape,
)
from service.constraint.schema import enforceable
from service.constraint.schema_grammar import eased, schema_grammar
from service.errors import InvalidRequestError
from service.formats import Opening, OutputFormat, ToolCallTags

# Limits on how ambiguous a grammar may be. A client's own grammar gets the lower one; a parser row
# of a JSON schema's grammar can be wide (four items for each optional property), but is cheap.
_ROW_ITEMS_OF_STRANGERS = 300
_ROW_ITEMS = 1000
_MAX_OPTIONS = 10_000
_MOST_FRAMING = 4  # tags without meaning before an answer
_CLIENT_GRAMMAR = "client"


def eased_requests(request: ConstraintRequest) -> Iterator[tuple[ConstraintRequest, list[str]]]:
    """Yield less demanding versions of a request whose answer need not be strict, with the paths of
    the keywords dropped."""
    answer = request.answer
    if not isinstance(answer, JsonSchema) or answer.strict:
        return
    for schema, _, paths in eased(answer.schema, answer.param):
        easier = msgspec.structs.replace(answer, schema=schema)
        yield msgspec.structs.replace(request, answer=easier), paths


def build_constraint(
    request: ConstraintRequest,
    output_format: OutputFormat,
    token_ids: TokenIds,
    *,
    exact: bool = True,
    left_out: list[str] | None = None,
) -> Constraint | None:
    """Build a request's grammar, without compiling it. ``exact``: forced calls also follow the
    schemas of tools that are not strict; ``left_out`` gains the paths of answer schema keywords
    that the grammar does not enforce. Raises InvalidRequestError."""
    if not asks_anything(request):
        return None
    tools = _callable_tools(request)
    forced = _forces_a_call(request)
    if tools and output_format.tool_call is None and output_format.channels is None:
        if forced:
            raise InvalidRequestError(
                "This model's output format has no tool calls, so none can be required.",
                param="tool_choice",
            )
        tools = ()
        if request.answer is None:
            return None
    build = _Builder(output_format, token_ids, request)
    try:
        if forced:
            start = build.after_reasoning(build.calls(tools, exact=exact))
        elif request.answer is not None:
            start = build.answer_or_calls(request.answer, tools)
        else:
            start = build.free_text_with_calls(tools)
        constraint = build.constraint(start)
    except TooLargeError as error:
        raise InvalidRequestError(
            "The schemas are too large in total to constrain the output.",
            param="tools" if request.answer is None else request.answer.param,
        ) from error
    if left_out is not None:
        left_out += build.left_out
    return constraint


def _callable_tools(request: ConstraintRequest) -> tuple[ToolShape, ...]:
    choice = request.tool_choice
    if choice == "none":
        return ()
    if isinstance(choice, NamedTool):
        named = tuple(tool for tool in request.tools if tool.name == choice.name)
        if not named:
            raise InvalidRequestError(
                f"'tool_choice' names '{choice.name[:64]}', which is not among 'tools'.",
                param="tool_choice",
            )
        return named
    if choice == "required" and not request.tools:
        raise InvalidRequestError(
            "'tool_choice' requires a tool call, but there are no 'tools'.", param="tool_choice"
        )
    return request.tools


def _forces_a_call(request: ConstraintRequest) -> bool:
    return request.tool_choice == "required" or isinstance(request.tool_choice, NamedTool)


def is_gbnf(grammar: Grammar) -> bool:
    return grammar.syntax == "gbnf" or (grammar.syntax == "auto" and "::=" in grammar.text)


def asks_anything(request: ConstraintRequest) -> bool:
    """True if the answer is constrained, a call is forced, or calls must follow any rule."""
    if request.answer is not None or _forces_a_call(request):
        return True
    if not request.tools or request.tool_choice == "none":
        return False
    return not request.parallel_tool_calls or any(
        tool.strict or tool.input is not None for tool in request.tools
    )


class _Builder:
    """Builds one grammar."""

    def __init__(
        self, output_format: OutputFormat, token_ids: TokenIds, request: ConstraintRequest
    ) -> None:
        self.rules = Rules()
        self.left_out: list[str] = []
        self._token_ids = token_ids
        self._request = request
        self._calls = output_format.tool_call
        self._client_grammar: Grammar | None = None
        self._in_reasoning = request.opening is Opening.REASONING
        self._channels: ChannelTerms | None = None
        if output_format.channels is not None:
            self._channels = ChannelTerms(
                self.rules,
                output_format.channels,
                self._calls,
                token_ids,
                opening=request.opening,
                reasoning=request.reasoning,
            )
        tags = output_format.reasoning if request.reasoning or self._in_reasoning else None
        self._reasoning: tuple[Tag, tuple[Tag, ...]] | None = None
        if tags is not None:
            closing = tuple(tag(close, token_ids) for close in tags.closes)
            self._reasoning = (tag(tags.open, token_ids), closing)
        # Tags without meaning may surround answers and calls. Those that are not special tokens are
        # ordinary text and need no rule.
        ignored = [tag(text, token_ids) for text in output_format.ignored]
        self._framing = [framing.term for framing in ignored if framing.special]

    @property
    def _call_tags(self) -> ToolCallTags:
        assert self._calls is not None
        return self._calls

    def constraint(self, start: str) -> Constraint:
        source = self.rules.source(start)
        if self._client_grammar is None:
            if len(source) > MAX_GRAMMAR_CHARS:
                raise TooLargeError
            return Constraint(grammar=source, row_items=_ROW_ITEMS)
        parts = [
            {"lark_grammar": source},
            {"name": _CLIENT_GRAMMAR, "lark_grammar": self._client_grammar.text},
        ]
        return Constraint(
            grammar=json.dumps({"grammars": parts}), row_items=_ROW_ITEMS_OF_STRANGERS
        )

    # --- reasoning -----------------------------------------------------------------------------

    def after_reasoning(self, term: str) -> str:
        """Return ``term`` preceded by reasoning, if there may be any."""
        if self._channels is not None:
            return self._channels.after_reasoning(term)
        if self._framing:
            one = self.rules.add(either(self._framing))
            few = "".join(f"({one} " for _ in range(_MOST_FRAMING))
            term = f"{few}{')?' * _MOST_FRAMING} {term}"
        if self._reasoning is None:
            return term
        opening, closing = self._reasoning
        space = self.rules.add(SPACE, terminal=True)
        rest = self.rules.add(f"{self.rules.text_to(*closing)} {space}")
        if self._in_reasoning:
            return f"{rest} {term}"
        return f"({opening.term} {rest})? {term}"

    # --- answers -------------------------------------------------------------------------------

    def answer_or_calls(self, shape: AnswerShape, tools: tuple[ToolShape, ...]) -> str:
        terms = [self.whole_answer(shape)]
        if tools:
            terms.append(self.calls(tools, exact=False))
        return self.after_reasoning(self.rules.add(either(terms)))

    def whole_answer(self, shape: AnswerShape) -> str:
        """Return the answer's term with the message around it, if the format has messages."""
        term = self.answer(shape)
        return term if self._channels is None else self._channels.answer(term)

    def answer(self, shape: AnswerShape) -> str:
        match shape:
            case JsonSchema(schema=schema, param=param, any_whitespace=any_whitespace):
                read = enforceable(schema, param)
                if shape.strict and read.left_out:
                    raise read.left_out[0]
                self.left_out += read.paths
                return self.rules.add(schema_grammar(read.schema, any_whitespace=any_whitespace))
            case AnyJsonObject():
                return self.rules.add(schema_grammar({"type": "object"}))
            case Regex(pattern=regex, param=param):
                check_size(regex, param)
                return self.rules.add(pattern(regex), terminal=True)
            case OneOf(options=options, param=param):
                return self.rules.add(_options(options, param), terminal=True)
            case Grammar(text=text, param=param):
                check_size(text, param)
                self._client_grammar = shape
                return f"@{_CLIENT_GRAMMAR}"

    # --- calls ---------------------------------------------------------------------------------

    def calls(self, tools: tuple[ToolShape, ...], *, exact: bool) -> str:
        """Return a term for one call, or for several if parallel calls are allowed and no tool is
        named."""
        single = isinstance(self._request.tool_choice, NamedTool)
        many = self._request.parallel_tool_calls and not single
        if self._channels is not None:
            return self._channels.calls(tools, exact=exact, many=many)
        terms = CallTerms(self.rules, self._call_tags, tools, self._token_ids, exact=exact)
        return terms.term(many=many)

    def free_text_with_calls(self, tools: tuple[ToolShape, ...]) -> str:
        """Return a term for any text with any number of calls in it; at most one, at the end, if
        parallel calls are not allowed."""
        many = self._request.parallel_tool_calls
        if self._channels is not None:
            return self._channels.free(tools, many=many)
        calls = CallTerms(self.rules, self._call_tags, tools, self._token_ids, exact=False)
        opening = tag(opening_of_calls(self._call_tags), self._token_ids)
        if self._call_tags.bare:
            return self._calls_or_text(calls, opening, many=many)
        call = calls.term(many=many, opened=True)
        closing = self._closing_of_reasoning()
        others = [tag(text, self._token_ids) for text in other_openings_of_calls(self._call_tags)]
        text = self._free_text(opening, *others)
        if opening.special:
            until = self.rules.add(f"{text} {opening.term}")
        else:
            until = self.rules.shaped_to(self.rules.text(opening, *others), opening)
        if many:
            body = f"({until} {call})* {text}"
        else:
            space = self.rules.add(SPACE, terminal=True)
            body = f"({text} | {until} {call} {space})"
        if closing is None:
            return body
        unfinished = self.rules.text(*closing)
        return f"({unfinished} | {self.rules.text_to(*closing)} {body})"

    def _calls_or_text(self, calls: CallTerms, opening: Tag, *, many: bool) -> str:
        """Where calls need no tags, an answer consists of calls alone, or of text that does not
        begin like one. If the format has tags as well, calls in them may follow the text."""
        first = quoted(self._call_tags.bare)
        space = self.rules.add(SPACE, terminal=True)
        bare = self.rules.add(calls.bare(many=many))
        shape = f"/[ \\t\\r\\n]*([^{first} \\t\\r\\n](?s:.*))?/"
        terms = [f"{space} {bare}"]
        if opening.text:
            shape += f" & ~/(?s:.*){quoted(opening.text)}(?s:.*)/"
            close = spelled(self._call_tags.close, self._token_ids)
            terms.append(f"{self.rules.shaped_to(shape, opening)} {space} {bare} {space} {close}")
        terms.append(self.rules.add(shape, terminal=True))
        return self.after_reasoning(self.rules.add(either(terms)))

    def _closing_of_reasoning(self) -> tuple[Tag, ...] | None:
        """Return the tags that close the reasoning left open by the prompt."""
        if self._reasoning is None or not self._in_reasoning:
            return None
        return self._reasoning[1]

    def _free_text(self, *openings: Tag) -> str:
        """Return a term for text without a call's opening tags; it may contain blocks of reasoning,
        finished or not."""
        text = self.rules.text(*openings)
        if self._framing:
            text = self.rules.add(f"{text} ({either(self._framing)} {text})*")
        if self._reasoning is None or not self._reasoning[0].special:
            return text
        first, last = self._reasoning
        block = f"{first.term} {self.rules.text_to(*last)}"
        unfinished = f"{first.term} {self.rules.text(*last)}"
        return self.rules.add(f"{text} ({block} {text})* ({unfinished})?")


def check_size(text: str, param: str) -> None:
    """Raise InvalidRequestError if the text is too long for a constraint."""
    if len(text) > MAX_GRAMMAR_CHARS // 4:
        raise InvalidRequestError(
            f"'{param}' may have at most {MAX_GRAMMAR_CHARS // 4} characters.",
            param=param,
        )


def _options(options: tuple[str, ...], param: str) -> str:
    if not options:
        raise InvalidRequestError("There must be at least one choice.", param=param)
    if len(options) > _MAX_OPTIONS:
        raise InvalidRequestError(f"There may be at most {_MAX_OPTIONS} choices.", param=param)
    check_size("".join(options), param)
    return " | ".join(literal(option) for option in options)
