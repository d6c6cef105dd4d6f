"""A request for generation, and its life from submission to the last event."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field

from engine.messages import Finished as SequenceRecord
from engine.messages import SamplingParams
from service.engine.link import EngineLink
from service.engine.sequence import EngineSequence
from service.errors import QuireError
from service.formats import Opening
from service.generation.choice import MOST_TOKENS, Choice, StopRules
from service.output.calls.sink import ToolSchemas

SEED_BITS = 63
_MAX_SEED = (1 << SEED_BITS) - 1


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What any API's request comes down to.

    Each of ``prompts`` is continued ``n`` times; choices are numbered prompt by prompt. ``parse``
    looks for reasoning, and for calls of ``tools`` if there are any; without it all text is text.
    ``opening``: what the prompts leave open.
    ``continues_text``: the output goes on from the prompt's text rather than answering it.
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
    continues_text: bool = False
    priority: int = 0
    cache_salt: str = ""
    length_penalty: float | None = None  # of a beam search; None: outputs are sampled


def choice_seed(seed: int, index: int) -> int:
    """The seed of choice ``index`` of a request: its own for the first, derived for the rest."""
    if index == 0:
        return seed & _MAX_SEED
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - SEED_BITS)


class Generation:
    """A submitted request. Call ``advance`` until ``done``, then (always) ``close``. While it is
    ``behind``, more has arrived than was taken in: others should have their turn first."""

    def __init__(self, link: EngineLink, request: GenerationRequest, choices: list[Choice]) -> None:
        self.request = request
        self.choices = choices
        self.first_token_time: float | None = None
        self.behind = False
        self._link = link
        self.done = False
        self._follow(list(choices))
        self.waker = choices[0].sequence.waker

    def _follow(self, choices: list[Choice]) -> None:
        """These are open from now on."""
        self._open = choices
        self._most = MOST_TOKENS // len(choices) or 1 if choices else 0  # of each at a time
        self.done = not choices

    async def advance(self) -> list[Choice]:
        """Wait for the engine's next frame and take in a bounded part of what has arrived.

        Returns the choices it may have changed. Raises QuireError when one of them failed.
        """
        if self.behind:
            await asyncio.sleep(0)
        future = self.waker.arm()
        if future is not None:
            await future
        return self.collect()

    def collect(self) -> list[Choice]:
        """What ``advance`` does once ``waker`` has woken it; for a reader that waits itself."""
        self.waker.clear()
        changed, most = self._open, self._most
        behind = ended = False
        for choice in changed:
            if choice.advance(most):
                behind = True
            elif choice.done:
                ended = True
        if ended:
            self._let_go(changed)
        if behind:
            self.waker.wake()
        self.behind = behind
        if self.first_token_time is None and any(choice.tokens for choice in changed):
            self.first_token_time = time.monotonic()
        return changed

    def _let_go(self, choices: list[Choice]) -> None:
        """Of those that are done. Raises the QuireError that one of them failed with."""
        for choice in choices:
            if choice.failure is not None:
                raise choice.failure
        # Those that a stop string ended are still running in the engine.
        self._link.abort([choice.sequence for choice in choices if choice.done])
        self._follow([choice for choice in choices if not choice.done])

    def fail(self, error: QuireError) -> None:
        """Make what still runs end by this error at the next ``collect``; its blocks are freed
        now."""
        running = self._running()
        self._link.abort(running)
        for sequence in running:
            sequence.failure = error
        self.waker.wake()

    def _running(self) -> list[EngineSequence]:
        return [choice.sequence for choice in self._open]

    def close(self) -> None:
        """Stop whatever still runs, freeing its blocks. Safe to call twice."""
        self._link.abort([choice.sequence for choice in self._open])
        self._open = []

    def records(self) -> list[SequenceRecord]:
        """What each choice cost, whether it ended by itself or not."""
        now = time.monotonic()
        return [choice.sequence.record(len(choice.tokens), now) for choice in self.choices]

    @property
    def prompt_tokens(self) -> int:
        """Each prompt counts once, however many choices continue it."""
        return sum(map(len, self.request.prompts))

    @property
    def cached_tokens(self) -> int:
        firsts = self.choices[:: self.request.n]
        return sum(choice.sequence.cached_tokens for choice in firsts)

    @property
    def output_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)
