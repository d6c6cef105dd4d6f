"""``POST /v1/responses``."""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

import msgspec
from litestar import Response, post
from litestar.datastructures import State

from service.errors import InvalidRequestError
from service.generation.constraint import ToolShape
from service.generation.constraint_flat import CannotFlattenError
from service.generation.request import Generation
from service.prompt.conversation import Conversation, JsonObject
from service.routes.answering import (
    HttpRequest,
    answer_stream,
    answer_whole,
    exchange_of,
    respond,
)
from service.routes.body import read_body
from service.routes.exchange import Exchange, key_owner
from service.routes.prepare import render, start_conversation
from service.routes.replay import follow_run, start_run, wants_resumable
from service.routes.responses_keeping import EARLIER, Archive, Keeping
from service.routes.services import Services
from service.wire.responses import ResponsesRequest, decode_responses, text_shape
from service.wire.responses_answer import ResponseAnswer
from service.wire.responses_compaction import (
    asking_for_summary,
    summarizing,
    without_trigger,
)
from service.wire.responses_conversation import (
    ReadRequest,
    own_items,
    read_request,
    turn_starts,
    without_turns,
)

_MOST_GRAMMARS = 8
# Left for the answer when truncation has to make room and the request does not say how much.
_ANSWER_ROOM = 1024


class Begun(NamedTuple):
    """A response whose generation has begun. ``items`` are its input, ``history`` what came
    before."""

    generation: Generation
    answer: ResponseAnswer
    keeping: Keeping
    items: list[JsonObject]
    history: list[JsonObject]
    resumable: bool


@post("/v1/responses", status_code=200, opt={"route": "responses"})
async def create_response(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    body = await read_body(request.scope, request.receive, limit=services.settings.max_body_bytes)
    wanted = decode_responses(body, exchange.ignored)
    begun = await begin_response(request, services, wanted, len(body))
    generation, answer, keeping = begun.generation, begun.answer, begun.keeping
    if not (wanted.stream or wanted.background):
        return await answer_whole(exchange, generation, answer, request.receive, keeping.settle)
    if not begun.resumable:
        return answer_stream(exchange, generation, answer, keeping.settle)
    keeping.runs = True
    keeping.background = bool(wanted.background)
    await keeping.begin()
    stream = answer.stream()
    run = start_run(
        request,
        services,
        exchange,
        generation,
        stream,
        background=keeping.background,
        subject=keeping,
        settle=keeping.settle,
    )
    if wanted.stream:
        return follow_run(request, exchange, run, 0)
    return respond(exchange, stream.body)


async def begin_response(
    request: HttpRequest, services: Services, wanted: ResponsesRequest, body_size: int
) -> Begun:
    """Raises QuireError."""
    exchange = exchange_of(request)
    record = exchange.record
    record.operation = "chat"
    record.stream = bool(wanted.stream)
    record.model = services.model_name(wanted.model)
    services.admission.check(exchange.caller)
    resumable = wants_resumable(request) or _lasts(wanted)
    if resumable:
        services.runs.check(exchange.caller)
    promised = bool(wanted.store or wanted.background)
    if wanted.kept:
        await services.store.attempted()
    if promised:
        services.store.require()
    kept = wanted.kept and services.store.available
    owner = key_owner(request.scope, services.settings.keys)
    archive = Archive(services.store, services.runs, owner)
    history = request.scope["state"].get(EARLIER) or await archive.history(
        wanted.previous_response_id
    )
    items = await archive.resolve(own_items(wanted), history)
    items, compacts = without_trigger(items)
    asked, shown = wanted, items
    if compacts:
        asked = summarizing(wanted, services.engine.max_model_len)
        shown = asking_for_summary(items)
    read = read_request(asked, history, shown, lambda content: services.seal.open(content, owner))
    exchange.ignored.add(*read.ignored)
    generation = await _start(asked, read, services, exchange, body_size)
    created = int(time.time())
    record.response_id = f"resp_{uuid.uuid4().hex}"
    keeping = Keeping(
        services.store,
        response_id=record.response_id,
        owner=owner,
        created=created,
        items=items,
        context=history,
        promised=promised,
        wanted=kept,
    )
    answer = keeping.answer = ResponseAnswer(
        wanted,
        generation,
        services.checkpoint.vocabulary,
        read.toolbox,
        response_id=record.response_id,
        created=created,
        model=record.model,
        ignored=exchange.ignored.names,
        stored=kept,
        seal=lambda text: services.seal.seal(text, owner),
        compacts=compacts,
        on_end=keeping.on_end,
    )
    return Begun(generation, answer, keeping, items, history, resumable)


def _lasts(wanted: ResponsesRequest) -> bool:
    """Whether it may be asked for again while it runs: it was said to be stored, not by default."""
    return bool(wanted.background or (wanted.store and wanted.stream))


async def _start(
    wanted: ResponsesRequest,
    read: ReadRequest,
    services: Services,
    exchange: Exchange,
    body_size: int,
) -> Generation:
    conversation = read.conversation
    if wanted.truncation == "auto":
        conversation = await _truncated(wanted, conversation, services, body_size)
    shapes = read.toolbox.shapes()
    while True:
        try:
            return await start_conversation(
                conversation,
                wanted,
                services,
                exchange,
                body_size=body_size,
                token_limit=wanted.max_output_tokens,
                logprobs=wanted.engine_logprobs,
                answer=text_shape(wanted),
                tools=shapes,
            )
        except InvalidRequestError as error:
            shapes = _freed(shapes, error, wanted)
            exchange.ignored.add(error.param or "tools")


def _freed(
    shapes: tuple[ToolShape, ...], error: InvalidRequestError, wanted: ResponsesRequest
) -> tuple[ToolShape, ...]:
    """The forms of calls without the one grammar that cannot be enforced inside this model's calls.
    The client reads a custom tool's text itself, and agents send grammars with every request: where
    no call is demanded, one that is not enforced is reported, not refused. At most a few.

    Raises ``error`` where that is not what went wrong.
    """
    bound = sum(shape.input is not None for shape in shapes)
    unenforceable = isinstance(error.__cause__, CannotFlattenError)
    if not unenforceable or bound > _MOST_GRAMMARS or wanted.tool_choice not in (None, "auto"):
        raise error
    return tuple(
        msgspec.structs.replace(shape, input=None) if shape.param == error.param else shape
        for shape in shapes
    )


async def _truncated(
    wanted: ResponsesRequest, conversation: Conversation, services: Services, body_size: int
) -> Conversation:
    """The conversation without its oldest turns, as few of them as make it fit the context with
    room for an answer; without all but the last if even that is too long."""
    context = services.engine.max_model_len
    room = min(wanted.max_output_tokens or _ANSWER_ROOM, context // 2)

    async def fits(cut: Conversation) -> bool:
        prompt = await render(cut, services.checkpoint, body_size=body_size)
        return len(prompt.ids) + room <= context

    if await fits(conversation):
        return conversation
    starts = turn_starts(conversation)
    low, high = 1, len(starts) - 1
    while low < high:
        middle = (low + high) // 2
        if await fits(_cut(conversation, starts[middle])):
            high = middle
        else:
            low = middle + 1
    return conversation if high < 1 else _cut(conversation, starts[high])


def _cut(conversation: Conversation, first_kept: int) -> Conversation:
    return msgspec.structs.replace(conversation, messages=without_turns(conversation, first_kept))
