"""``/v1/responses``, over HTTP and WebSocket, and related requests."""

from __future__ import annotations

import msgspec

from service.checkpoint.template import MAX_PROMPT_CHARS
from service.conversation import Conversation, JsonObject
from service.errors import ContextTooLongError
from service.preparation.counting import counted
from service.preparation.generation import generation_of
from service.preparation.history import conversation_of, needs_of, resolved, stored_items
from service.preparation.jobs import (
    Answered,
    History,
    ItemsJob,
    Limits,
    Needs,
    PreparedResponse,
    ResponsesJob,
    WarmedUp,
)
from service.preparation.prompts import encoded, most_conversation_chars, rendered
from service.preparation.sampling import sampling_params
from service.preparation.work import Step, Work, ignored_of
from service.wire.decode import Ignored
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
    ignored_fields,
    text_shape,
)
from service.wire.responses.response_object import echoed_fields, unprompted_events
from service.wire.task import Task

# Reserved for the answer when truncation has to make room and the request does not say how much.
_ANSWER_ROOM = 1024


def _decode(body: bytes, _limits: Limits, ignored: Ignored) -> ResponsesRequest:
    return decode_responses(body, ignored)


def _decode_message(body: bytes, _limits: Limits, ignored: Ignored) -> ResponsesRequest:
    return decode_message(body, ignored)


def _finish(request: ResponsesRequest, work: Work) -> PreparedResponse | Needs:
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
    read = _conversation(wanted, history, shown, job, work)
    conversation = read.conversation
    if wanted.truncation == "auto":
        conversation = _shortened(wanted, conversation, work)
    task = Task(
        conversation,
        wanted,
        token_limit=wanted.max_output_tokens,
        sets_limit=request.max_output_tokens is not None,  # or else a summary's
        logprobs=wanted.engine_logprobs,
        tier=wanted.tier,
        answer=text_shape(wanted),
        tools=read.toolbox.shapes(),
        # The client parses a custom tool's text itself, and agents send grammars with every
        # request. If no call is required, an unenforceable grammar is reported instead of rejected.
        may_free=wanted.tool_choice in (None, "auto"),
    )
    generation, asked = generation_of(task, work)
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
    return history, resolved(own_items(request), history, job.referred, has_store=job.has_store)


def _conversation(
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
    ignored_of(work.job.limits, work.noted).add(*read.ignored)
    return read


def _finish_warm_up(request: ResponsesRequest, work: Work) -> WarmedUp | Needs:
    job = work.job
    assert isinstance(job, ResponsesJob)
    if not job.stored and (needs := needs_of(request, work.noted)) is not None:
        return needs
    history, items = _history_and_items(request, job)
    params = sampling_params(
        request,
        work.checkpoint,
        vocab_size=job.engine.vocab_size,
        max_tokens=work.context,
        logprobs=None,
    )
    ignored = ignored_of(job.limits, work.noted)
    ignored.add(*ignored_fields(request))
    events = unprompted_events(
        request,
        params,
        response_id=job.response_id,
        created=job.created,
        model=work.noted.model,
        ignored=ignored.names,
    )
    kept = History(
        context=msgspec.json.encode(history),
        input=msgspec.json.encode(with_ids(items, job.response_id)),
        body=b'{"output":[]}',
    )
    return WarmedUp(noted=work.noted, history=kept, events=events)


def _finish_input_tokens(request: ResponsesRequest, work: Work) -> Answered | Needs:
    job = work.job
    assert isinstance(job, ResponsesJob)
    if not job.stored and (needs := needs_of(request, work.noted)) is not None:
        return needs
    history, items = _history_and_items(request, job)
    read = _conversation(request, history, items, job, work)
    ids = counted(read.conversation, work)
    return Answered(noted=work.noted, body=msgspec.json.encode(InputTokens(input_tokens=len(ids))))


def _shortened(request: ResponsesRequest, conversation: Conversation, work: Work) -> Conversation:
    """Return the conversation without its oldest turns, dropping as few as needed to leave room for
    an answer in the context. If even the last turn alone is too long, it alone is kept."""
    left = min(request.max_output_tokens or _ANSWER_ROOM, work.context // 2)

    def fits(cut: Conversation) -> bool:
        text = rendered(cut, work)
        try:
            ids = encoded(text, work, param=cut.param, add_special_tokens=cut.add_special_tokens)
        except ContextTooLongError:
            work.noted.prompt_tokens = 0  # another prompt is tried
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
    items = [*stored_items(job.stored.context), *stored_items(job.stored.input)]
    if job.newest_first:
        items.reverse()
    page = item_page(items, job.limit, job.after)
    return Answered(noted=work.noted, body=msgspec.json.encode(page))


RESPONSES, MESSAGE = (
    Step(name, decode, _finish, PreparedResponse | Needs, ResponsesJob, uses_template=True)
    for name, decode in (("responses", _decode), ("message", _decode_message))
)
WARM_UP = Step("warm_up", _decode_message, _finish_warm_up, WarmedUp | Needs, ResponsesJob)
INPUT_TOKENS = Step(
    "input_tokens",
    _decode,
    _finish_input_tokens,
    Answered | Needs,
    ResponsesJob,
    uses_template=True,
)
ITEMS = Step("items", None, _finish_items, Answered, ItemsJob, uses_tokenizer=False)
