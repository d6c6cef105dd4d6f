"""``POST /v1/completions``: the whole answer and the stream's chunks, from event logs."""

from __future__ import annotations

import msgspec

from service.errors import QuireError
from service.generation.choice import Choice
from service.generation.events import Event, Finished, TextDelta
from service.generation.log import fold
from service.generation.request import Generation
from service.prompt.vocabulary import Vocabulary
from service.wire.completions import CompletionRequest
from service.wire.logprobs import PromptLogprobs, TextLogprobs, prompt_logprobs, text_logprobs
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
    """Encodes one request's answer. ``texts`` are the prompts as text, needed only to echo."""

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
        self._vocabulary = vocabulary
        self._texts = texts
        self._id = response_id
        self._created = created
        self._model = model

    def whole(self) -> bytes:
        """The answer once all choices have finished."""
        only_echo = self.request.only_echo
        return _json(
            Completion(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[
                    msgspec.structs.replace(self._choice(choice), index=index)
                    for index, choice in enumerate(self._told())
                ],
                usage=usage_of(self.generation, completion_tokens=0 if only_echo else None),
                timings=timings_of(self.generation) if self.request.timings else msgspec.UNSET,
            )
        )

    def _told(self) -> list[Choice]:
        """All choices; of each prompt the ``n`` most likely ones, where more were made."""
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
        """The prompt's text, if it is to be repeated."""
        return self._texts[choice.index // self.generation.request.n] if self.request.echo else ""

    def prompt_of(self, choice: Choice) -> list[int]:
        return self.generation.request.prompts[choice.index // self.generation.request.n]

    def _choice(self, choice: Choice) -> TextChoice:
        request = self.request
        folded = fold(choice.events)
        finished = folded.finished
        assert finished is not None
        shown = 0 if request.only_echo else folded.shown_tokens
        logprobs = None
        if request.logprobs is not None:
            head, offset = self.prompt_part(choice)
            tail, _ = self.output_part(choice, 0, shown, offset)
            logprobs = _joined(head, tail)
        prompt = self.prompt_of(choice)
        values = TextChoice(
            index=choice.index,
            text=self.echo_of(choice) + ("" if request.only_echo else folded.content),
            logprobs=logprobs,
            finish_reason="length" if request.only_echo else finished.reason,
            stop_reason=None if request.only_echo else finished.matched,
        )
        if request.return_token_ids:
            output = [] if request.only_echo else choice.tokens
            values = msgspec.structs.replace(values, prompt_token_ids=prompt, token_ids=output)
        if request.prompt_logprobs is not None:
            entries = choice.sequence.prompt_logprobs or []
            values = msgspec.structs.replace(
                values, prompt_logprobs=prompt_logprobs(self._vocabulary, prompt, entries)
            )
        return values

    def prompt_part(self, choice: Choice) -> tuple[TextLogprobs, int]:
        """Logprobs of the echoed prompt (none if it is not) and where the output's text begins."""
        if not self.request.echo:
            return TextLogprobs([], [], [], []), 0
        prompt = self.prompt_of(choice)
        entries = choice.sequence.prompt_logprobs or []
        part, _ = text_logprobs(
            self._vocabulary, prompt, [None, *entries], self.request.logprobs or 0, 0
        )
        return part, len(self.echo_of(choice))

    def output_part(
        self, choice: Choice, start: int, end: int, offset: int
    ) -> tuple[TextLogprobs, int]:
        return text_logprobs(
            self._vocabulary,
            choice.tokens[start:end],
            choice.logprobs[start:end],
            self.request.logprobs or 0,
            offset,
        )

    def stream(self) -> CompletionStream:
        return CompletionStream(self)

    def head(self) -> bytes:
        """What every chunk begins with, up to the choices."""
        return b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,' % (
            _json(self._id),
            self._created,
            _json(self._model),
        )


def _mean_logprob(choice: Choice) -> float:
    """Over the tokens of its text; what ended it is one of them."""
    values = [entry.logprob for entry in choice.logprobs]
    return sum(values) / len(values) if values else 0.0


def _joined(first: TextLogprobs, second: TextLogprobs) -> TextLogprobs:
    return TextLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
    )


class CompletionStream:
    """The SSE bytes of one stream, with everything that never changes rendered once."""

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
            request.logprobs is not None or request.return_token_ids or self._continuous
        )
        self._read = [0] * len(choices)  # events encoded, per choice
        self._sent = [0] * len(choices)  # tokens whose ids or logprobs are out
        self._offset = [0] * len(choices)  # characters of text whose logprobs are out
        self._echoed = [not request.echo] * len(choices)
        self._told_tokens = 0 if request.only_echo else None  # None: as many as there are
        self._prefix = [
            self._head + b'"choices":[{"index":%d,"text":' % choice.index for choice in choices
        ]
        self._suffix = b',"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"

    def begin(self) -> bytes:
        return b""

    def advance(self, choices: list[Choice]) -> bytes:
        """Chunks for all that these choices' logs gained since the last call."""
        if len(choices) == 1:
            return self._fresh_chunks(choices[0])
        return b"".join([self._fresh_chunks(choice) for choice in choices])

    def _fresh_chunks(self, choice: Choice) -> bytes:
        index, events = choice.index, choice.events
        echo = b""
        if not self._echoed[index] and choice.tokens:
            # The prompt's logprobs are here once the first token is.
            self._echoed[index] = True
            echo = self._echo_chunk(choice)
        read, count = self._read[index], len(events)
        if read == count:
            return echo
        self._read[index] = count
        if count - read == 1:
            return echo + self._chunk(choice, events[read])
        return echo + b"".join([self._chunk(choice, event) for event in events[read:]])

    def end(self) -> bytes:
        """Usage and timings, if asked for, and the end mark."""
        request, tail = self._request, b""
        if request.include_usage:
            usage = usage_of(self._generation, completion_tokens=self._told_tokens)
            tail += b',"usage":' + _json(usage)
        if request.timings:
            tail += b',"timings":' + _json(timings_of(self._generation))
        return self._head + b'"choices":[]' + tail + b"}\n\n" + DONE if tail else DONE

    def fail(self, error: QuireError) -> bytes:
        return error_event(error)

    def _echo_chunk(self, choice: Choice) -> bytes:
        details = b',"logprobs":null'
        if self._request.logprobs is not None:
            part, self._offset[choice.index] = self._answer.prompt_part(choice)
            details = b',"logprobs":' + _json(part)
        return b'%b%b%b,"finish_reason":null}]%b' % (
            self._prefix[choice.index],
            _json(self._answer.echo_of(choice)),
            details,
            self._usage_part(),
        )

    def _chunk(self, choice: Choice, event: Event) -> bytes:
        if type(event) is TextDelta:
            if self._request.only_echo:
                return b""
            if not self._rich:
                return self._prefix[choice.index] + _json(event.text) + self._suffix
            return b'%b%b%b,"finish_reason":null}]%b' % (
                self._prefix[choice.index],
                _json(event.text),
                self._token_details(choice, event.end, event.end),
                self._usage_part(),
            )
        return self._finish_chunk(choice, event) if type(event) is Finished else b""

    def _token_details(self, choice: Choice, shown: int, end: int) -> bytes:
        index = choice.index
        start, self._sent[index] = self._sent[index], end
        details = b',"logprobs":null'
        if self._request.logprobs is not None and shown > start:
            part, self._offset[index] = self._answer.output_part(
                choice, start, shown, self._offset[index]
            )
            details = b',"logprobs":' + _json(part)
        if self._request.return_token_ids:
            details += b',"token_ids":' + _json(choice.tokens[start:end])
        return details

    def _finish_chunk(self, choice: Choice, event: Finished) -> bytes:
        """Tokens that made no text (an end-of-sequence token) come with this last chunk."""
        shown, used = fold(choice.events).shown_tokens, event.tokens
        reason, matched = event.reason, event.matched
        if self._request.only_echo:
            shown, used, reason, matched = 0, 0, "length", None
        return b'%b""%b,"finish_reason":%b,"stop_reason":%b}]%b' % (
            self._prefix[choice.index],
            self._token_details(choice, shown, used),
            _json(reason),
            _json(matched),
            self._usage_part(),
        )

    def _usage_part(self) -> bytes:
        if self._continuous:
            usage = running_usage(self._generation, completion_tokens=self._told_tokens)
            return b',"usage":' + usage + b"}\n\n"
        return self._usage + b"}\n\n"
