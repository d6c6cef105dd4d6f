"""Grammars for families whose messages have headers (Harmony): reasoning, answers and calls."""

from __future__ import annotations

from engine.messages import MAX_GRAMMAR_CHARS
from service.errors import InvalidRequestError
from service.generation.constraint import ToolShape
from service.generation.constraint_arguments import arguments_schema, is_binding
from service.generation.constraint_lark import Rules, TokenIds, either, spelled, tag
from service.generation.constraint_schema import schema_grammar
from service.generation.formats import Channels


class ChannelTerms:
    """Terms for what a model writes from a message's header on."""

    def __init__(self, rules: Rules, channels: Channels, token_ids: TokenIds) -> None:
        self._rules = rules
        self._channels = channels
        self._token_ids = token_ids
        tags = [tag(text, token_ids) for text in (*channels.opens, *channels.closes)]
        self._text = rules.text(*tags, tag(channels.message, token_ids))

    def after_reasoning(self, term: str) -> str:
        """``term``, behind reasoning if there is any."""
        return f"({self._message_before(self._channels.reasoning_name)})? {term}"

    def answer(self, term: str) -> str:
        return f"{self._header(self._channels.answer_name)} {term}"

    def call(self, tools: tuple[ToolShape, ...], *, exact: bool) -> str:
        """One call: these families make one at a time."""
        terms: list[str] = []
        for tool in tools:
            header = spelled(self._channels.written.format(name=tool.name), self._token_ids)
            schema = arguments_schema(tool, exact=exact)
            terms.append(f"{header} {schema_grammar(schema, lenient=not is_binding(tool))}")
            if sum(map(len, terms)) > MAX_GRAMMAR_CHARS:
                raise InvalidRequestError(
                    "The tools' schemas are too large together to constrain calls by them.",
                    param=tool.param,
                )
        return self._rules.add(either(terms))

    def free(self, call: str, *, reasoning: bool) -> str:
        """Any messages, with a call behind them or not; without ``reasoning`` none of that."""
        names = [self._channels.answer_name, "commentary"]
        if reasoning:
            names.insert(0, self._channels.reasoning_name)
        before = self._rules.add(either([self._message_before(name) for name in names]))
        last = self._rules.add(either([f"{self._header(name)} {self._text}" for name in names]))
        return self._rules.add(f"{before}* ({call} | {last})")

    def _header(self, name: str) -> str:
        channels = self._channels
        return spelled(f"{channels.opens[-1]}{name}{channels.message}", self._token_ids)

    def _message_before(self, name: str) -> str:
        """A message, up to where the next one's header begins."""
        channels = self._channels
        text = self._rules.text_to(tag(channels.closes[0], self._token_ids))
        return f"{self._header(name)} {text} {spelled(channels.between, self._token_ids)}"
