"""Which tags of a format have a meaning at a given point of the output, and how to find them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

import msgspec

from service.checkpoint.vocabulary import REPLACEMENT
from service.formats.format import OutputFormat
from service.output.calls.reader import inner_opening, resumes_at
from service.output.calls.sink import ToolSchemas
from service.output.calls.source import Stop, Stops
from service.output.spans import TokenSpans

# Texts of tokens, some with the white space before them, in which no tag can begin, and the same as
# JSON, by the tags' first characters. There are few distinct tokens, so nearly every lookup hits
# and costs a third of the search that it saves.
_PLAIN_TEXTS: dict[str, dict[str, bytes]] = {}
_MOST_PLAIN_TEXTS = 100_000
# Characters of white space that are remembered together with the text of the token after them.
MOST_SPACE = 64

_json = msgspec.json.Encoder().encode


class Meaning(enum.Enum):
    """What a tag does."""

    REASONING = enum.auto()  # reasoning follows
    TEXT = enum.auto()
    NOTHING = enum.auto()
    MARK = enum.auto()  # like NOTHING, but the white space around it belongs to the text
    CALLS = enum.auto()
    INNER_CALL = enum.auto()  # a call's own tag, without the surrounding one
    NEXT_CALL = enum.auto()  # another call after a malformed one
    HEADER = enum.auto()


class TagTable:
    """The tags that have a meaning now. ``one_token``: those that are single tokens; spelled out in
    several tokens they are just text. ``plain``: texts of tokens known to contain no part of a tag,
    and each as JSON; ``shared`` with other tables whose tags begin alike."""

    def __init__(
        self, meanings: dict[str, Meaning], one_token: Set[str], *, shared: bool = True
    ) -> None:
        tags = sorted(meanings, key=len, reverse=True)
        starts = "".join(sorted({re.escape(tag[0]) for tag in tags}))
        self.meanings = meanings
        self.plain = _PLAIN_TEXTS.setdefault(starts, {}) if shared else {}
        # White space waits for what follows it, because it may belong to a tag.
        self.holds_space = bool(tags) and not any(tag[0].isspace() for tag in tags)
        self.longest = max(map(len, tags), default=0)
        self._one_token = one_token
        self._spelled = tuple(tag for tag in tags if tag not in one_token)  # may come in pieces
        self._longest = max(map(len, self._spelled), default=1) - 1
        self._search = re.compile("|".join(map(re.escape, tags))) if tags else None
        self._trigger = re.compile(rf"[{starts}]|\s\Z") if tags else None

    def is_plain(self, text: str) -> bool:
        """True if neither a tag nor white space before one can begin in this text."""
        return self._trigger is None or self._trigger.search(text) is None

    def learn(self, text: str) -> bool:
        """Return what ``is_plain`` does, for the text of a token, and remember it if it is."""
        if not self.is_plain(text):
            return False
        # U+FFFD is what a part of a character looks like by itself.
        if not text.endswith(REPLACEMENT) and len(self.plain) < _MOST_PLAIN_TEXTS:
            self.plain[text] = _json(text)
        return True

    def learn_spaced(self, text: str) -> None:
        """Remember white space with the text of a token after it. Pairs leave half of the room to
        single tokens."""
        if len(self.plain) < _MOST_PLAIN_TEXTS // 2:
            self.learn(text)

    def first(self, text: str, offset: int, spans: TokenSpans) -> tuple[int, str] | None:
        """Return the first tag and its position in ``text``, which begins at ``offset`` of the
        output."""
        if self._search is None:
            return None
        start = 0
        while (match := self._search.search(text, start)) is not None:
            tag = match[0]
            start = match.start()
            if tag not in self._one_token or spans.is_one_piece(offset + start, len(tag)):
                return start, tag
            start += 1
        return None

    def after(self, meaning: Meaning, text: str, offset: int, spans: TokenSpans) -> int | None:
        """Return where the first tag of this meaning ends in ``text``."""
        end = 0
        while (found := self.first(text[end:], offset + end, spans)) is not None:
            start, tag = found
            end += start + len(tag)
            if self.meanings[tag] is meaning:
                return end
        return None

    def possible(self, text: str) -> int:
        """Return the length of the longest suffix of ``text`` that may begin a tag, including the
        white space before it."""
        if not self.meanings:
            return 0
        partial = 0
        for length in range(min(self._longest, len(text)), 0, -1):
            end = text[-length:]
            if any(tag.startswith(end) and len(tag) > length for tag in self._spelled):
                partial = length
                break
        return len(text) - len(text[: len(text) - partial].rstrip())

    def unfinished(self, text: str) -> int:
        """Like ``possible``, at the end of the text; 0 for words, which may be ordinary text."""
        size = self.possible(text)
        half_tag = text[len(text) - size :].lstrip()
        is_tag = len(half_tag) > 1 and not "".join(half_tag.split()).isalnum()
        return size if is_tag else 0


@dataclass(frozen=True, slots=True)
class FormatTags:
    """The tags of a format for one request. ``tools``: those that may be called; None: calls are
    not parsed. ``one_token``: see ``TagTable``; ``special``: those of them that never occur in
    ordinary text."""

    form: OutputFormat
    tools: ToolSchemas | None
    one_token: Set[str] = frozenset()
    special: Set[str] = frozenset()
    _tables: dict[tuple[bool, bool, bool], TagTable] = field(default_factory=dict)

    def table(self, *, in_reasoning: bool, calls: bool, malformed: bool) -> TagTable:
        """``calls``: this message may contain calls. ``malformed``: a call was malformed, others
        may follow."""
        calls = calls and self.tools is not None and self.form.tool_call is not None
        key = in_reasoning, calls, malformed
        table = self._tables.get(key)
        if table is None:
            meanings = dict(self._meanings(*key))
            # After a malformed call, tags may begin with a tool's name, which the client chooses.
            table = TagTable(meanings, self.one_token, shared=not malformed)
            self._tables[key] = table
        return table

    def precedes(self, tag: str) -> bool:
        """Whether this tag, if it comes first, belongs to what precedes an answer in a form:
        reasoning, or tags without meaning that cannot be spelled out; or to calls instead of it."""
        calls, reasoning = self.form.tool_call, self.form.reasoning
        tags = (*(reasoning.opens if reasoning else ()), *(calls.opens if calls else ()))
        return tag in tags or tag in self.one_token

    def stops(self, spans: TokenSpans) -> Stops:
        """Return the tags that end a call without a closing tag."""

        def kind(tag: str, offset: int) -> Stop:
            if tag not in self.one_token:
                return Stop.PERHAPS
            if not spans.is_one_piece(offset, len(tag)):
                return Stop.TEXT
            return Stop.CERTAIN if tag in self.special else Stop.PERHAPS

        tags: list[str] = []
        calls, channels = self.form.tool_call, self.form.channels
        if self.tools is not None and calls is not None:
            tags += (*calls.opens, calls.close, *calls.around, *calls.section)
        if channels is not None:
            tags += (*channels.opens, *channels.closes)
        return Stops(tuple(dict.fromkeys(tag for tag in tags if tag and not _is_word(tag))), kind)

    def _meanings(
        self, in_reasoning: bool, calls: bool, malformed: bool
    ) -> Iterable[tuple[str, Meaning]]:
        """Yield tags with their meanings; later ones override earlier ones."""
        form = self.form
        yield from ((tag, Meaning.NOTHING) for tag in form.ignored)
        misplaced = self._misplaced(in_reasoning, calls)
        yield from ((tag, Meaning.NOTHING) for tag in misplaced if _is_markup(tag))
        yield from ((tag, Meaning.MARK) for tag, _ in form.marks)
        if form.reasoning is not None:
            if in_reasoning:
                yield from ((tag, Meaning.TEXT) for tag in form.reasoning.closes)
            else:
                yield from ((tag, Meaning.REASONING) for tag in form.reasoning.opens)
        if form.channels is not None:
            yield from ((tag, Meaning.TEXT) for tag in form.channels.closes)
            yield from ((tag, Meaning.HEADER) for tag in form.channels.opens)
        if calls and form.tool_call is not None:
            yield from ((tag, Meaning.NOTHING) for tag in form.tool_call.around)
            if inner := inner_opening(form.tool_call):
                yield inner, Meaning.INNER_CALL
            if malformed:
                openings = resumes_at(form.tool_call, self.tools or {})
                yield from ((opening, Meaning.NEXT_CALL) for opening in openings)
            yield from ((tag, Meaning.CALLS) for tag in form.tool_call.opens)

    def _misplaced(self, in_reasoning: bool, calls: bool) -> Iterable[str]:
        """Yield tags that close something not open, or open something already open."""
        form = self.form
        if form.reasoning is not None:
            yield from form.reasoning.opens if in_reasoning else form.reasoning.closes
        if calls and form.tool_call is not None and form.tool_call.close:
            yield form.tool_call.close


def _is_word(tag: str) -> bool:
    return tag.split()[0][0].isalnum()


def _is_markup(tag: str) -> bool:
    """True if ordinary text cannot contain it by chance."""
    return not _is_word(tag) and any(map(str.isalnum, tag))
