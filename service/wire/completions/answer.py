"""``POST /v1/completions``: the complete answer and the stream's chunks, from event logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from engine.messages import TokenLogprobs
from service.checkpoint.vocabulary import Vocabulary
from service.errors import QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import Event, Finished, TextDelta
from service.output.log import fold, shown_tokens
from service.output.offsets import EchoOffsets, HiddenOffsets, Offsets, OutputOffsets
from service.wire.completions.request import CompletionRequest
from service.wire.logprobs import PromptLogprobs, TextLogprobs, TextPart, logprob_writer
from service.wire.pieces import HOLE, array, filled, gathered
from service.wire.sse import DONE, error_event
from service.wire.timings import Timings, timings_of
from service.wire.usage import Usage, running_usage, usage_of

_json = msgspec.json.Encoder().encode


class TextChoice(msgspec.Struct, frozen=True):
    """``stop_reason``: the stop string or stop token's id that ended it."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    system_fingerprint: str | None = None
    timings: Timings | msgspec.UnsetType = msgspec.UNSET


class CompletionAnswer:
    """Encodes one request's answer. ``texts`` are the prompts as text, needed only for echoing."""

    def __init__(
        self,
        request: CompletionRequest,
        generation: Generation,
        vocabulary: Vocabulary,
        *,
        response_id: str,
        created: int,
        model: str,
        texts: list[str],
    ) -> None:
        self.request = request
        self.generation = generation
        self.writer = logprob_writer(vocabulary, by_id=request.return_tokens_as_token_ids)
        self._vocabulary = vocabulary
        self._texts = texts
        self._id = response_id
        self._created = created
        self._model = model

    def follow(self, choices: list[Choice]) -> None:
        """Do nothing: a complete answer is encoded at its end."""

    def whole(self) -> Iterator[bytes]:
        """Yield the answer, once all choices have finished, in pieces encoded lazily."""
        only_echo = self.request.only_echo
        answer = Completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=HOLE,
            usage=usage_of(self.generation, completion_tokens=0 if only_echo else None),
            timings=timings_of(self.generation) if self.request.timings else msgspec.UNSET,
        )
        choices = array(self._choice(choice, index) for index, choice in enumerate(self._told()))
        return filled(_json(answer), [choices])

    def _told(self) -> list[Choice]:
        """Return the choices to report: all, or each prompt's ``n`` most likely ones if more were
        generated."""
        choices = self.generation.choices
        if not self.request.ranks:
            return choices
        made, told = self.generation.request.n, self.request.n or 1
        return [
            choice
            for start in range(0, len(choices), made)
            for choice in sorted(choices[start : start + made], key=_mean_logprob)[-told:][::-1]
        ]

    def echo_of(self, choice: Choice) -> str:
        """Return the prompt's text, if it is to be echoed."""
        return self._texts[choice.index // self.generation.request.n] if self.request.echo else ""

    def prompt_of(self, choice: Choice) -> list[int]:
        return self.generation.request.prompts[choice.index // self.generation.request.n]

    def _choice(self, choice: Choice, index: int) -> Iterator[bytes]:
        request = self.request
        folded = fold(choice.events)
        finished = folded.finished
        assert finished is not None
        scored = 0 if request.only_echo else folded.shown_tokens + finished.is_last_hidden
        prompt = self.prompt_of(choice)
        fillings = []
        if request.logprobs is not None:
            parts = [self.prompt_part(choice)] if request.echo else []
            parts += self.output_parts(choice, 0, scored, self.output_offsets(choice))
            fillings.append(self.writer.text(parts, request.logprobs))
        if request.prompt_logprobs is not None:
            entries = choice.sequence.prompt_logprobs
            fillings.append(self.writer.prompt(prompt, entries, request.prompt_logprobs))
        values = TextChoice(
            index=index,
            text=self.echo_of(choice) + ("" if request.only_echo else folded.content),
            logprobs=None if request.logprobs is None else HOLE,
            finish_reason="length" if request.only_echo else finished.reason,
            stop_reason=None if request.only_echo else finished.matched,
            prompt_logprobs=msgspec.UNSET if request.prompt_logprobs is None else HOLE,
        )
        if request.return_token_ids:
            output = [] if request.only_echo else choice.tokens
            values = msgspec.structs.replace(values, prompt_token_ids=prompt, token_ids=output)
        return filled(_json(values), fillings)

    def prompt_part(self, choice: Choice) -> TextPart:
        """Return the echoed prompt."""
        prompt = self.prompt_of(choice)
        # None, if the prompt was not computed, because the answer could only be empty.
        known: list[TokenLogprobs | None] = [None]
        known += choice.sequence.prompt_logprobs or [None] * (len(prompt) - 1)
        return TextPart(prompt, known, EchoOffsets(self._vocabulary, self.echo_of(choice)))

    def output_parts(
        self, choice: Choice, start: int, end: int, offsets: OutputOffsets
    ) -> list[TextPart]:
        """Return these tokens of the output, of which the last may be the stop token, although it
        is not in the text: evaluation harnesses expect an entry for each token."""
        finished = choice.finished
        is_last_hidden = finished is not None and finished.is_last_hidden and end == finished.tokens
        shown = end - is_last_hidden
        parts = [_part(choice, start, shown, offsets)]
        if is_last_hidden:
            parts.append(_part(choice, shown, end, HiddenOffsets(offsets)))
        return parts

    def output_offsets(self, choice: Choice) -> OutputOffsets:
        request = self.generation.request
        return OutputOffsets(
            self._vocabulary,
            skip_special_tokens=request.skip_special_tokens,
            continues_text=request.continues_text,
            start=len(self.echo_of(choice)),
        )

    def stream(self) -> CompletionStream:
        return CompletionStream(self)

    def head(self) -> bytes:
        """Return the beginning of every chunk, up to the choices."""
        return b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,' % (
            _json(self._id),
            self._created,
            _json(self._model),
        )


def _part(choice: Choice, start: int, end: int, offsets: Offsets) -> TextPart:
    return TextPart(choice.tokens_between(start, end), choice.logprobs[start:end], offsets)


def _mean_logprob(choice: Choice) -> float:
    """Average over the tokens of its text, including the one that ended it."""
    values = [entry.logprob for entry in choice.logprobs]
    return sum(values) / len(values) if values else 0.0


class CompletionStream:
    """Encodes one stream as SSE bytes; constant parts are rendered once."""

    def __init__(self, answer: CompletionAnswer) -> None:
        request = answer.request
        choices = answer.generation.choices
        self._answer = answer
        self._request = request
        self._generation = answer.generation
        self._head = answer.head()
        self._usage = b',"usage":null' if request.include_usage else b""
        self._continuous = request.continuous_usage
        self._rich = bool(
            request.logprobs is not None
            or request.return_token_ids
            or request.echo
            or self._continuous
        )
        self._read = [0] * len(choices)  # events encoded, per choice
        self._sent = [0] * len(choices)  # tokens whose ids or logprobs were sent
        counted = choices if request.logprobs is not None else []
        self._offsets = [answer.output_offsets(choice) for choice in counted]
        self._echoed = [not request.echo] * len(choices)
        self._begun = [not request.return_token_ids] * len(choices)  # the prompt's ids were sent
        self._prefix = [
            self._head + b'"choices":[{"index":%d,"text":' % choice.index for choice in choices
        ]
        self._suffix = b',"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"

    def begin(self) -> bytes:
        return b""

    def text_frame(self) -> tuple[bytes, bytes] | None:
        return None if self._rich else (self._prefix[0], self._suffix)

    def passed(self, choice: Choice) -> None:
        self._read[choice.index] = len(choice.events)

    def advance(self, choices: list[Choice]) -> Iterable[bytes]:
        """Return chunks for everything added to these choices' logs since the last call, in pieces
        encoded lazily."""
        if self._rich:
            return gathered(self._rich_pieces(choices))
        if len(choices) == 1:
            return (self._plain_chunks(choices[0]),)
        return (b"".join([self._plain_chunks(choice) for choice in choices]),)

    def _fresh(self, choice: Choice) -> list[Event]:
        read = self._read[choice.index]
        self._read[choice.index] = len(choice.events)
        return choice.events[read:]

    def _plain_chunks(self, choice: Choice) -> bytes:
        return b"".join([self._plain_chunk(choice, event) for event in self._fresh(choice)])

    def _plain_chunk(self, choice: Choice, event: Event) -> bytes:
        if type(event) is TextDelta:
            return self._prefix[choice.index] + _json(event.text) + self._suffix
        return b"".join(self._rich_chunk(choice, event))

    def _rich_pieces(self, choices: list[Choice]) -> Iterator[bytes]:
        for choice in choices:
            if not self._echoed[choice.index] and choice.count:
                # The prompt's logprobs arrive before the first token.
                self._echoed[choice.index] = True
                yield from self._echo_chunk(choice)
            for event in self._fresh(choice):
                yield from self._rich_chunk(choice, event)

    def end(self) -> bytes:
        """Return usage and timings, if requested, and the end mark."""
        request, tail = self._request, b""
        if request.include_usage:
            told = 0 if request.only_echo else None
            usage = usage_of(self._generation, completion_tokens=told)
            tail += b',"usage":' + _json(usage)
        if request.timings:
            tail += b',"timings":' + _json(timings_of(self._generation))
        return self._head + b'"choices":[]' + tail + b"}\n\n" + DONE if tail else DONE

    def fail(self, error: QuireError) -> bytes:
        return error_event(error)

    def _echo_chunk(self, choice: Choice) -> Iterator[bytes]:
        echo = self._answer.echo_of(choice)
        yield self._prefix[choice.index] + _json(echo)
        if self._request.logprobs is None:
            yield b',"logprobs":null'
        else:
            yield b',"logprobs":'
            part = self._answer.prompt_part(choice)
            yield from self._answer.writer.text([part], self._request.logprobs)
        yield self._prompt_ids(choice)
        yield b',"finish_reason":null}]' + self._usage_part(choice, 0)

    def _rich_chunk(self, choice: Choice, event: Event) -> Iterator[bytes]:
        if type(event) is TextDelta:
            if self._request.only_echo:
                return
            text, scored, end = event.text, event.end, event.end
            finish = b',"finish_reason":null}]'
        elif type(event) is Finished:
            # Tokens without text (an end-of-sequence token) are reported in this last chunk.
            text, end = "", event.tokens
            scored = shown_tokens(choice.events) + event.is_last_hidden
            reason, matched = event.reason, event.matched
            if self._request.only_echo:
                scored, end, reason, matched = 0, 0, "length", None
            finish = b',"finish_reason":%b,"stop_reason":%b}]' % (_json(reason), _json(matched))
        else:
            return
        yield self._prefix[choice.index] + _json(text)
        yield from self._token_details(choice, scored, end)
        yield finish + self._usage_part(choice, end)

    def _token_details(self, choice: Choice, scored: int, end: int) -> Iterator[bytes]:
        """Yield logprobs and ids, if requested, of the tokens up to ``scored`` and to ``end`` that
        were not sent with an earlier chunk."""
        request, index = self._request, choice.index
        start, self._sent[index] = self._sent[index], end
        if request.logprobs is not None and scored > start:
            parts = self._answer.output_parts(choice, start, scored, self._offsets[index])
            yield b',"logprobs":'
            yield from self._answer.writer.text(parts, request.logprobs)
        else:
            yield b',"logprobs":null'
        yield self._prompt_ids(choice)
        if request.return_token_ids:
            yield b',"token_ids":' + _json(choice.tokens_between(start, end))

    def _prompt_ids(self, choice: Choice) -> bytes:
        """Return the prompt's token ids, if requested, in the choice's first chunk."""
        if self._begun[choice.index]:
            return b""
        self._begun[choice.index] = True
        return b',"prompt_token_ids":' + _json(self._answer.prompt_of(choice))

    def _usage_part(self, choice: Choice, told: int) -> bytes:
        """``told``: how many of the choice's tokens have been sent, including this chunk."""
        if self._continuous:
            usage = running_usage(len(self._answer.prompt_of(choice)), told)
            return b',"usage":%b%b}\n\n' % (usage, self._timings_part())
        return self._usage + b"}\n\n"

    def _timings_part(self) -> bytes:
        """Like usage, timings are in each chunk if both were requested so."""
        if not self._request.timings:
            return b""
        return b',"timings":' + _json(timings_of(self._generation))
