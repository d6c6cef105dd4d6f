"""Grammars for model families whose messages have headers: reasoning, answers and calls."""

from __future__ import annotations

from service.constraint.arguments import arguments_schema, is_binding
from service.constraint.calls import CallTerms, terms_of_tools
from service.constraint.lark import Rules, TokenIds, either, spelled, tag
from service.constraint.request import ToolShape
from service.constraint.schema_grammar import schema_grammar
from service.formats import Channels, Opening, ToolCallTags


class ChannelTerms:
    """Terms for what a model writes from a message's header on, or, depending on ``opening``, from
    the middle of a message. ``tags``: how calls are written if the header alone does not identify
    them. ``reasoning``: a message of reasoning may be opened."""

    def __init__(
        self,
        rules: Rules,
        channels: Channels,
        tags: ToolCallTags | None,
        token_ids: TokenIds,
        *,
        opening: Opening,
        reasoning: bool,
    ) -> None:
        self._rules = rules
        self._opening = opening
        self._reasoning_header = channels.reasoning_header if reasoning else ""
        self._channels = channels
        self._tags = tags
        self._token_ids = token_ids
        ends = [*channels.opens, *channels.closes, *channels.message]
        if tags is not None:
            ends += tags.opens
        # Delimiters with white space at an end may also occur in text.
        self._text = rules.text(*(tag(end, token_ids) for end in ends if end.strip() == end))

    def after_reasoning(self, term: str) -> str:
        """Return ``term`` preceded by reasoning, if there may be any."""
        if self._opening is Opening.REASONING:
            return f"{self._rest_of_message()} {term}"
        header = self._reasoning_header
        if not header or self._opening is Opening.TEXT:
            return term
        return f"({self._message_before(header)})? {term}"

    def answer(self, term: str) -> str:
        if self._opening is Opening.TEXT:
            return term
        return f"{self._spelled(self._channels.text_headers[0])} {term}"

    def calls(self, tools: tuple[ToolShape, ...], *, exact: bool, many: bool) -> str:
        """Return a term for one call, or with ``many`` any number if the family supports several at
        once."""
        calls = self._calls(tools, exact=exact, many=many)
        return f"{self._rest_of_message()} {calls}" if self._opening is Opening.TEXT else calls

    def _calls(self, tools: tuple[ToolShape, ...], *, exact: bool, many: bool) -> str:
        def written(tool: ToolShape) -> str:
            header = self._spelled(self._channels.written.format(name=tool.name))
            return f"{header} {self._body(tool, exact=exact)}"

        one = self._rules.add(either(terms_of_tools(tools, written, self._rules)))
        if not many or not self._channels.next_call:
            return one
        return self._rules.add(f"{one} ({self._spelled(self._channels.next_call)} {one})*")

    def _body(self, tool: ToolShape, *, exact: bool) -> str:
        if self._channels.call or self._tags is None:
            schema = arguments_schema(tool, exact=exact)
            return schema_grammar(schema, lenient=not is_binding(tool))
        terms = CallTerms(self._rules, self._tags, (tool,), self._token_ids, exact=exact)
        return terms.term(many=False)

    def free(self, tools: tuple[ToolShape, ...], *, many: bool) -> str:
        """Return a term for any messages, optionally followed by calls."""
        calls = self._calls(tools, exact=False, many=many)
        headers = [
            header for header in (self._reasoning_header, *self._channels.text_headers) if header
        ]
        before = self._rules.add(either([self._message_before(header) for header in headers]))
        last = either([f"{self._spelled(header)} {self._text}" for header in headers])
        messages = self._rules.add(f"{before}* ({calls} | {self._rules.add(last)})")
        if self._opening is Opening.HEADER:
            return messages
        return self._rules.add(f"{self._text} | {self._rest_of_message()} {messages}")

    def _message_before(self, header: str) -> str:
        """Return a term for a message, up to the start of the next header."""
        return f"{self._spelled(header)} {self._rest_of_message()}"

    def _rest_of_message(self) -> str:
        end, following = self._channels.between
        text = self._rules.text_to(tag(end, self._token_ids))
        return f"{text} {self._spelled(following)}"

    def _spelled(self, text: str) -> str:
        return spelled(text, self._token_ids)
