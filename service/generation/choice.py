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

# Limit for all choices of a generation together. A token takes about 10 us, and the event loop must
# not be blocked for long, however many tokens have piled up while the reader was slow.
MOST_TOKENS = 512


@dataclass(frozen=True, slots=True)
class StopRules:
    """``strings`` are searched for in the text from the ``min_tokens``-th token on; ``token_ids``
    are the request's own stop tokens, which the engine checks. ``show`` keeps the matching string
    or token in the output."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    show: bool = False


class Choice:
    """``tokens`` (and ``logprobs``, if requested) are the output tokens processed so far;
    ``events`` is the append-only log, to which ``parser`` writes too. Call ``advance`` after each
    wake-up."""

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
        """Turn at most ``most`` of the tokens received into events; True if some are left. Takes
        constant time per token."""
        sequence = self.sequence
        fresh = sequence.tokens
        ends = sequence.finished is not None or sequence.failure is not None
        if not (fresh or ends) or self.done:
            return False
        if len(fresh) > most:
            self._advance_partly(most)
            return not self.done
        if ends:
            self._advance_to_the_end()
            return False
        sequence.tokens = []
        if self._streams:
            tokens = self.tokens
            for token in fresh:
                tokens.append(token)
                piece = self._push(token)
                if piece:
                    self._feed(piece, len(tokens))
        elif self._read_to_stop_string(fresh):
            return False
        if sequence.logprobs:
            self._take_logprobs()
        return False

    def advance_by_one(self) -> bool:
        """Do what ``advance`` does in the usual case: nothing but one token has arrived. False if
        something else has; then nothing is done."""
        sequence = self.sequence
        fresh = sequence.tokens
        if (
            len(fresh) != 1
            or sequence.finished is not None
            or sequence.failure is not None
            or sequence.logprobs
            or self.done
            or not self._streams
        ):
            return False
        token = fresh.pop()
        tokens = self.tokens
        tokens.append(token)
        piece = self._push(token)
        if piece:
            self._feed(piece, len(tokens))
        return True

    def _advance_to_the_end(self) -> None:
        sequence = self.sequence
        finished, sequence.finished = sequence.finished, None
        failure, sequence.failure = sequence.failure, None
        hidden = None  # the token that ended the sequence, if its text is not part of the answer
        terminator = None if finished is None or self._rules.show else finished.stop_token_id
        if sequence.tokens[-1:] == [terminator]:
            hidden = sequence.tokens.pop()
        self.advance(len(sequence.tokens))
        sequence.finished, sequence.failure = finished, failure
        if self.done:
            return
        if hidden is not None:
            self.tokens.append(hidden)
        self._take_logprobs()
        error = sequence.error
        if error is not None:
            self.failure = error
            self.done = True
        else:
            self._finish()

    def _advance_partly(self, most: int) -> None:
        """Process ``most`` of the tokens, as if the others had not arrived yet."""
        sequence = self.sequence
        tokens, sequence.tokens = sequence.tokens, sequence.tokens[:most]
        logprobs, sequence.logprobs = sequence.logprobs, sequence.logprobs[:most]
        finished, sequence.finished = sequence.finished, None
        failure, sequence.failure = sequence.failure, None
        self.advance(most)
        sequence.tokens, sequence.logprobs = tokens[most:], logprobs[most:]
        sequence.finished, sequence.failure = finished, failure

    def _read_to_stop_string(self, fresh: list[int]) -> bool:
        """Process tokens up to a complete stop string; True if there was one. The rest is not
        used."""
        tokens, push = self.tokens, self._push
        for token in fresh:
            tokens.append(token)
            piece = push(token)
            if piece and self._push_text(piece):
                self._take_logprobs()
                self._parser.finish(truncated=False)
                self._end("stop", self._matcher.matched)
                return True
        return False

    def _take_logprobs(self) -> None:
        """Collect the logprobs of the tokens processed so far."""
        arrived = self.sequence.logprobs
        used = len(self.tokens) - len(self.logprobs)
        self.logprobs += arrived[:used]
        self.sequence.logprobs = arrived[used:]

    def _push_text(self, piece: str) -> bool:
        """Push text; True when a stop string is complete."""
        count = len(self.tokens)
        self._spans.push(len(piece), count)
        if count >= self._rules.min_tokens:
            piece = self._matcher.push(piece)
        if piece:
            self._parser.feed(piece)
        return self._matcher.matched is not None

    def _finish(self) -> None:
        """End the choice: the sequence finished, or reached its maximum length."""
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

    def _end(self, reason: str, matched: str | int | None) -> None:
        if reason == "stop" and self._parser.calls.complete:
            reason = "tool_calls"
        self.finished = Finished(reason, matched, len(self.tokens))
        self.done = True
        self.events.append(self.finished)
