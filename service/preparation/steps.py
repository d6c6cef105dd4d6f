"""From each API's body to what its route needs, by pure functions: the same on the event loop and
in a preparation process.

A step is two halves. ``read`` decodes a body and notes what its record shall say; ``finish`` makes
everything else of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from service.checkpoint.checkpoint import Checkpoint
from service.checkpoint.template import MAX_PROMPT_CHARS
from service.constraint.request import (
    AnswerShape,
    ConstraintRequest,
    ToolShape,
)
from service.conversation import Conversation, JsonObject
from service.errors import (
    ContextTooLongError,
    InvalidRequestError,
    NotFoundError,
    WrongTaskError,
)
from service.formats import opening_of, reasoning_is_over
from service.generation.request import GenerationRequest
from service.output.calls.coercion import parameter_types
from service.output.calls.sink import ToolSchemas
from service.pooling.inputs import (
    Input,
    check_lengths,
    encode_texts,
    truncate_ids,
    truncation,
)
from service.preparation import forms
from service.preparation.jobs import (
    Answered,
    Asked,
    ChatJob,
    CompletionJob,
    CountTokensJob,
    DetokenizeJob,
    EmbeddingsJob,
    FormJob,
    GrpcChatJob,
    GrpcCompletionJob,
    GrpcEmbeddingsJob,
    History,
    InputTokensJob,
    ItemsJob,
    Job,
    Limits,
    MessageJob,
    MessagesJob,
    Needs,
    Noted,
    Prepared,
    PreparedChat,
    PreparedCompletion,
    PreparedEmbeddings,
    PreparedMessages,
    PreparedRerank,
    PreparedResponse,
    PreparedScore,
    RerankJob,
    ResponsesJob,
    ScoreJob,
    TokenizeJob,
    WarmedUp,
    WarmUpJob,
)
from service.preparation.prompts import (
    Stage,
    check_counted,
    check_together,
    check_token_ids,
    encoded,
    most_conversation_chars,
    prompt_ids,
    rendered,
    room,
)
from service.wire.chat.request import ChatRequest, chat_conversation, decode_chat
from service.wire.completions.request import (
    DEFAULT_MAX_TOKENS,
    CompletionRequest,
    decode_completion,
)
from service.wire.decode import Ignored
from service.wire.messages import request as anthropic
from service.wire.messages.answer import TokenCount
from service.wire.messages.request import (
    CountRequest,
    MessagesRequest,
    decode_count,
    decode_messages,
    messages_conversation,
)
from service.wire.messages.signatures import Signer
from service.wire.responses.answer import echoed_fields, unprompted_events
from service.wire.responses.compaction import (
    InputTokens,
    asking_for_summary,
    summarizing,
    user_messages,
    without_trigger,
)
from service.wire.responses.conversation import (
    ReadRequest,
    own_items,
    read_request,
    turn_starts,
    without_turns,
)
from service.wire.responses.input import with_ids
from service.wire.responses.list import item_page
from service.wire.responses.request import (
    ResponsesRequest,
    decode_message,
    decode_responses,
    text_shape,
)
from service.wire.responses.seal import ReasoningSeal
from service.wire.sampling import (
    SamplingFields,
    check_prompt_logprobs,
    default_max_tokens,
    output_room,
    sampling_params,
    stop_rules,
    truncated,
)
from service.wire.structured_output import answer_shape, constraint_request
from service.wire.texts.embeddings import EmbeddingRequest, decode_embeddings
from service.wire.texts.rerank import RerankRequest, ScoreRequest, decode_rerank, decode_score
from service.wire.texts.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    decode_detokenize,
    decode_tokenize,
)

# Left for the answer when truncation has to make room and the request does not say how much.
_ANSWER_ROOM = 1024
# A body of some megabytes may ask for one long text to be read with each of thousands.
MAX_JOINED_CHARS = 1 << 24
# Arguments of all tools whose types the parser is told.
_MAX_TYPED_ARGUMENTS = 16_384
_MAX_DETOKENIZED_BYTES = 1 << 24
_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})_i?\d{1,6}\Z")


@dataclass(frozen=True, slots=True)
class Model:
    """What requests are prepared with."""

    checkpoint: Checkpoint
    signer: Signer
    seal: ReasoningSeal


def no_stage(name: str, param: str | None) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job, what is noted of its request, and what it is done with."""

    job: Job
    noted: Noted
    model: Model
    stage: Stage = no_stage

    @property
    def checkpoint(self) -> Checkpoint:
        return self.model.checkpoint

    @property
    def context(self) -> int:
        return self.job.engine.max_model_len


@dataclass(frozen=True, slots=True)
class Step:
    """``read`` is None for what has no body."""

    read: Callable[[bytes, Limits, Noted], Any] | None
    finish: Callable[[Any, Work], Prepared]
    uses_template: bool = False


def perform(work: Work) -> Prepared:
    """Both halves of the job's step. Raises QuireError."""
    step = STEPS[type(work.job)]
    request = None
    if step.read is not None:
        request = step.read(work.job.body, work.job.limits, work.noted)
    return step.finish(request, work)


def _ignored(limits: Limits, noted: Noted) -> Ignored:
    """Notes what of a request does nothing here, as it is found."""
    return Ignored(refuse=limits.refuse_unknown, names=noted.ignored, meant=noted.meant)


# --- generation ----------------------------------------------------------------------------------


def _generation(
    conversation: Conversation,
    sampling: SamplingFields,
    work: Work,
    *,
    token_limit: int | None,
    logprobs: int | None = None,
    answer: AnswerShape | None = None,
    tools: tuple[ToolShape, ...] | None = None,
    may_free: bool = False,
) -> tuple[GenerationRequest, Asked | None]:
    """What every chat-like API does the same. ``token_limit`` is cut to the context that is left;
    ``logprobs`` as in SamplingParams; ``answer``: the form that the text must have; ``tools``: the
    forms of calls, where the conversation's tools do not say all."""
    checkpoint, context, param = work.checkpoint, work.context, conversation.param
    text = rendered(conversation, checkpoint, work.stage)
    ids = prompt_ids(
        text,
        sampling,
        checkpoint,
        context=context,
        param=param,
        add_special_tokens=conversation.add_special_tokens,
    )
    n = sampling.n or 1
    left = room(len(ids), context, param)
    left = output_room(sampling, left, wanted=token_limit, choices=n, logprobs=logprobs)
    check_prompt_logprobs(sampling, n * len(ids), sampling.prompt_logprobs)
    limit = token_limit or default_max_tokens(checkpoint.defaults, left)
    params = sampling_params(
        sampling,
        checkpoint,
        vocab_size=work.job.engine.vocab_size,
        max_tokens=min(limit, left),
        logprobs=logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
    )
    opening = opening_of(
        checkpoint.output_format, text, continues=conversation.continue_final_message
    )
    generation = GenerationRequest(
        request_id=work.job.request_id,
        prompts=[ids],
        params=params,
        arrival_time=work.job.arrival_time,
        n=n,
        seed=sampling.seed,
        stop=stop_rules(sampling),
        skip_special_tokens=sampling.skip_special_tokens,
        parse=True,
        tools=_typed(conversation.tool_schemas()),
        opening=opening,
        continues_text=conversation.continue_final_message,
        priority=sampling.priority,
        cache_salt=sampling.cache_salt or "",
        length_penalty=sampling.length_penalty if sampling.use_beam_search else None,
    )
    request = constraint_request(
        conversation,
        answer,
        tools=tools,
        opening=opening,
        reasoning_is_over=reasoning_is_over(
            checkpoint.output_format, text, continues=conversation.continue_final_message
        ),
    )
    if may_free:
        request = msgspec.structs.replace(request, may_free=True)
    return generation, _asked(request, generation)


def _typed(tools: ToolSchemas | None) -> ToolSchemas | None:
    """The tools, each with no more of its schema than the parser reads: its arguments' types."""
    if tools is None:
        return None
    left = _MAX_TYPED_ARGUMENTS
    typed: dict[str, JsonObject | None] = {}
    for name, schema in tools.items():
        declared = schema.get("properties") if schema else None
        properties: JsonObject = {}
        for key in declared if isinstance(declared, dict) else ():
            types = parameter_types(schema, key) if left else None
            if types:
                properties[key] = {"type": sorted(types)}
                left -= 1
        typed[name] = {"properties": properties} if properties else None
    return typed


def _asked(
    request: ConstraintRequest, generation: GenerationRequest, *, plain: bool = False
) -> Asked | None:
    """Raises InvalidRequestError where no form can be had."""
    asked = forms.asked_of(request, plain=plain)
    if asked is not None and generation.length_penalty is not None:
        raise InvalidRequestError(
            "Structured output is not supported with 'use_beam_search'.",
            param="use_beam_search",
        )
    return asked


# --- /v1/chat/completions ------------------------------------------------------------------------


def _read_chat(body: bytes, limits: Limits, noted: Noted) -> ChatRequest:
    ignored = _ignored(limits, noted)
    request = decode_chat(body, max_choices=limits.max_choices, ignored=ignored)
    return _noted_chat(request, limits, noted)


def _read_grpc_chat(body: bytes, limits: Limits, noted: Noted) -> ChatRequest:
    from service.wire.protobuf.decode import read_chat  # only where there is gRPC

    ignored = _ignored(limits, noted)
    request = read_chat(body, max_choices=limits.max_choices, ignored=ignored)
    return _noted_chat(request, limits, noted)


def _noted_chat(request: ChatRequest, limits: Limits, noted: Noted) -> ChatRequest:
    noted.stream = bool(request.stream)
    noted.model = limits.model_name(request.model)
    noted.client_request_id = request.request_id
    return request


def _finish_chat(request: ChatRequest, work: Work) -> PreparedChat:
    generation, asked = _generation(
        chat_conversation(request),
        request,
        work,
        token_limit=request.token_limit,
        logprobs=request.engine_logprobs,
        answer=answer_shape(request),
    )
    return PreparedChat(noted=work.noted, request=request, generation=generation, asked=asked)


# --- /v1/completions -----------------------------------------------------------------------------


def _read_completion(body: bytes, limits: Limits, noted: Noted) -> CompletionRequest:
    ignored = _ignored(limits, noted)
    request = decode_completion(body, max_choices=limits.max_choices, ignored=ignored)
    return _noted_completion(request, limits, noted)


def _read_grpc_completion(body: bytes, limits: Limits, noted: Noted) -> CompletionRequest:
    from service.wire.protobuf.decode import read_completion  # only where there is gRPC

    ignored = _ignored(limits, noted)
    request = read_completion(body, max_choices=limits.max_choices, ignored=ignored)
    return _noted_completion(request, limits, noted)


def _noted_completion(
    request: CompletionRequest, limits: Limits, noted: Noted
) -> CompletionRequest:
    noted.stream = bool(request.stream)
    noted.model = limits.model_name(request.model)
    noted.client_request_id = request.request_id
    return request


def _finish_completion(request: CompletionRequest, work: Work) -> PreparedCompletion:
    prompts, texts = _completion_prompts(request, work)
    checkpoint, context = work.checkpoint, work.context
    left = min(room(len(prompt), context, "prompt") for prompt in prompts)
    limit = request.max_tokens
    if limit is None:
        limit = default_max_tokens(checkpoint.defaults, left, DEFAULT_MAX_TOKENS)
    # The best are told by how likely the model holds them.
    ranking = 0 if request.ranks else None
    reported = ranking if request.logprobs is None else request.logprobs
    n = request.best_of or request.n or 1
    left = output_room(request, left, wanted=limit, choices=n * len(prompts), logprobs=reported)
    of_prompts = request.prompt_logprobs
    if of_prompts is None and request.echo:
        of_prompts = request.logprobs
    check_prompt_logprobs(request, n * sum(map(len, prompts)), of_prompts)
    params = sampling_params(
        request,
        checkpoint,
        vocab_size=work.job.engine.vocab_size,
        # Without any output wanted the engine still computes one token; it is not shown.
        max_tokens=min(max(limit, 1), left),
        logprobs=reported,
        prompt_logprobs=of_prompts,
    )
    generation = GenerationRequest(
        request_id=work.job.request_id,
        prompts=prompts,
        params=params,
        arrival_time=work.job.arrival_time,
        n=n,
        seed=request.seed,
        stop=stop_rules(request),
        skip_special_tokens=request.skip_special_tokens,
        continues_text=True,
        priority=request.priority,
        cache_salt=request.cache_salt or "",
        length_penalty=request.length_penalty if request.use_beam_search else None,
    )
    form = ConstraintRequest(answer=answer_shape(request))
    return PreparedCompletion(
        noted=work.noted,
        request=request,
        texts=texts,
        generation=generation,
        asked=_asked(form, generation, plain=True),
    )


def _completion_prompts(
    request: CompletionRequest, work: Work
) -> tuple[list[list[int]], list[str]]:
    """Token ids of every prompt, and their texts where they are to be echoed."""
    tokenizer, context = work.checkpoint.tokenizer, work.context
    ids: list[list[int]] = []
    texts: list[str] = []
    together = 0
    for prompt in request.prompts:
        if isinstance(prompt, str):
            kept = prompt_ids(
                prompt,
                request,
                work.checkpoint,
                context=context,
                param="prompt",
                add_special_tokens=request.add_special_tokens,
            )
            whole = request.truncate_prompt_tokens is None
        else:
            check_token_ids(prompt, work.job.engine.vocab_size, "prompt")
            kept = truncated(prompt, request, context)
            whole = False
        if not kept:
            raise InvalidRequestError("'prompt' must not be empty.", param="prompt")
        together += len(kept)
        check_together(together, "prompt")
        ids.append(kept)
        if not request.echo:
            texts.append("")
        elif isinstance(prompt, str) and (whole or not _is_cut(prompt, kept, request, work)):
            texts.append(prompt)
        else:
            room(len(kept), context, "prompt")
            texts.append(tokenizer.decode(kept))
    return ids, texts


def _is_cut(text: str, kept: list[int], request: CompletionRequest, work: Work) -> bool:
    """Whether truncation has left out something of a text."""
    wanted = request.truncate_prompt_tokens
    size = work.context - 1 if wanted == -1 else wanted
    if size is None or len(kept) < size:
        return False
    whole = work.checkpoint.tokenizer.encode_part(
        text, size + 1, from_end=False, add_special_tokens=request.add_special_tokens
    )
    return len(whole) > len(kept)


# --- /v1/responses -------------------------------------------------------------------------------


def _read_responses(body: bytes, limits: Limits, noted: Noted) -> ResponsesRequest:
    return _noted_responses(decode_responses(body, _ignored(limits, noted)), limits, noted)


def _read_message(body: bytes, limits: Limits, noted: Noted) -> ResponsesRequest:
    return _noted_responses(decode_message(body, _ignored(limits, noted)), limits, noted)


def _noted_responses(request: ResponsesRequest, limits: Limits, noted: Noted) -> ResponsesRequest:
    noted.stream = bool(request.stream)
    noted.model = limits.model_name(request.model)
    return request


def needs_of(request: ResponsesRequest, noted: Noted) -> Needs | None:
    """The stored responses that it refers to; None if it stands for itself."""
    referred = dict.fromkeys(
        f"resp_{match[1]}"
        for item in own_items(request)
        if _is_reference(item)
        and isinstance(item_id := item.get("id"), str)
        and (match := _ITEM_ID.match(item_id))
    )
    if request.previous_response_id is None and not referred:
        return None
    return Needs(
        noted=noted,
        request=request,
        previous=request.previous_response_id,
        referred=list(referred),
    )


def _finish_responses(request: ResponsesRequest, work: Work) -> PreparedResponse | Needs:
    job = work.job
    assert isinstance(job, ResponsesJob)
    if not job.stored and (needs := needs_of(request, work.noted)) is not None:
        return needs
    if job.compacts:
        request = msgspec.structs.replace(request, stream=False, store=False, background=False)
    history, items = _history_and_items(request, job)
    items, compacts = without_trigger(items)
    compacts = compacts or job.compacts
    wanted, shown = request, items
    if compacts:
        wanted, shown = summarizing(request, work.context), asking_for_summary(items)
    read = _read(wanted, history, shown, job, work)
    conversation = read.conversation
    if wanted.truncation == "auto":
        conversation = _shortened(wanted, conversation, work)
    generation, asked = _generation(
        conversation,
        wanted,
        work,
        token_limit=wanted.max_output_tokens,
        logprobs=wanted.engine_logprobs,
        answer=text_shape(wanted),
        tools=read.toolbox.shapes(),
        # The client reads a custom tool's text itself, and agents send grammars with every
        # request: where no call is demanded, one that is not enforced is reported, not refused.
        may_free=wanted.tool_choice in (None, "auto"),
    )
    said = user_messages([*history, *items]) if job.compacts else []
    listed = request.kept or job.remembered
    return PreparedResponse(
        noted=work.noted,
        request=request,
        echoed=echoed_fields(request),
        toolbox=read.toolbox.names(),
        items=msgspec.json.encode(with_ids(items, job.response_id) if listed else []),
        context=msgspec.json.encode(history if listed else []),
        said=msgspec.json.encode(with_ids(said, job.response_id)),
        compacts=compacts,
        generation=generation,
        asked=asked,
    )


def _history_and_items(
    request: ResponsesRequest, job: ResponsesJob
) -> tuple[list[JsonObject], list[JsonObject]]:
    history = [] if job.previous is None else conversation_of(job.previous)
    return history, resolved(own_items(request), history, job.referred)


def _read(
    request: ResponsesRequest,
    history: list[JsonObject],
    items: list[JsonObject],
    job: ResponsesJob,
    work: Work,
) -> ReadRequest:
    most = MAX_PROMPT_CHARS
    if request.truncation != "auto":
        most = min(most, most_conversation_chars(work.checkpoint, work.context))
    read = read_request(
        request,
        history,
        items,
        lambda content: work.model.seal.open(content, job.owner),
        most_chars=most,
    )
    _ignored(work.job.limits, work.noted).add(*read.ignored)
    return read


def _finish_warm_up(request: ResponsesRequest, work: Work) -> WarmedUp | Needs:
    job = work.job
    assert isinstance(job, WarmUpJob)
    if not job.stored and (needs := needs_of(request, work.noted)) is not None:
        return needs
    history, items = _history_and_items(request, job)
    events = unprompted_events(request, job.response_id, job.created, work.noted.model)
    kept = History(
        context=msgspec.json.encode(history),
        input=msgspec.json.encode(with_ids(items, job.response_id)),
        body=b'{"output":[]}',
    )
    return WarmedUp(noted=work.noted, history=kept, events=events)


def _finish_input_tokens(request: ResponsesRequest, work: Work) -> Answered | Needs:
    job = work.job
    assert isinstance(job, InputTokensJob)
    if not job.stored and (needs := needs_of(request, work.noted)) is not None:
        return needs
    history, items = _history_and_items(request, job)
    read = _read(request, history, items, job, work)
    ids = _counted(read.conversation, work)
    return Answered(noted=work.noted, body=msgspec.json.encode(InputTokens(input_tokens=len(ids))))


def conversation_of(stored: History) -> list[JsonObject]:
    """All items up to and including the answer."""
    output = msgspec.json.decode(stored.body, type=_Output).output
    return [*_items(stored.context), *_items(stored.input), *output]


class _Output(msgspec.Struct):
    output: list[dict[str, Any]]


def _items(data: bytes) -> list[JsonObject]:
    return msgspec.json.decode(data, type=list[dict[str, Any]])


def resolved(
    items: list[JsonObject],
    history: list[JsonObject],
    referred: dict[str, History],
) -> list[JsonObject]:
    """``items`` with each item_reference replaced by what it refers to, in ``history`` or in one of
    the responses ``referred``. Raises InvalidRequestError or NotFoundError."""
    if not any(map(_is_reference, items)):
        return items
    known = {item["id"]: item for item in history if isinstance(item.get("id"), str)}
    found: list[JsonObject] = []
    for index, item in enumerate(items):
        if not _is_reference(item):
            found.append(item)
            continue
        param = f"input[{index}].id"
        item_id = item.get("id")
        if not isinstance(item_id, str):
            raise InvalidRequestError(f"Missing required parameter: '{param}'.", param=param)
        if item_id not in known and (match := _ITEM_ID.match(item_id)) is not None:
            response_id = f"resp_{match[1]}"
            if response_id not in referred:
                raise NotFoundError(
                    f"Response with id '{response_id[:80]}' not found.", param=param
                )
            known |= {
                each["id"]: each
                for each in conversation_of(referred[response_id])
                if isinstance(each.get("id"), str)
            }
        if item_id not in known:
            raise NotFoundError(f"Item with id '{item_id[:80]}' not found.", param=param)
        found.append(known[item_id])
    return found


def _is_reference(item: JsonObject) -> bool:
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "id" in item and "role" not in item)


def _shortened(request: ResponsesRequest, conversation: Conversation, work: Work) -> Conversation:
    """The conversation without its oldest turns, as few of them as make it fit the context with
    room for an answer; without all but the last if even that is too long."""
    left = min(request.max_output_tokens or _ANSWER_ROOM, work.context // 2)

    def fits(cut: Conversation) -> bool:
        text = rendered(cut, work.checkpoint, work.stage)
        try:
            ids = encoded(
                text,
                work.checkpoint,
                context=work.context,
                param=cut.param,
                add_special_tokens=cut.add_special_tokens,
            )
        except ContextTooLongError:
            return False
        return len(ids) + left <= work.context

    if fits(conversation):
        return conversation
    starts = turn_starts(conversation)
    low, high = 1, len(starts) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(_cut(conversation, starts[middle])):
            high = middle
        else:
            low = middle + 1
    return conversation if high < 1 else _cut(conversation, starts[high])


def _cut(conversation: Conversation, first_kept: int) -> Conversation:
    return msgspec.structs.replace(conversation, messages=without_turns(conversation, first_kept))


def _finish_items(_: None, work: Work) -> Answered:
    job = work.job
    assert isinstance(job, ItemsJob)
    items = [*_items(job.stored.context), *_items(job.stored.input)]
    if job.newest_first:
        items.reverse()
    page = item_page(items, job.limit, job.after)
    return Answered(noted=work.noted, body=msgspec.json.encode(page))


# --- /v1/messages --------------------------------------------------------------------------------


def _read_messages(body: bytes, limits: Limits, noted: Noted) -> MessagesRequest:
    request = decode_messages(body, _ignored(limits, noted))
    noted.stream = request.stream
    noted.model = limits.model_name(request.model)
    return request


def _finish_messages(request: MessagesRequest, work: Work) -> PreparedMessages:
    generation, asked = _generation(
        messages_conversation(request, work.model.signer),
        request.sampling(),
        work,
        token_limit=request.max_tokens,
        answer=anthropic.answer_shape(request),
    )
    return PreparedMessages(
        noted=work.noted,
        request=request,
        # In a text the quotes would be escaped.
        speaks_of_caching=b'"cache_control"' in work.job.body,
        generation=generation,
        asked=asked,
    )


def _read_count(body: bytes, limits: Limits, noted: Noted) -> CountRequest:
    request = decode_count(body, _ignored(limits, noted))
    noted.model = limits.model_name(request.model)
    return request


def _finish_count(request: CountRequest, work: Work) -> Answered:
    conversation = messages_conversation(request, work.model.signer)
    ids = _counted(conversation, work)
    return Answered(noted=work.noted, body=msgspec.json.encode(TokenCount(len(ids))))


def _counted(conversation: Conversation, work: Work, *, special: bool | None = None) -> list[int]:
    text = rendered(conversation, work.checkpoint, work.stage)
    add = conversation.add_special_tokens if special is None else special
    return _encode_counted(text, work, conversation.param, add_special_tokens=add)


def _encode_counted(text: str, work: Work, param: str, *, add_special_tokens: bool) -> list[int]:
    check_counted(text, work.context, param)
    try:
        return work.checkpoint.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    except UnicodeEncodeError as error:
        raise InvalidRequestError("The prompt is not Unicode text.", param=param) from error


# --- /tokenize and /detokenize -------------------------------------------------------------------


def _read_tokenize(body: bytes, limits: Limits, noted: Noted) -> TokenizeRequest:
    request = decode_tokenize(body, _ignored(limits, noted))
    noted.model = limits.model_name(request.model)
    return request


def _finish_tokenize(request: TokenizeRequest, work: Work) -> Answered:
    if request.messages is None:
        ids = _encode_counted(
            request.prompt or "",
            work,
            "prompt",
            add_special_tokens=request.add_special_tokens is not False,
        )
    else:
        chat = ChatRequest(
            messages=request.messages,
            tools=request.tools,
            add_generation_prompt=(
                request.add_generation_prompt and not request.continue_final_message
            ),
            continue_final_message=request.continue_final_message,
            chat_template_kwargs=request.chat_template_kwargs,
        )
        ids = _counted(chat_conversation(chat), work, special=bool(request.add_special_tokens))
    texts = None
    if request.return_token_strs:
        texts = list(map(work.checkpoint.vocabulary.text_of, ids))
    answer = TokenizeResponse(len(ids), work.context, ids, texts)
    return Answered(noted=work.noted, body=msgspec.json.encode(answer))


def _read_detokenize(body: bytes, limits: Limits, noted: Noted) -> DetokenizeRequest:
    request = decode_detokenize(body, _ignored(limits, noted))
    noted.model = limits.model_name(request.model)
    return request


def _finish_detokenize(request: DetokenizeRequest, work: Work) -> Answered:
    check_token_ids(request.tokens, work.job.engine.vocab_size, "tokens")
    size = sum(map(len, map(work.checkpoint.vocabulary.bytes_of, request.tokens)))
    if size > _MAX_DETOKENIZED_BYTES:
        raise InvalidRequestError(
            f"The tokens' text has {size} bytes; it may have at most {_MAX_DETOKENIZED_BYTES}.",
            param="tokens",
        )
    text = work.checkpoint.tokenizer.decode(request.tokens)
    return Answered(noted=work.noted, body=msgspec.json.encode(DetokenizeResponse(text)))


# --- vectors and scores --------------------------------------------------------------------------


def _read_embeddings(body: bytes, limits: Limits, noted: Noted) -> EmbeddingRequest:
    request = decode_embeddings(body, _ignored(limits, noted))
    noted.client_request_id = request.request_id
    noted.model = limits.model_name(request.model)
    return request


def _read_grpc_embeddings(body: bytes, limits: Limits, noted: Noted) -> EmbeddingRequest:
    from service.wire.protobuf.decode import read_embedding  # only where there is gRPC

    request = read_embedding(body, _ignored(limits, noted))
    noted.client_request_id = request.request_id
    noted.model = limits.model_name(request.model)
    return request


def _finish_embeddings(request: EmbeddingRequest, work: Work) -> PreparedEmbeddings:
    _check_dimensions(request, work)
    limit, side = request.truncation
    cut = truncation(limit, side, longest=work.context)
    given, names = request.inputs, request.names
    inputs: list[Input] = []
    texts: list[str] = []
    for one in given:
        if isinstance(one, str):
            texts.append(one)
        else:
            check_token_ids(one, work.job.engine.vocab_size, "input")
            inputs.append(Input(truncate_ids(one, cut)))
    if not inputs:
        inputs = encode_texts(
            texts,
            work.checkpoint.tokenizer,
            names=names,
            longest=work.context,
            add_special_tokens=request.add_special_tokens,
            truncated=cut,
        )
    _check_inputs(inputs, names, work, "input")
    return PreparedEmbeddings(noted=work.noted, request=request, inputs=inputs)


def _check_inputs(inputs: list[Input], names: list[str], work: Work, param: str) -> None:
    check_lengths(inputs, names, longest=work.context)
    check_together(sum(len(one.token_ids) for one in inputs), param)


def _check_dimensions(request: EmbeddingRequest, work: Work) -> None:
    """Raises WrongTaskError for a model without embeddings, InvalidRequestError for a length that
    its embeddings cannot be cut to."""
    engine = work.job.engine
    size = engine.embedding_size
    if not size:
        raise WrongTaskError(
            f"This model ({engine.architecture}) does not support embeddings"
            + (
                "; it scores pairs of texts: see /v1/rerank and /v1/score."
                if engine.num_scores
                else "."
            )
        )
    if request.dimensions is None:
        return
    allowed = (*engine.matryoshka_dimensions, size)
    if request.dimensions > size:
        raise InvalidRequestError(
            f"'dimensions' may be at most {size} with this model.", param="dimensions"
        )
    if engine.matryoshka_dimensions and request.dimensions not in allowed:
        raise InvalidRequestError(
            f"This model's embeddings can be cut to {', '.join(map(str, allowed))} dimensions.",
            param="dimensions",
        )


def _read_rerank(body: bytes, limits: Limits, noted: Noted) -> RerankRequest:
    request = decode_rerank(body, _ignored(limits, noted))
    if request.max_tokens_per_doc is not None:
        _ignored(limits, noted).add("max_tokens_per_doc")
    noted.model = limits.model_name(request.model)
    return request


def _finish_rerank(request: RerankRequest, work: Work) -> PreparedRerank:
    job = work.job
    assert isinstance(job, RerankJob)
    if request.return_documents is None:
        request = msgspec.structs.replace(request, return_documents=job.tells_documents)
    pairs = _Pairs([request.query], request.texts, "query", "documents")
    inputs, num_firsts = _scored_inputs(pairs, request, work)
    return PreparedRerank(noted=work.noted, request=request, inputs=inputs, num_firsts=num_firsts)


def _read_score(body: bytes, limits: Limits, noted: Noted) -> ScoreRequest:
    request = decode_score(body, _ignored(limits, noted))
    noted.model = limits.model_name(request.model)
    return request


def _finish_score(request: ScoreRequest, work: Work) -> PreparedScore:
    pairs = _Pairs(request.firsts, request.seconds, "text_1", "text_2")
    inputs, num_firsts = _scored_inputs(pairs, request, work)
    return PreparedScore(noted=work.noted, request=request, inputs=inputs, num_firsts=num_firsts)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One first text for all second texts, or one for each; and the request's fields."""

    firsts: list[str]
    seconds: list[str]
    first_field: str
    second_field: str

    def joined(self) -> Iterable[tuple[str, str]]:
        """Raises InvalidRequestError where a text that all are paired with is too long for that."""
        if len(self.firsts) > 1:
            return zip(self.firsts, self.seconds, strict=True)
        [first] = self.firsts
        if len(first) * len(self.seconds) > MAX_JOINED_CHARS:
            raise InvalidRequestError(
                f"'{self.first_field}' is too long to be combined with {len(self.seconds)} texts.",
                param=self.first_field,
            )
        return self._with_all(first)

    def _with_all(self, first: str) -> Iterator[tuple[str, str]]:
        return ((first, second) for second in self.seconds)


def _scored_inputs(
    pairs: _Pairs, request: RerankRequest | ScoreRequest, work: Work
) -> tuple[list[Input], int]:
    """The inputs, and how many of them come before those they are compared with; none where a
    model reads both texts of a pair together."""
    engine = work.job.engine
    if not (engine.num_scores or engine.embedding_size):
        raise WrongTaskError(f"This model ({engine.architecture}) does not support scoring.")
    if engine.embedding_size and request.use_activation is False:
        raise WrongTaskError(
            "Only cross-encoders support 'use_activation'; this model's scores are cosines.",
            param="use_activation",
        )
    across = bool(engine.num_scores)
    seconds = [f"{pairs.second_field}[{i}]" for i in range(len(pairs.seconds))]
    if across:
        texts: list[str | tuple[str, str]] = list(pairs.joined())
        names = seconds
    else:
        texts = [*pairs.firsts, *pairs.seconds]
        names = [f"{pairs.first_field}[{i}]" for i in range(len(pairs.firsts))] + seconds
    inputs = encode_texts(
        texts,
        work.checkpoint.tokenizer,
        names=names,
        longest=work.context,
        truncated=truncation(request.truncate_prompt_tokens, None, longest=work.context),
    )
    _check_inputs(inputs, names, work, pairs.second_field)
    return inputs, 0 if across else len(pairs.firsts)


# --- grammars ------------------------------------------------------------------------------------


def _finish_form(_: None, work: Work) -> Prepared:
    job = work.job
    assert isinstance(job, FormJob)
    return forms.form_of(job, work.checkpoint, work.noted)


STEPS: dict[type[Job], Step] = {
    ChatJob: Step(_read_chat, _finish_chat, uses_template=True),
    GrpcChatJob: Step(_read_grpc_chat, _finish_chat, uses_template=True),
    CompletionJob: Step(_read_completion, _finish_completion),
    GrpcCompletionJob: Step(_read_grpc_completion, _finish_completion),
    ResponsesJob: Step(_read_responses, _finish_responses, uses_template=True),
    MessageJob: Step(_read_message, _finish_responses, uses_template=True),
    WarmUpJob: Step(_read_message, _finish_warm_up),
    InputTokensJob: Step(_read_responses, _finish_input_tokens, uses_template=True),
    ItemsJob: Step(None, _finish_items),
    MessagesJob: Step(_read_messages, _finish_messages, uses_template=True),
    CountTokensJob: Step(_read_count, _finish_count, uses_template=True),
    TokenizeJob: Step(_read_tokenize, _finish_tokenize, uses_template=True),
    DetokenizeJob: Step(_read_detokenize, _finish_detokenize),
    EmbeddingsJob: Step(_read_embeddings, _finish_embeddings),
    GrpcEmbeddingsJob: Step(_read_grpc_embeddings, _finish_embeddings),
    RerankJob: Step(_read_rerank, _finish_rerank),
    ScoreJob: Step(_read_score, _finish_score),
    FormJob: Step(None, _finish_form),
}
