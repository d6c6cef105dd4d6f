"""One choice of a request: from the engine's tokens to its event log. (``_TextPush`` takes a
short cut for plain tokens.)

tokens → text (never half a character) → stop strings → reasoning, text and tool calls → log

Stop strings end the answer: they are not searched for in the reasoning before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.messages import FinishReason, TokenLogprobs
from service.engine.sequence import EngineSequence
from service.errors import QuireError
from service.output.detokenizer import Detokenizer
from service.output.events import Event, Finished, TextDelta
from service.output.parser import OutputParser
from service.output.spans import TokenSpans
from service.output.stop import StopMatcher

# Limit for all choices of a generation together. A token takes about 10 us, and the event loop must
# not be blocked for long, however many tokens have piled up while the reader was slow.
MOST_TOKENS = 512


@dataclass(frozen=True, slots=True)
class StopRules:
    """``strings`` are searched for in the answer from the ``min_tokens``-th token on; ``token_ids``
    are the request's own stop tokens, which the engine checks. ``show`` keeps the matching string
    or token in the output."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    show: bool = False


class PlainTexts(NamedTuple):
    """``whole[id]``: the text of a token. It is plain if ``quoted`` has it, as JSON: then it
    becomes one event, and the next token may be plain too. ``holds_space``: white space becomes an
    event only together with the text that follows. ``covered``: how many tokens the events cover so
    far."""

    whole: Sequence[str]
    quoted: Mapping[str, bytes]
    holds_space: bool
    covered: int


class Choice:
    """``count``: how many output tokens have been processed so far; ``logprobs``: theirs, if
    requested; ``events`` is the append-only log, to which ``parser`` writes too. Call ``advance``
    after each wake-up."""

    __slots__ = (
        *("_detokenizer", "_feed", "_matcher", "_parser", "_push", "_rules", "_spans", "_streams"),
        *("count", "done", "events", "failure", "finished", "index", "logprobs", "sequence"),
    )

    def __init__(
        self,
        index: int,
        sequence: EngineSequence,
        detokenizer: Detokenizer,
        parser: OutputParser,
        spans: TokenSpans,
        log: list[Event],
        rules: StopRules,
    ) -> None:
        self.index = index
        self.sequence = sequence
        self.count = 0
        self.logprobs: list[TokenLogprobs] = []
        self.events = log
        self.done = False  # finished or failed
        self.finished: Finished | None = None
        self.failure: QuireError | None = None
        self._detokenizer = detokenizer
        self._parser = parser
        self._push, self._feed = detokenizer.push, parser.feed_token
        self._streams = not rules.strings
        self._spans = spans
        self._rules = rules
        self._matcher = StopMatcher(rules.strings, include_in_output=rules.show)

    @property
    def reached(self) -> int:
        """``count``, and the tokens since then whose events are in the log; see ``passed``."""
        last = self.events[-1] if self.events else None
        return max(self.count, last.end) if type(last) is TextDelta else self.count

    @property
    def tokens(self) -> list[int]:
        """The output tokens processed so far, copied."""
        return self.sequence.generated[: self.count]

    def tokens_between(self, start: int, end: int) -> list[int]:
        """Return some of the output tokens processed so far."""
        return self.sequence.generated[start:end]

    def advance(self, most: int = MOST_TOKENS) -> bool:
        """Turn at most ``most`` of the tokens received into events; True if some are left. Takes
        constant time per token."""
        sequence = self.sequence
        fresh = len(sequence.generated) - self.count
        ends = sequence.finished is not None or sequence.failure is not None
        if not (fresh or ends) or self.done:
            return False
        if fresh > most:
            self._read(self.count + most)
            return not self.done
        if ends:
            self._advance_to_the_end()
        else:
            self._read(self.count + fresh)
        return False

    def advance_by_one(self) -> bool:
        """Do what ``advance`` does in the usual case: nothing but one token has arrived. False if
        something else has; then nothing is done."""
        sequence = self.sequence
        generated, count = sequence.generated, self.count + 1
        if (
            len(generated) != count
            or sequence.finished is not None
            or sequence.failure is not None
            or sequence.logprobs
            or self.done
            or not self._streams
        ):
            return False
        self.count = count
        piece = self._push(generated[-1])
        if piece:
            self._feed(piece, count)
        return True

    def plain_texts(self) -> PlainTexts | None:
        """Return the tokens that need no processing if they come next; None if all do. Whoever
        writes the events of such tokens instead calls ``passed`` before anything else happens."""
        whole, plain = self._detokenizer.whole_texts, self._parser.plain()
        if whole is None or plain is None or not self._streams or self.done:
            return None
        return PlainTexts(whole, *plain)

    def passed(self, covered: int, count: int) -> None:
        """Note that the events of the first ``covered`` tokens are in the log, and that the tokens
        after them, up to the ``count``-th, are white space without an event yet."""
        if covered > self.count:
            self.count = self._parser.covered = covered
        if count > self.count:
            self._read(count)

    def _read(self, end: int) -> None:
        """Process tokens up to the ``end``-th, or to a complete stop string."""
        if self._streams:
            for token in self.tokens_between(self.count, end):
                self.count += 1
                piece = self._push(token)
                if piece:
                    self._feed(piece, self.count)
        elif self._read_to_stop_string(end):
            return
        self._take_logprobs()

    def _advance_to_the_end(self) -> None:
        sequence = self.sequence
        finished, generated = sequence.finished, sequence.generated
        # The token that ended the sequence counts, but its text may not be part of the answer.
        terminator = None if finished is None or self._rules.show else finished.stop_token_id
        is_hidden = len(generated) > self.count and generated[-1] == terminator
        self._read(len(generated) - is_hidden)
        if self.done:
            return
        self.count = len(generated)
        self._take_logprobs()
        error = sequence.error
        if error is not None:
            self.failure = error
            self.done = True
        else:
            self._finish(is_last_hidden=is_hidden)

    def _read_to_stop_string(self, end: int) -> bool:
        """Process tokens up to the ``end``-th or to a complete stop string; True if there was one.
        The rest is not used."""
        push = self._push
        for token in self.tokens_between(self.count, end):
            self.count += 1
            piece = push(token)
            if piece and self._push_text(piece, self.count):
                self._take_logprobs()
                self._end_at_stop_string()
                return True
        return False

    def _take_logprobs(self) -> None:
        """Collect the logprobs of the tokens processed so far."""
        arrived = self.sequence.logprobs
        if not arrived:
            return
        used = self.count - len(self.logprobs)
        self.logprobs += arrived[:used]
        self.sequence.logprobs = arrived[used:]

    def _push_text(self, piece: str, count: int) -> bool:
        """Push text that the ``count``-th token completed; True when a stop string is complete."""
        parser, matcher = self._parser, self._matcher
        self._spans.push(len(piece), count)
        if count >= self._rules.min_tokens:
            while piece and (size := parser.before_answer(piece, matcher.held)):
                parser.feed(matcher.flush() + piece[:size])
                piece = piece[size:]
            piece = matcher.push(piece)
        if piece:
            parser.feed(piece)
        return matcher.matched is not None

    def _finish(self, *, is_last_hidden: bool) -> None:
        """End the choice: the sequence finished, or reached its maximum length."""
        record = self.sequence.finished
        assert record is not None
        tail = self._detokenizer.flush()
        if tail and self._push_text(tail, self.count - is_last_hidden):
            self._end_at_stop_string()
            return
        tail = self._matcher.flush()
        if tail:
            self._parser.feed(tail)
        truncated = record.reason is FinishReason.LENGTH
        self._parser.finish(truncated=truncated)
        token = record.stop_token_id
        self._end(
            "length" if truncated else "stop",
            token if token in self._rules.token_ids else None,
            is_last_hidden=is_last_hidden,
        )

    def _end_at_stop_string(self) -> None:
        self._parser.finish(truncated=False)
        self._end("stop", self._matcher.matched)

    def _end(self, reason: str, matched: str | int | None, *, is_last_hidden: bool = False) -> None:
        if reason == "stop" and self._parser.calls.complete:
            reason = "tool_calls"
        self.finished = Finished(reason, matched, self.count, is_last_hidden)
        self.done = True
        self.events.append(self.finished)
