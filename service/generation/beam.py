"""Beam search: finds the most likely outputs by keeping the most likely prefixes.

Every step requests one token after each beam, with the most likely alternatives. The most likely of
all continuations become the next beams; finished ones are set aside. The engine is unaware of this:
each beam is a prompt whose blocks are in the prefix cache.

An output is scored by its log-probability divided by ``length ** length_penalty``, with its length
in tokens (Wu et al. 2016, arXiv:1609.08144, in the variant of transformers). The search ends, as
there with ``early_stopping=False``, once the best beam would not be among the finished ones if it
finished now.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from engine.messages import Finished, FinishReason, Generate, SamplingParams, TokenLogprobs
from service.engine.engines import Engines
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.errors import EngineFailedError, InvalidRequestError
from service.generation.choice import Choice
from service.generation.request import Generation, GenerationRequest
from service.tenants.caller import Caller

_MOST_ALTERNATIVES = 20
# That the engine may compute for a search without a prefix cache.
MOST_UNCACHED_TOKENS = 1 << 18


class Beam(NamedTuple):
    """One token after ``parent``, which is shared by all beams that continue it; None: the prompt.
    ``score``: the sum of the log-probabilities of all tokens. ``length``: the number of tokens."""

    parent: Beam | None
    token: int
    entry: TokenLogprobs
    score: float
    length: int
    is_ended: bool  # by its token

    def chain(self) -> list[Beam]:
        """Return all beams from the first token's to this one."""
        beams: list[Beam] = []
        beam: Beam | None = self
        while beam is not None:
            beams.append(beam)
            beam = beam.parent
        beams.reverse()
        return beams


def continued(
    beam: Beam | None, following: TokenLogprobs, ends: frozenset[int], *, most: int, shown: int
) -> list[Beam]:
    """Return the beam extended by each of the ``most`` most likely tokens. ``shown``: how many
    alternatives to keep per token."""
    score, length = (0.0, 0) if beam is None else (beam.score, beam.length)
    kept = following.cut(shown).packed
    return [
        Beam(
            beam,
            token,
            TokenLogprobs(logprob, rank, kept),
            score + logprob,
            length + 1,
            token in ends,
        )
        for rank, (token, logprob) in enumerate(following.pairs(most), start=1)
    ]


def check_uncached(request: GenerationRequest) -> None:
    """Check a search where no prefix is cached: each step computes every beam from its beginning.
    Raises InvalidRequestError for one that would slow down everyone."""
    prompt, steps = len(request.prompts[0]), request.params.max_tokens
    tokens = request.n * steps * (prompt + steps // 2)
    if tokens > MOST_UNCACHED_TOKENS:
        raise InvalidRequestError(
            f"{request.n} beams of {prompt} prompt tokens and up to {steps} more would take "
            f"{tokens} tokens to compute, as this server caches no prefixes of this model, and "
            f"{MOST_UNCACHED_TOKENS} are allowed; shorten the prompt, lower the token limit, or "
            "use fewer beams.",
            param="use_beam_search",
        )


def penalised(beam: Beam, length_penalty: float) -> float:
    return beam.score / float(beam.length**length_penalty)


class BeamGeneration(Generation):
    """A generation for one prompt whose choices are filled in when the search ends."""

    def __init__(
        self,
        link: Engines,
        request: GenerationRequest,
        choices: list[Choice],
        *,
        caller: Caller,
        eos_token_ids: frozenset[int],
        deadline: float | None = None,
    ) -> None:
        """``deadline``: when the first token is no longer wanted, in monotonic seconds. Raises
        ConnectionError, or ValueError for a prompt that is too long to send."""
        super().__init__(link, request, choices)
        self._caller = caller
        self._length_penalty = 1.0 if request.length_penalty is None else request.length_penalty
        self._ends = eos_token_ids | frozenset(request.stop.token_ids)
        self._prompt = request.prompts[0]
        self._shown = request.params.logprobs or 0
        # Twice as many as there are beams: some of them end.
        self._candidates = min(_MOST_ALTERNATIVES, 2 * len(choices))
        self._params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            ignore_eos=True,
            logprobs=max(self._candidates, self._shown),
        )
        self._beams: list[Beam | None] = [None]
        self._ended: list[Beam] = []  # the best, at most one per choice
        self._filled = False
        self._at_work: list[EngineSequence] = []
        self._latest: EngineSequence | None = None  # others go to the same engine
        self._first_step: EngineSequence | None = None
        self._handovers = 0
        self._generated = 0  # tokens, by all beams
        self._submit(deadline)

    @property
    def first_step(self) -> list[EngineSequence]:
        """Return what the first step requests: the only one that may get no place."""
        return [] if self._first_step is None else [self._first_step]

    def collect(self) -> list[Choice]:
        if self._filled:
            return super().collect()
        self.waker.clear()
        for sequence in self._at_work:
            if sequence.error is not None:
                raise sequence.error
        if any(sequence.finished is None for sequence in self._at_work):
            return []
        self._step()
        if not self._done_searching():
            try:
                self._submit()
            except ConnectionError as error:
                raise EngineFailedError(f"The engine does not respond: {error}.") from error
            except ValueError as error:
                raise InvalidRequestError(str(error)) from error
            return []
        self._fill_choices()
        self._filled = True
        return super().collect()

    @property
    def generated_tokens(self) -> int:
        return max(self._generated, self.output_tokens)

    def close(self) -> None:
        self._link.abort(self._at_work)
        self._at_work = []
        super().close()

    def _running(self) -> list[EngineSequence]:
        return self._at_work

    # --- the search ------------------------------------------------------------------------------

    def _submit(self, deadline: float | None = None) -> None:
        """Request one token after each beam. Raises ConnectionError, or ValueError for a prompt
        that is too long to send."""
        request, params = self.request, self._params
        self._at_work = []
        if self._first_step is None:
            of_prompt = request.params.prompt_logprobs
            params = msgspec.structs.replace(params, prompt_logprobs=of_prompt)
        for beam in self._beams:
            submission = Submission(
                request_id=request.request_id,
                prompt_token_ids=self._tokens_of(beam),
                task=Generate(params),
                caller=self._caller,
                arrival_time=request.arrival_time,
                priority=request.priority,
                tier=request.tier,
                cache_salt=request.cache_salt,
                deadline=deadline,
                keeps_place=self._first_step is not None,
            )
            self._at_work += self._link.submit(submission, self.waker, beside=self._latest)
            self._latest = self._at_work[0]
        if self._first_step is None:
            first = self._first_step = self._at_work[0]
            for choice in self.choices:
                choice.sequence.queued_time = first.queued_time

    def _tokens_of(self, beam: Beam | None) -> list[int]:
        output = [] if beam is None else [one.token for one in beam.chain()]
        return self._prompt + output

    def _order(self, beam: Beam) -> float:
        return -penalised(beam, self._length_penalty)

    def _step(self) -> None:
        width = len(self.choices)
        candidates: list[Beam] = []
        for beam, sequence in zip(self._beams, self._at_work, strict=True):
            if not sequence.logprobs:
                raise EngineFailedError("The engine returned no alternatives.")
            candidates += continued(
                beam,
                sequence.logprobs[0],
                self._ends,
                most=self._candidates,
                shown=self._shown,
            )
        self._handovers += max(sequence.handovers for sequence in self._at_work)
        self._generated += len(self._at_work)
        candidates.sort(key=lambda beam: -beam.score)
        is_last = candidates[0].length >= self.request.params.max_tokens
        # The others are candidates only so that enough beams continue.
        ended = [beam for beam in candidates[:width] if beam.is_ended or is_last]
        # No more finished beams are needed than there are choices.
        self._ended = sorted([*self._ended, *ended], key=self._order)[:width]
        going_on = [] if is_last else [beam for beam in candidates if not beam.is_ended]
        self._beams = [*going_on[:width]]
        self._at_work = []
        if self.first_token_time is None:
            self.first_token_time = time.monotonic()
            self._note_prompt()

    def _note_prompt(self) -> None:
        """Note in every choice how the first step computed the prompt."""
        first = self._first_step
        assert first is not None
        for choice in self.choices:
            sequence = choice.sequence
            sequence.prompt_logprobs = first.prompt_logprobs
            sequence.cached_tokens, sequence.prefix_miss = first.cached_tokens, first.prefix_miss
            sequence.first_scheduled_time = first.first_scheduled_time
            sequence.first_token_time = first.first_token_time

    def _done_searching(self) -> bool:
        if not self._beams:
            return True
        best = self._beams[0]
        assert best is not None
        enough = len(self._ended) == len(self.choices)
        return enough and self._order(best) >= self._order(self._ended[-1])

    def _fill_choices(self) -> None:
        for choice, beam in zip(self.choices, self._ended, strict=False):
            self._fill(choice, beam)

    def _fill(self, choice: Choice, beam: Beam) -> None:
        sequence = choice.sequence
        chain = beam.chain()
        sequence.generated = [one.token for one in chain]
        if self.request.params.logprobs is not None:
            sequence.logprobs = [one.entry for one in chain]
        now = time.monotonic()
        sequence.last_token_time = now
        sequence.finished = Finished(
            handle=sequence.handle,
            reason=FinishReason.STOP if beam.is_ended else FinishReason.LENGTH,
            stop_token_id=beam.token if beam.is_ended else None,
            prompt_tokens=len(self._prompt),
            cached_tokens=sequence.cached_tokens,
            output_tokens=beam.length,
            preemptions=0,
            handovers=self._handovers,
            arrival_time=self.request.arrival_time,
            first_scheduled_time=sequence.first_scheduled_time,
            first_token_time=sequence.first_token_time,
            last_token_time=now,
            finished_time=now,
        )


def unsubmitted(request: GenerationRequest, waker: Waker) -> EngineSequence:
    """Return a sequence that the engine does not know, to be filled in by the caller."""
    return EngineSequence(-1, len(request.prompts[0]), request.arrival_time, waker)
