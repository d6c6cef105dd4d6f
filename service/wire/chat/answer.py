"""``POST /v1/chat/completions``: the complete answer and the stream's chunks, from event logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from engine.messages import TokenLogprobs
from service.checkpoint.vocabulary import Vocabulary
from service.errors import QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import (
    Delta,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
)
from service.output.log import ShownTokens, fold, shown_tokens
from service.wire.chat.request import ChatRequest
from service.wire.logprobs import ChatLogprobs, PromptLogprobs, logprob_writer
from service.wire.pieces import HOLE, array, filled, gathered
from service.wire.sse import DONE, error_event
from service.wire.timings import Timings, timings_of
from service.wire.usage import Usage, running_usage, usage_of

_json = msgspec.json.Encoder().encode


class AnsweredFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class AnsweredToolCall(msgspec.Struct, frozen=True):
    id: str
    function: AnsweredFunction
    type: str = "function"


class AnswerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """``reasoning`` and ``reasoning_content`` are the same; clients read one or the other."""

    role: str
    content: str | None
    refusal: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[AnsweredToolCall] | msgspec.UnsetType = msgspec.UNSET
    function_call: AnsweredFunction | msgspec.UnsetType = msgspec.UNSET


class AnswerChoice(msgspec.Struct, frozen=True):
    """``stop_reason``: the stop string or stop token's id that ended it."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[AnswerChoice]
    usage: Usage
    system_fingerprint: str | None = None
    service_tier: str | msgspec.UnsetType = msgspec.UNSET
    timings: Timings | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class ChatAnswer:
    """Encodes one request's answer. ``created`` is Unix time in seconds. ``tier``: the one used, if
    the answer is to report it."""

    def __init__(
        self,
        request: ChatRequest,
        generation: Generation,
        vocabulary: Vocabulary,
        *,
        response_id: str,
        created: int,
        model: str,
        tier: str | None = None,
    ) -> None:
        self._request = request
        self._tier = tier
        self._generation = generation
        self._writer = logprob_writer(vocabulary, by_id=request.return_tokens_as_token_ids)
        self._id = response_id
        self._created = created
        self._model = model

    # --- complete answer --------------------------------------------------------------------------

    def follow(self, choices: list[Choice]) -> None:
        """Do nothing: a complete answer is encoded at its end."""

    def whole(self) -> Iterator[bytes]:
        """Yield the answer, once all choices have finished, in pieces encoded lazily."""
        request, generation = self._request, self._generation
        prompt = generation.request.prompts[0]
        answer = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=HOLE,
            usage=usage_of(generation),
            service_tier=self._tier or msgspec.UNSET,
            timings=timings_of(generation) if request.timings else msgspec.UNSET,
            prompt_token_ids=prompt if request.return_token_ids else msgspec.UNSET,
            prompt_logprobs=msgspec.UNSET if request.prompt_logprobs is None else HOLE,
        )
        fillings = [array(self._choice(choice) for choice in generation.choices)]
        if request.prompt_logprobs is not None:
            entries = generation.choices[0].sequence.prompt_logprobs
            fillings.append(self._writer.prompt(prompt, entries, request.prompt_logprobs))
        return filled(_json(answer), fillings)

    def _choice(self, choice: Choice) -> Iterator[bytes]:
        folded = fold(choice.events)
        finished = folded.finished
        assert finished is not None
        calls = [
            AnsweredToolCall(call.id, AnsweredFunction(call.name, call.arguments))
            for call in folded.tool_calls
        ]
        reasoning = folded.reasoning if self._request.shows_reasoning else ""
        content = self._request.echoed + folded.content
        said = content or not (calls or folded.reasoning)
        legacy = self._request.functions is not None
        envelope = AnswerChoice(
            index=choice.index,
            message=AnswerMessage(
                role="assistant",
                content=content if said else None,
                refusal=None,
                reasoning=reasoning or msgspec.UNSET,
                reasoning_content=reasoning or msgspec.UNSET,
                tool_calls=msgspec.UNSET if legacy else calls or msgspec.UNSET,
                function_call=calls[0].function if legacy and calls else msgspec.UNSET,
            ),
            logprobs=HOLE if self._request.logprobs else None,
            finish_reason=self.finish_reason(finished),
            stop_reason=finished.matched,
            token_ids=choice.tokens if self._request.return_token_ids else msgspec.UNSET,
        )
        if not self._request.logprobs:
            return filled(_json(envelope), [])
        shown = ShownTokens(reasoning=self._request.shows_reasoning)
        return filled(_json(envelope), [self.logprobs(choice, shown.all(choice.events))])

    def finish_reason(self, finished: Finished) -> str:
        if finished.reason == "tool_calls" and self._request.functions is not None:
            return "function_call"
        return finished.reason

    def logprobs(self, choice: Choice, ranges: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the logprobs of the tokens in these ranges."""
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        for start, end in ranges:
            tokens += choice.tokens_between(start, end)
            logprobs += choice.logprobs[start:end]
        return self._writer.chat(tokens, logprobs, self._request.top_logprobs or 0)

    # --- stream -----------------------------------------------------------------------------------

    def stream(self) -> ChatStream:
        return ChatStream(self)

    def head(self) -> bytes:
        """Return the beginning of every chunk, up to the choices."""
        tier = b"" if self._tier is None else b'"service_tier":%b,' % _json(self._tier)
        return b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,%b' % (
            _json(self._id),
            self._created,
            _json(self._model),
            tier,
        )

    @property
    def request(self) -> ChatRequest:
        return self._request

    @property
    def generation(self) -> Generation:
        return self._generation


class ChatStream:
    """Encodes one stream as SSE bytes; constant parts are rendered once."""

    def __init__(self, answer: ChatAnswer) -> None:
        request = answer.request
        self._answer = answer
        self._generation = answer.generation
        self._head = answer.head()
        self._usage = b',"usage":null' if request.include_usage else b""
        self._continuous = request.continuous_usage
        self._rich = bool(request.logprobs or request.return_token_ids or self._continuous)
        self._reasons = request.shows_reasoning
        self._legacy = request.functions is not None
        self._read = [0] * len(answer.generation.choices)  # events encoded, per choice
        self._sent = [0] * len(answer.generation.choices)  # tokens whose ids were sent
        self._shown = [
            ShownTokens(reasoning=request.shows_reasoning) for _ in answer.generation.choices
        ]
        self._prefix = [
            self._head + b'"choices":[{"index":%d,"delta":' % choice.index
            for choice in answer.generation.choices
        ]
        self._suffix = b',"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"
        self._text_prefix = [prefix + b'{"content":' for prefix in self._prefix]
        self._text_suffix = b"}" + self._suffix

    def begin(self) -> bytes:
        """Return the role for each choice; the prompt's token ids are sent with the first chunk."""
        pieces = []
        for choice in self._generation.choices:
            extra = b""
            if choice.index == 0 and self._answer.request.return_token_ids:
                extra = b',"prompt_token_ids":' + _json(self._generation.request.prompts[0])
            tail = b',"logprobs":null,"finish_reason":null}]' + extra + self._usage_part(0)
            content = _json(self._answer.request.echoed)
            delta = b'{"role":"assistant","content":%b}' % content
            pieces.append(self._prefix[choice.index] + delta + tail)
        return b"".join(pieces)

    def text_frame(self) -> tuple[bytes, bytes] | None:
        return None if self._rich else (self._text_prefix[0], self._text_suffix)

    def passed(self, choice: Choice) -> None:
        self._read[choice.index] = len(choice.events)

    def advance(self, choices: list[Choice]) -> Iterable[bytes]:
        """Return chunks for everything added to these choices' logs since the last call, in pieces
        encoded lazily."""
        if self._rich:
            return gathered(self._rich_pieces(choices))
        if len(choices) != 1:
            return (b"".join([self._plain_chunks(choice) for choice in choices]),)
        choice = choices[0]
        index, events = choice.index, choice.events
        read, count = self._read[index], len(events)
        if count - read == 1:
            event = events[read]
            if type(event) is TextDelta:  # nearly all events
                self._read[index] = count
                return (self._text_prefix[index] + _json(event.text) + self._text_suffix,)
        return (self._plain_chunks(choice),)

    def end(self) -> bytes:
        """Return usage and timings, if requested, and the end mark."""
        request, tail = self._answer.request, b""
        if request.include_usage:
            tail += b',"usage":' + _json(usage_of(self._generation))
        if request.timings:
            tail += b',"timings":' + _json(timings_of(self._generation))
        return self._head + b'"choices":[]' + tail + b"}\n\n" + DONE if tail else DONE

    def fail(self, error: QuireError) -> bytes:
        return error_event(error)

    def _fresh(self, choice: Choice) -> list[Event]:
        read = self._read[choice.index]
        self._read[choice.index] = len(choice.events)
        return choice.events[read:]

    def _plain_chunks(self, choice: Choice) -> bytes:
        return b"".join([self._plain_chunk(choice, event) for event in self._fresh(choice)])

    def _plain_chunk(self, choice: Choice, event: Event) -> bytes:
        if type(event) is TextDelta:
            return self._text_prefix[choice.index] + _json(event.text) + self._text_suffix
        if isinstance(event, Finished):
            end = b',"logprobs":null' + self._finish(event) + self._usage_part(event.tokens)
            return self._prefix[choice.index] + b"{}" + end
        delta = self._delta(event)
        return b"" if delta is None else self._prefix[choice.index] + delta + self._suffix

    def _rich_pieces(self, choices: list[Choice]) -> Iterator[bytes]:
        for choice in choices:
            for event in self._fresh(choice):
                yield from self._rich_chunk(choice, event)

    def _rich_chunk(self, choice: Choice, event: Event) -> Iterator[bytes]:
        if isinstance(event, Finished):
            # Tokens without text (an end-of-sequence token) are reported in this last chunk.
            delta, last, end = b"{}", shown_tokens(choice.events), event.tokens
            finish = self._finish(event)
        else:
            told = self._delta(event)
            if told is None:
                if self._shown[choice.index].hides(event):
                    self._shown[choice.index].take(event, event.end)
                return
            delta, last, end = told, event.end, event.end
            finish = b',"finish_reason":null}]'
        yield self._prefix[choice.index] + delta
        shown = self._shown[choice.index].take(event, last)
        yield from self._token_details(choice, shown, end)
        yield finish + self._usage_part(end)

    def _finish(self, event: Finished) -> bytes:
        return b',"finish_reason":%b,"stop_reason":%b}]' % (
            _json(self._answer.finish_reason(event)),
            _json(event.matched),
        )

    def _delta(self, event: Delta) -> bytes | None:
        match event:
            case TextDelta(text):
                return b'{"content":%b}' % _json(text)
            case ReasoningDelta(text):
                if not self._reasons:
                    return None
                quoted = _json(text)
                return b'{"reasoning":%b,"reasoning_content":%b}' % (quoted, quoted)
            case ToolCallBegin(_, _, name) if self._legacy:
                return b'{"function_call":{"name":%b,"arguments":""}}' % _json(name)
            case ToolArgumentsDelta(_, text) if self._legacy:
                return b'{"function_call":{"arguments":%b}}' % _json(text)
            case ToolCallBegin(index, call_id, name):
                return (
                    b'{"tool_calls":[{"index":%d,"id":%b,"type":"function",'
                    b'"function":{"name":%b,"arguments":""}}]}'
                    % (index, _json(call_id), _json(name))
                )
            case ToolArgumentsDelta(index, text):
                return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (
                    index,
                    _json(text),
                )
        return None

    def _token_details(
        self, choice: Choice, shown: list[tuple[int, int]], end: int
    ) -> Iterator[bytes]:
        """Yield, if requested, the logprobs of the tokens in the ranges ``shown``, and the ids of
        those up to ``end`` that were not sent with an earlier chunk."""
        request = self._answer.request
        start, self._sent[choice.index] = self._sent[choice.index], end
        if request.logprobs and shown:
            yield b',"logprobs":'
            yield from self._answer.logprobs(choice, shown)
        else:
            yield b',"logprobs":null'
        if request.return_token_ids:
            yield b',"token_ids":' + _json(choice.tokens_between(start, end))

    def _usage_part(self, told: int) -> bytes:
        """``told``: how many of the choice's tokens have been sent, including this chunk."""
        if self._continuous:
            usage = running_usage(self._generation.prompt_tokens, told)
            return b',"usage":%b%b}\n\n' % (usage, self._timings_part())
        return self._usage + b"}\n\n"

    def _timings_part(self) -> bytes:
        """Like usage, timings are in each chunk if both were requested so."""
        if not self._answer.request.timings:
            return b""
        return b',"timings":' + _json(timings_of(self._generation))
