"""Operations on existing responses: retrieve, delete, cancel, and list input items."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath

from service.errors import InvalidRequestError
from service.http.call import HttpCall
from service.http.replay import first_wanted, follow_run, replayed
from service.http.responses.lifecycle import ResponseLifecycle, stop_deleted
from service.http.responses.lookup import ResponseLookup
from service.http.serves import serves
from service.preparation.responses import ITEMS
from service.serving.prepare import prepare
from service.store.record import RUNNING

_MOST_ITEMS = 100
_DEFAULT_ITEMS = 20
_ELSEWHERE = "The response runs in another replica; send the request there."


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


def _lookup(request: HttpCall) -> ResponseLookup:
    services = request.services
    return ResponseLookup(services.store, services.runs, request.exchange.caller.owner)


@serves("GET /v1/responses/{response_id}")
async def retrieve_response(request: HttpCall, response_id: FromPath[str]) -> Response[bytes]:
    exchange = request.exchange
    lookup = _lookup(request)
    if not _flag(request, "stream"):
        record = await lookup.find(response_id)
        return request.answer(record.body)
    exchange.record.stream = True
    number = first_wanted(request)
    run = lookup.run(response_id)
    if run is not None:
        stream = follow_run(exchange, run, number)
    else:
        record = await lookup.find(response_id)
        if record.status in RUNNING:
            raise InvalidRequestError(_ELSEWHERE)
        if record.events is None:
            raise InvalidRequestError(
                f"Response '{response_id}' was not stored as a stream; that requires "
                "'background', or 'stream' with 'store'.",
                param="stream",
            )
        exchange.hold(len(record.events))
        stream = replayed(exchange, record.events, number)
    exchange.record.status = 200
    exchange.succeed("stop")
    return stream


@serves("DELETE /v1/responses/{response_id}")
async def delete_response(request: HttpCall, response_id: FromPath[str]) -> Response[bytes]:
    """Delete a response, stopping it if it is still running."""
    services, exchange = request.services, request.exchange
    lookup = _lookup(request)
    run = lookup.run(response_id)
    deleted = await services.store.delete(response_id, exchange.caller.owner)
    if run is None and not deleted:
        raise lookup.missing(response_id)
    if run is not None:  # not before: if the store does not answer, nothing is deleted
        stop_deleted(services.runs, response_id)
    return request.answer(msgspec.json.encode(DeletedResponse(id=response_id)))


@serves("POST /v1/responses/{response_id}/cancel")
async def cancel_response(request: HttpCall, response_id: FromPath[str]) -> Response[bytes]:
    """Cancel a response; one that has ended is returned unchanged."""
    lookup = _lookup(request)
    run = lookup.run(response_id)
    if run is not None:
        assert isinstance(run.subject, ResponseLifecycle)
        if not run.subject.plan.background:
            raise InvalidRequestError("Only a background response can be cancelled.")
        run.stop("The response was cancelled.")
        while not run.log.ended:
            await run.log.grown()
    record = await lookup.find(response_id)
    if record.status in RUNNING:
        raise InvalidRequestError(_ELSEWHERE)
    if not record.background:
        raise InvalidRequestError("Only a background response can be cancelled.")
    return request.answer(record.body)


@serves("GET /v1/responses/{response_id}/input_items")
async def list_input_items(request: HttpCall, response_id: FromPath[str]) -> Response[bytes]:
    query = request.query_params
    limit = _number(query.get("limit"), "limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequestError("'order' must be asc or desc.", param="order")
    stored = await _lookup(request).items_of(response_id)
    listed = await prepare(
        ITEMS,
        b"",
        request.requester,
        stored=stored,
        limit=limit,
        newest_first=order == "desc",
        after=query.get("after"),
    )
    return request.answer(listed.body)


def _number(text: Any, name: str) -> int:
    if text is None:
        return _DEFAULT_ITEMS
    is_short = len(text) <= len(str(_MOST_ITEMS))
    if not (is_short and text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_ITEMS):
        raise InvalidRequestError(f"'{name}' must be a number from 1 to {_MOST_ITEMS}.", param=name)
    return int(text)


def _flag(request: HttpCall, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequestError(f"'{name}' must be true or false.", param=name)
    return bool(text == "true")
