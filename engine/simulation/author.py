"""Chooses the next token of each sequence of a simulated model: from its script, or plain words."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from engine.simulation.script import Reply, Script, ScriptError
from engine.simulation.tokens import TextTokens
from engine.simulation.words import Words, answer_key
from engine.step.sequence import Sequence

# How much of a prompt's end is matched against a script's patterns.
MAX_MATCHED_TOKENS = 1 << 18

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    """``token_ids``, then ``words`` tokens of plain words (None: without end), then the end.
    ``line``: the script's, if it comes from one."""

    token_ids: list[int]
    words: int | None
    key: int
    line: int | None = None


class Author:
    """Chooses a sequence's answer when it is first needed, and keeps it until ``forget``."""

    def __init__(
        self, tokens: TextTokens, script: Script | None, *, lengths: tuple[int, int]
    ) -> None:
        """``lengths``: shortest and longest answer without a script, in tokens. Raises ScriptError
        for a reply that the vocabulary cannot spell."""
        self._tokens = tokens
        self._script = script
        self._lengths = lengths
        self._words = Words(tokens.encode)
        self._answers: dict[int, _Answer] = {}
        self._overruled: set[int] = set()  # lines of the script
        for rule in script.rules if script else ():
            for pieces in rule.replies:
                self._spell(Reply(pieces, rule.ends, rule.line))

    def next_token(self, sequence: Sequence) -> int:
        """Return the sequence's next token. It depends on how many tokens were generated, not on
        which: if sampling settings forced a different token, the answer continues after it."""
        answer = self._answers.get(sequence.uid)
        if answer is None:
            answer = self._answers[sequence.uid] = self._choose(sequence)
        place = sequence.num_output_tokens
        if place < len(answer.token_ids):
            return answer.token_ids[place]
        place -= len(answer.token_ids)
        params = sequence.params
        may_end = sequence.num_output_tokens >= params.min_tokens and not params.ignore_eos
        if may_end and answer.words is not None and place >= answer.words:
            return self._tokens.eos
        return self._words.token(answer.key, place)

    def overruled(self, sequence: Sequence) -> None:
        """Log that the request's grammar forbids the sequence's next token, once for each line of
        the script."""
        line = self._answers[sequence.uid].line
        if line is None or line in self._overruled:
            return
        self._overruled.add(line)
        logger.warning(
            "line %d of the script: its reply was changed because the grammar of request %s (from "
            "strict tools, parallel_tool_calls, tool_choice or an answer's form) does not allow "
            "its token %d; logged once for each line",
            line,
            sequence.request_id,
            sequence.num_output_tokens,
        )

    def forget(self, uid: int) -> None:
        self._answers.pop(uid, None)

    def _choose(self, sequence: Sequence) -> _Answer:
        key = answer_key(sequence)
        reply = self._scripted(sequence)
        if reply is not None:
            logger.debug("%s: the script's line %d", sequence.request_id, reply.line)
            return _Answer(self._spell(reply), 0 if reply.ends else None, key, reply.line)
        low, high = self._lengths
        return _Answer([], low + key // 257 % (high - low + 1), key)

    def _scripted(self, sequence: Sequence) -> Reply | None:
        if self._script is None:
            return None
        end = sequence.num_prompt_tokens
        seen = sequence.token_ids[max(0, end - MAX_MATCHED_TOKENS) : end]
        return self._script.answer(self._tokens.decode(seen))

    def _spell(self, reply: Reply) -> list[int]:
        token_ids: list[int] = []
        for piece in reply.pieces:
            if isinstance(piece, str):
                token_ids += self._tokens.encode(piece)
            elif 0 <= piece < self._tokens.vocab_size:
                token_ids.append(piece)
            else:
                raise ScriptError(
                    f"the script's line {reply.line}: token id {piece} is not in the vocabulary "
                    f"of {self._tokens.vocab_size}"
                )
        return token_ids
