"""A request for generation, from submission to its last event."""

from __future__ import annotations

import asyncio
import hashlib
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.messages import Finished as SequenceRecord
from engine.messages import PrefixMiss, SamplingParams
from service.engine.engines import Engines
from service.engine.sequence import EngineSequence
from service.errors import QuireError
from service.formats import Opening
from service.generation.choice import MOST_TOKENS, Choice, StopRules
from service.output.calls.sink import ToolSchemas
from service.output.log import reasoning_tokens
from service.tenants.tier import Tier

SEED_BITS = 63
_MAX_SEED = (1 << SEED_BITS) - 1


class MessagePlace(NamedTuple):
    """One message of a conversation: its number, from 1, ``of`` all, and its role. ``last``: of a
    place that is only known to be in a message from ``number`` to this one."""

    number: int
    of: int
    role: str
    last: int | None = None


@dataclass(frozen=True, slots=True)
class PromptMessages:
    """The messages of a conversation's prompt: with which token each begins, and its role."""

    starts: tuple[int, ...]
    roles: tuple[str, ...]

    def place_of(self, token: int) -> MessagePlace:
        """Return the message that this token belongs to."""
        number = bisect_right(self.starts, token)
        return MessagePlace(number, len(self.roles), self.roles[number - 1])


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """The API-independent form of a request.

    Each of ``prompts`` is continued ``n`` times; choices are numbered prompt by prompt. ``parse``
    enables parsing of reasoning, and of calls of ``tools`` if there are any; otherwise all output
    is text. ``opening``: what the prompts leave open. ``has_form``: the answer is constrained.
    ``continues_text``: the output continues the prompt's text rather than answering it.
    ``sets_limit``: the client set the token limit.
    """

    request_id: str
    prompts: list[list[int]]
    params: SamplingParams
    arrival_time: float
    n: int = 1
    seed: int | None = None
    stop: StopRules = field(default_factory=StopRules)
    skip_special_tokens: bool = True
    parse: bool = False
    tools: ToolSchemas | None = None
    opening: Opening = Opening.TEXT
    has_form: bool = False
    continues_text: bool = False
    priority: int = 0
    tier: Tier | None = None
    cache_salt: str = ""
    messages: PromptMessages | None = None  # of the prompt; None if there are none, or unknown
    sets_limit: bool = True
    length_penalty: float | None = None  # for beam search; None: outputs are sampled


def choice_seed(seed: int, index: int) -> int:
    """Return the seed of choice ``index``: the request's own for the first, derived seeds for the
    rest."""
    if index == 0:
        return seed & _MAX_SEED
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - SEED_BITS)


class Generation:
    """A submitted request. Call ``advance`` until ``done``, then always ``close``. While ``behind``
    is set, more output has arrived than was processed; let other tasks run first."""

    def __init__(self, link: Engines, request: GenerationRequest, choices: list[Choice]) -> None:
        self.request = request
        self.choices = choices
        self.first_token_time: float | None = None
        self.behind = False
        self._link = link
        self.done = False
        self._follow(list(choices))
        self.waker = choices[0].sequence.waker

    def _follow(self, choices: list[Choice]) -> None:
        """Set the choices that are still open."""
        self._open = choices
        self._most = MOST_TOKENS // len(choices) or 1 if choices else 0  # tokens of each at a time
        self.done = not choices

    async def advance(self) -> list[Choice]:
        """Wait for the engine's next frame and process a bounded part of the output received.

        Returns the choices that may have changed. Raises QuireError when one of them failed.
        """
        if self.behind:
            await asyncio.sleep(0)
        future = self.waker.arm()
        if future is not None:
            await future
        return self.collect()

    def collect(self) -> list[Choice]:
        """Do what ``advance`` does after ``waker`` fires, for a reader that waits by itself."""
        self.waker.clear()
        changed, most = self._open, self._most
        self.behind = ended = False
        for choice in changed:
            if choice.advance(most):
                self.behind = True
            elif choice.done:
                ended = True
        if ended:
            self._let_go(changed)
        if self.behind:
            self.waker.wake()
        if self.first_token_time is None and any(choice.count for choice in changed):
            self.first_token_time = time.monotonic()
        return changed

    def _let_go(self, choices: list[Choice]) -> None:
        """Remove finished choices. Raises the QuireError with which one of them failed."""
        for choice in choices:
            if choice.failure is not None:
                raise choice.failure.to_raise()
        # Choices that ended at a stop string are still running in the engine.
        self._link.abort([choice.sequence for choice in choices if choice.done])
        self._follow([choice for choice in choices if not choice.done])

    def fail(self, error: QuireError) -> None:
        """Make all running choices fail with this error at the next ``collect``, and free their
        blocks now."""
        running = self._running()
        self._link.abort(running)
        for sequence in running:
            sequence.failure = error
        self.waker.wake()

    def _running(self) -> list[EngineSequence]:
        return [choice.sequence for choice in self._open]

    def close(self) -> None:
        """Abort all running choices and free their blocks. Safe to call twice."""
        self._link.abort([choice.sequence for choice in self._open])
        self._open = []

    def records(self) -> list[SequenceRecord]:
        """Return each choice's usage, whether it finished or was aborted."""
        now = time.monotonic()
        return [choice.sequence.record(choice.reached, now) for choice in self.choices]

    @property
    def prompt_tokens(self) -> int:
        """Each prompt counts once, however many choices continue it."""
        return sum(map(len, self.request.prompts))

    @property
    def cached_tokens(self) -> int:
        firsts = self.choices[:: self.request.n]
        return sum(choice.sequence.cached_tokens for choice in firsts)

    @property
    def prefix_miss(self) -> PrefixMiss | None:
        """Why the prefix cache had no more of the first prompt; None before it is admitted."""
        return self.choices[0].sequence.prefix_miss

    @property
    def miss_place(self) -> MessagePlace | None:
        """The message with the first token that the prefix cache did not have; None if that is not
        known. Of another prompt only blocks are known, so where the two differ is a range."""
        messages, first = self.request.messages, self.choices[0].sequence
        if messages is None or first.prefix_miss is None:
            return None
        place = messages.place_of(first.cached_tokens)
        if not (within := first.prefix_miss.within):
            return place
        last = messages.place_of(first.cached_tokens + within - 1)
        return place._replace(last=last.number)

    @property
    def reasoning_tokens(self) -> int:
        """Of the output tokens. Takes time in proportion to the events."""
        return sum(reasoning_tokens(choice.events) for choice in self.choices)

    @property
    def output_tokens(self) -> int:
        return sum(choice.reached for choice in self.choices)

    @property
    def generated_tokens(self) -> int:
        """The output tokens, and those of a search's beams that are not part of its output."""
        return self.output_tokens
