"""Beam search: the likeliest whole outputs, found by keeping the likeliest beginnings.

Every step asks the engine for one token behind each beam, with the likeliest alternatives. Of all
their continuations the likeliest go on as beams; those that ended are kept aside. The engine knows
nothing of it: a beam is a prompt whose blocks are found in the prefix cache.

A finished output scores its log-probability divided by ``length ** length_penalty``, with its
length in tokens (Wu et al. 2016, arXiv:1609.08144, in the form that transformers and vLLM have).
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from engine.messages import Finished, FinishReason, SamplingParams, TokenLogprobs
from service.caller import Caller
from service.engine_link import EngineLink
from service.engine_sequence import EngineSequence, Waker
from service.errors import EngineFailedError
from service.generation.choice import Choice
from service.generation.request import Generation, GenerationRequest

_MOST_ALTERNATIVES = 20


class Beam(NamedTuple):
    """``score``: the sum of its tokens' log-probabilities."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    score: float
    end: int | None = None  # the token that ended it


def continued(beam: Beam, following: TokenLogprobs, ends: frozenset[int]) -> list[Beam]:
    """The beam with each of the likeliest tokens behind it."""
    beams = []
    for rank, alternative in enumerate(following.top, start=1):
        entry = TokenLogprobs(alternative.logprob, rank, following.top)
        token = alternative.token_id
        beams.append(
            Beam(
                (*beam.tokens, token),
                (*beam.logprobs, entry),
                beam.score + alternative.logprob,
                token if token in ends else None,
            )
        )
    return beams


def penalised(beam: Beam, length_penalty: float) -> float:
    length = max(1, len(beam.tokens) - (beam.end is not None))
    return beam.score / float(length**length_penalty)


class BeamGeneration(Generation):
    """A generation whose choices are filled when the search ends. Of one prompt."""

    def __init__(
        self,
        link: EngineLink,
        request: GenerationRequest,
        choices: list[Choice],
        *,
        caller: Caller,
        eos_token_ids: frozenset[int],
    ) -> None:
        """Raises ConnectionError, or ValueError for a prompt that is too long to send."""
        super().__init__(link, request, choices)
        self._caller = caller
        self._length_penalty = 1.0 if request.length_penalty is None else request.length_penalty
        self._ends = eos_token_ids | frozenset(request.stop.token_ids)
        self._prompt = request.prompts[0]
        self._params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            ignore_eos=True,
            logprobs=min(_MOST_ALTERNATIVES, 2 * len(choices)),
        )
        self._beams = [Beam((), (), 0.0)]
        self._ended: list[Beam] = []
        self._at_work: list[EngineSequence] = []
        self._first_step: EngineSequence | None = None
        self._handovers = 0
        self._submit()

    def take_in(self) -> list[Choice]:
        self.waker.clear()
        for sequence in self._at_work:
            if sequence.failure is not None:
                raise sequence.failure
            if sequence.finished is None:
                return []
        self._step()
        if not self._done_searching():
            try:
                self._submit()
            except (ConnectionError, ValueError) as error:
                raise EngineFailedError(f"the engine does not answer: {error}") from error
            return []
        self._fill_choices()
        return super().take_in()

    def close(self) -> None:
        self._link.abort(self._at_work)
        self._at_work = []
        super().close()

    def _running(self) -> list[EngineSequence]:
        return self._at_work

    # --- the search ------------------------------------------------------------------------------

    def _submit(self) -> None:
        """One token behind each beam. Raises ConnectionError, or ValueError for a prompt that is
        too long to send."""
        request = self.request
        self._at_work = []
        for beam in self._beams:
            sequence = self._link.submit(
                [*self._prompt, *beam.tokens],
                self._params,
                request_id=request.request_id,
                waker=self.waker,
                caller=self._caller,
                priority=request.priority,
                cache_salt=request.cache_salt,
                arrival_time=request.arrival_time,
            )
            self._at_work.append(sequence)
        if self._first_step is None:
            self._first_step = self._at_work[0]

    def _step(self) -> None:
        width = len(self.choices)
        candidates: list[Beam] = []
        for beam, sequence in zip(self._beams, self._at_work, strict=True):
            if not sequence.logprobs:
                raise EngineFailedError("the engine gave no alternatives")
            candidates += continued(beam, sequence.logprobs[0], self._ends)
        self._handovers += max(sequence.handovers for sequence in self._at_work)
        self._ended += [beam for beam in candidates if beam.end is not None]
        going_on = [beam for beam in candidates if beam.end is None]
        self._beams = sorted(going_on, key=lambda beam: -beam.score)[:width]
        self._at_work = []
        if self.first_token_time is None:
            self.first_token_time = time.monotonic()

    def _done_searching(self) -> bool:
        return not self._beams or len(self._beams[0].tokens) >= self.request.params.max_tokens

    def _fill_choices(self) -> None:
        def order(beam: Beam) -> float:
            return -penalised(beam, self._length_penalty)

        best = sorted([*self._ended, *self._beams], key=order)
        for choice, beam in zip(self.choices, best, strict=False):
            self._fill(choice, beam)

    def _fill(self, choice: Choice, beam: Beam) -> None:
        sequence, first = choice.sequence, self._first_step
        assert first is not None
        sequence.tokens = list(beam.tokens)
        wanted = self.request.params.logprobs
        if wanted is not None:
            sequence.logprobs = [
                msgspec.structs.replace(entry, top=entry.top[:wanted]) for entry in beam.logprobs
            ]
        now = time.monotonic()
        sequence.cached_tokens = first.cached_tokens
        sequence.first_scheduled_time = first.first_scheduled_time
        sequence.first_token_time = first.first_token_time
        sequence.last_token_time = now
        sequence.finished = Finished(
            handle=sequence.handle,
            reason=FinishReason.LENGTH if beam.end is None else FinishReason.STOP,
            stop_token_id=beam.end,
            prompt_tokens=len(self._prompt),
            cached_tokens=sequence.cached_tokens,
            output_tokens=len(beam.tokens),
            preemptions=0,
            handovers=self._handovers,
            arrival_time=self.request.arrival_time,
            first_scheduled_time=sequence.first_scheduled_time,
            first_token_time=sequence.first_token_time,
            last_token_time=now,
            finished_time=now,
        )


def unsubmitted(request: GenerationRequest, waker: Waker) -> EngineSequence:
    """A sequence that is filled by hand."""
    return EngineSequence(-1, len(request.prompts[0]), request.arrival_time, waker)
