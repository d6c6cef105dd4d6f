"""Starts the generation for a request."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from engine.messages import Generate
from engine.queueing import Following
from service.checkpoint.checkpoint import Checkpoint
from service.engine.engines import Engines
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.errors import EngineUnavailableError, InvalidRequestError
from service.formats import PLAIN
from service.generation.beam import BeamGeneration, check_uncached, unsubmitted
from service.generation.choice import Choice
from service.generation.request import SEED_BITS, Generation, GenerationRequest, choice_seed
from service.output.detokenizer import new_detokenizer
from service.output.events import Event
from service.output.formed import FormedParser
from service.output.parser import OutputParser
from service.output.spans import TokenSpans
from service.tenants.caller import Caller

# To submit before letting other tasks run: looking for a prompt's blocks in the prefix caches of
# several engines, and encoding it, take some 0.3 us a token.
_CHOICES_AT_ONCE = 16
_TOKENS_AT_ONCE = 8192


CheckChoices = Callable[[Caller, int], None]


class Generator:
    """Starts generations for one model. ``check``: called with the number of choices before a
    request is submitted; it may raise a QuireError."""

    def __init__(
        self, link: Engines, checkpoint: Checkpoint, check: CheckChoices | None = None
    ) -> None:
        self._link = link
        self._check = check
        self._checkpoint = checkpoint
        ids = {tag: checkpoint.tokenizer.token_id(tag) for tag in checkpoint.output_format.tags}
        tokens = {tag: token for tag, token in ids.items() if token is not None}
        # The parser must see the format's tags even if the tokenizer declares them special.
        self._parsed_vocabulary = checkpoint.vocabulary.without_specials(frozenset(tokens.values()))
        self._one_token = frozenset(tokens)
        special_ids = checkpoint.vocabulary.special_ids
        self._special = frozenset(tag for tag, token in tokens.items() if token in special_ids)

    async def start(
        self, request: GenerationRequest, caller: Caller, deadline: float | None = None
    ) -> Generation:
        """Submit every choice, and wait until the engine has said whether it has a place for them.
        ``deadline``: when the first token is no longer wanted, in monotonic seconds.

        Raises EngineUnavailableError, InvalidRequestError for a prompt that is too long to send,
        CrashingRequestError, or the error of a refusal.
        """
        searches = request.length_penalty is not None
        if self._check is not None:  # a search, and each prompt, submits the rest later
            self._check(caller, 1 if searches else request.n)
        try:
            if searches:
                return await self._search(request, caller, deadline)
            return await self._sample(request, caller, deadline)
        except ConnectionError as error:
            raise EngineUnavailableError(f"The engine does not respond: {error}.") from error
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error

    async def _sample(
        self, request: GenerationRequest, caller: Caller, deadline: float | None
    ) -> Generation:
        seed = secrets.randbits(SEED_BITS) if request.seed is None else request.seed
        seeds = [choice_seed(seed, index) for index in range(request.n)]
        waker = Waker()
        choices: list[Choice] = []
        pause = _Pause()
        try:
            for prompt in request.prompts:
                is_first = not choices
                submission = Submission(
                    request_id=request.request_id,
                    prompt_token_ids=prompt,
                    task=Generate(request.params),
                    seeds=seeds,
                    caller=caller,
                    arrival_time=request.arrival_time,
                    priority=request.priority,
                    tier=request.tier,
                    cache_salt=request.cache_salt,
                    deadline=deadline,
                    keeps_place=not is_first,
                    following=_following(request) if is_first else None,
                )
                if pause.is_due(len(seeds), len(prompt)):
                    await asyncio.sleep(0)
                for sequence in self._link.submit(submission, waker):
                    choices.append(self._choice(request, len(choices), sequence))
                if is_first and len(request.prompts) > 1:
                    await _judged(choices[0].sequence, waker)
            await _placed([choice.sequence for choice in choices], waker)
        except BaseException:
            self._link.abort([choice.sequence for choice in choices])
            raise
        return Generation(self._link, request, choices)

    async def _search(
        self, request: GenerationRequest, caller: Caller, deadline: float | None
    ) -> Generation:
        waker = Waker()
        choices = [
            self._choice(request, index, unsubmitted(request, waker)) for index in range(request.n)
        ]
        ready = self._link.state.ready
        if ready is None:
            raise ConnectionError(self._link.state.detail)
        if not ready.prefix_caching:
            check_uncached(request)
        generation = BeamGeneration(
            self._link,
            request,
            choices,
            caller=caller,
            eos_token_ids=frozenset(ready.eos_token_ids),
            deadline=deadline,
        )
        try:
            await _placed(generation.first_step, waker)
        except BaseException:
            generation.close()
            raise
        return generation

    def _choice(self, request: GenerationRequest, index: int, sequence: EngineSequence) -> Choice:
        vocabulary = self._parsed_vocabulary if request.parse else self._checkpoint.vocabulary
        spans = TokenSpans()
        log: list[Event] = []
        output_format = self._checkpoint.output_format if request.parse else PLAIN
        is_formed = request.has_form and output_format.channels is None
        parser = (FormedParser if is_formed else OutputParser)(
            output_format,
            spans,
            log,
            tools=request.tools,
            opening=request.opening,
            one_token=self._one_token,
            special=self._special,
        )
        detokenizer = new_detokenizer(
            vocabulary,
            skip_special_tokens=request.skip_special_tokens,
            continues_text=request.continues_text,
        )
        return Choice(index, sequence, detokenizer, parser, spans, log, request.stop)


class _Pause:
    """Whether to let other tasks run before more is submitted."""

    def __init__(self) -> None:
        self._choices = self._tokens = 0

    def is_due(self, choices: int, tokens: int) -> bool:
        """``choices``, ``tokens``: of the prompt to submit now."""
        is_due = self._choices >= _CHOICES_AT_ONCE or self._tokens + tokens > _TOKENS_AT_ONCE
        if is_due:
            self._choices = self._tokens = 0
        self._choices += choices
        self._tokens += tokens
        return is_due


def _following(request: GenerationRequest) -> Following | None:
    """Return what is submitted after the first prompt, if anything."""
    others = request.prompts[1:]
    if not others:
        return None
    return Following(len(others) * request.n, request.n * sum(map(len, others)))


async def _judged(sequence: EngineSequence, waker: Waker) -> None:
    """Wait until an engine has said whether it has a place for the sequence, also if it waits for
    the next engine. Raises the QuireError of a refusal."""
    while sequence.is_open and not sequence.has_place:
        await waker.wait()
    if sequence.error is not None:
        raise sequence.error


async def _placed(sequences: list[EngineSequence], waker: Waker) -> None:
    """Wait until the engine has answered for all of them, which takes a step at most. Raises the
    QuireError of one that failed."""
    while any(one.is_unanswered for one in sequences):
        await waker.wait()
    for one in sequences:
        if one.error is not None:
            raise one.error
        if one.generated or one.finished is not None:
            waker.wake()  # for the reader: this wake-up may have been waited for here
