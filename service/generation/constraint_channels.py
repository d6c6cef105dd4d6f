"""Grammars for families whose messages have headers: reasoning, answers and calls."""

from __future__ import annotations

from engine.messages import MAX_GRAMMAR_CHARS
from service.errors import InvalidRequestError
from service.generation.constraint import ToolShape
from service.generation.constraint_arguments import arguments_schema, is_binding
from service.generation.constraint_calls import CallTerms
from service.generation.constraint_lark import Rules, TokenIds, either, spelled, tag
from service.generation.constraint_schema import schema_grammar
from service.generation.formats import Channels, ToolCallTags


class ChannelTerms:
    """Terms for what a model writes from a message's header on. ``tags``: how calls are written
    where the header alone does not make them."""

    def __init__(
        self, rules: Rules, channels: Channels, tags: ToolCallTags | None, token_ids: TokenIds
    ) -> None:
        self._rules = rules
        self._channels = channels
        self._tags = tags
        self._token_ids = token_ids
        ends = [*channels.opens, *channels.closes, *channels.message]
        if tags is not None:
            ends += tags.opens
        # What is white space in part may stand in a text too.
        self._text = rules.text(*(tag(end, token_ids) for end in ends if end.strip() == end))

    def after_reasoning(self, term: str) -> str:
        """``term``, behind reasoning if there is any."""
        header = self._channels.reasoning_header
        return f"({self._message_before(header)})? {term}" if header else term

    def answer(self, term: str) -> str:
        return f"{self._spelled(self._channels.text_headers[0])} {term}"

    def calls(self, tools: tuple[ToolShape, ...], *, exact: bool, many: bool) -> str:
        """One call, or with ``many`` any number where the family makes several at a time."""
        terms: list[str] = []
        for tool in tools:
            header = self._spelled(self._channels.written.format(name=tool.name))
            terms.append(f"{header} {self._body(tool, exact=exact)}")
            if sum(map(len, terms)) > MAX_GRAMMAR_CHARS:
                raise InvalidRequestError(
                    "The tools' schemas are too large together to constrain calls by them.",
                    param=tool.param,
                )
        one = self._rules.add(either(terms))
        if not many or not self._channels.next_call:
            return one
        return self._rules.add(f"{one} ({self._spelled(self._channels.next_call)} {one})*")

    def _body(self, tool: ToolShape, *, exact: bool) -> str:
        if self._channels.call or self._tags is None:
            schema = arguments_schema(tool, exact=exact)
            return schema_grammar(schema, lenient=not is_binding(tool))
        terms = CallTerms(self._rules, self._tags, (tool,), self._token_ids, exact=exact)
        return terms.term(many=False)

    def free(self, calls: str, *, reasoning: bool) -> str:
        """Any messages, with calls behind them or not; without ``reasoning`` none of that."""
        channels = self._channels
        headers = [header for header in channels.text_headers if header]
        if reasoning and channels.reasoning_header:
            headers.insert(0, channels.reasoning_header)
        before = self._rules.add(either([self._message_before(header) for header in headers]))
        last = either([f"{self._spelled(header)} {self._text}" for header in headers])
        return self._rules.add(f"{before}* ({calls} | {self._rules.add(last)})")

    def _message_before(self, header: str) -> str:
        """A message, up to where the next one's header begins."""
        end, following = self._channels.between
        text = self._rules.text_to(tag(end, self._token_ids))
        return f"{self._spelled(header)} {text} {self._spelled(following)}"

    def _spelled(self, text: str) -> str:
        return spelled(text, self._token_ids)
