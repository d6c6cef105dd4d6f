"""One choice of a request: from the engine's tokens to its event log, the single path of all text.

tokens → text (never half a character) → stop strings → reasoning, text and tool calls → log
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.messages import FinishReason, TokenLogprobs
from service.engine.sequence import EngineSequence
from service.errors import QuireError
from service.output.detokenizer import Detokenizer
from service.output.events import Event, Finished
from service.output.parser import OutputParser
from service.output.spans import TokenSpans
from service.output.stop import StopMatcher

# Of all choices of a generation together. A token costs some 10 us, and the event loop must be free
# again soon, however many have gathered while the reader was slow.
MOST_TOKENS = 512


@dataclass(frozen=True, slots=True)
class StopRules:
    """``strings`` are looked for in the text from the ``min_tokens``-th token on; ``token_ids``
    are the request's own stop tokens, which the engine looks for. ``show`` keeps what matched,
    string or token, in the output."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    show: bool = False


class Choice:
    """``tokens`` (and ``logprobs``, if asked for) are the output tokens used so far; ``events`` is
    the log, append-only, which ``parser`` writes too. ``advance`` is called after each wake-up."""

    __slots__ = (
        *("_detokenizer", "_feed", "_matcher", "_parser", "_push", "_rules", "_spans", "_streams"),
        *(
            "done",
            "events",
            "failure",
            "finished",
            "index",
            "logprobs",
            "sequence",
            "tokens",
        ),
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
        self.tokens: list[int] = []
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

    def advance(self, most: int = MOST_TOKENS) -> bool:
        """Turn tokens that arrived into events, ``most`` at a time; whether some are left. Constant
        work per token."""
        sequence = self.sequence
        fresh = sequence.tokens
        if not (fresh or sequence.finished or sequence.failure) or self.done:
            return False
        if len(fresh) > most:
            self._advance_partly(most)
            return not self.done
        sequence.tokens = []
        if self._streams and sequence.finished is None and sequence.failure is None:
            tokens = self.tokens  # nearly every call: a token or two, and nothing ends
            for token in fresh:
                tokens.append(token)
                piece = self._push(token)
                if piece:
                    self._feed(piece, len(tokens))
            if sequence.logprobs:
                logprobs, sequence.logprobs = sequence.logprobs, []
                self.logprobs += logprobs
            return False
        self._advance_to_an_end(fresh)
        return False

    def _advance_to_an_end(self, fresh: list[int]) -> None:
        """Where one may be among the tokens, or behind them."""
        sequence = self.sequence
        terminator = self._terminator()
        hidden = terminator is not None and bool(fresh) and fresh[-1] == terminator
        if hidden:
            fresh.pop()  # its text is not part of the answer
        self._use_fresh(fresh)
        if self.finished is not None:
            return
        if hidden and terminator is not None:
            self.tokens.append(terminator)
        if sequence.logprobs:
            logprobs, sequence.logprobs = sequence.logprobs, []
            self.logprobs += logprobs
        error = sequence.error
        if error is not None:
            self._fail(error)
        elif sequence.finished is not None:
            self._finish(terminator)

    def _advance_partly(self, most: int) -> None:
        """Take ``most`` of the tokens, as if no more had arrived yet."""
        sequence = self.sequence
        tokens, sequence.tokens = sequence.tokens, sequence.tokens[:most]
        logprobs, sequence.logprobs = sequence.logprobs, sequence.logprobs[:most]
        finished, sequence.finished = sequence.finished, None
        failure, sequence.failure = sequence.failure, None
        self.advance(most)
        sequence.tokens, sequence.logprobs = tokens[most:], logprobs[most:]
        sequence.finished, sequence.failure = finished, failure

    def _use_fresh(self, fresh: list[int]) -> None:
        """Take these tokens in, up to a stop string's end."""
        tokens, push, parser = self.tokens, self._detokenizer.push, self._parser
        if not self._rules.strings:
            for token in fresh:
                tokens.append(token)
                piece = push(token)
                if piece:
                    parser.feed_token(piece, len(tokens))
            return
        for token in fresh:
            tokens.append(token)
            piece = push(token)
            if piece and self._push_text(piece):
                used = len(tokens) - len(self.logprobs)
                self.logprobs += self.sequence.logprobs[:used]
                self._finish_at_stop_string()
                return

    def _terminator(self) -> int | None:
        """The stop or end-of-sequence token that ended the sequence and is not to be shown."""
        finished = self.sequence.finished
        return None if finished is None or self._rules.show else finished.stop_token_id

    def _push_text(self, piece: str) -> bool:
        """True when a stop string is complete."""
        count = len(self.tokens)
        self._spans.push(len(piece), count)
        if count >= self._rules.min_tokens:
            piece = self._matcher.push(piece)
        if piece:
            self._parser.feed(piece)
        return self._matcher.matched is not None

    def _finish_at_stop_string(self) -> None:
        self._parser.finish(truncated=False)
        self._end("stop", self._matcher.matched)

    def _finish(self, terminator: int | None) -> None:
        """The sequence is whole, or as long as it may be."""
        record = self.sequence.finished
        assert record is not None
        tail = self._detokenizer.flush()
        if tail:
            self._spans.push(len(tail), len(self.tokens))
            tail = self._matcher.push(tail)
        tail += self._matcher.flush()
        if tail:
            self._parser.feed(tail)
        truncated = record.reason is FinishReason.LENGTH
        self._parser.finish(truncated=truncated)
        token = record.stop_token_id
        self._end(
            "length" if truncated else "stop", token if token in self._rules.token_ids else None
        )

    def _fail(self, error: QuireError) -> None:
        self.failure = error
        self.done = True

    def _end(self, reason: str, matched: str | int | None) -> None:
        if reason == "stop" and self._parser.complete_calls:
            reason = "tool_calls"
        self.finished = Finished(reason, matched, len(self.tokens))
        self.done = True
        self.events.append(self.finished)
