"""Operations on existing responses: retrieve, delete, cancel, and list input items."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath

from service.errors import InvalidRequestError
from service.http.call import HttpCall
from service.http.event_stream import EventStream
from service.http.replay import first_wanted, follow_run, replayed
from service.http.responses.lifecycle import ResponseLifecycle, stop_deleted
from service.http.responses.lookup import ResponseLookup
from service.http.serves import serves
from service.preparation.responses import ITEMS
from service.serving.exchange import Exchange
from service.serving.prepare import prepare
from service.store.record import RUNNING, StoredResponse
from service.store.running import LEASE_SECONDS

_MOST_ITEMS = 100
_DEFAULT_ITEMS = 20
_ELSEWHERE = (
    "The response runs in another process, or its process has ended. Send the request to the "
    "replica that runs it. If its process has ended, the response will be 'failed' in at most "
    f"{LEASE_SECONDS} seconds; retrieve it then."
)


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
        stream = _replayed(exchange, record, number)
    exchange.record.status = 200
    exchange.succeed("stop")
    return stream


def _replayed(exchange: Exchange, record: StoredResponse, number: int) -> EventStream:
    """Return a stored stream from event ``number`` on. Of one whose process ended, or that was too
    large, only the last event is known. Raises InvalidRequestError."""
    events = record.events
    if events is None:
        if not (record.abandoned or record.background):
            raise InvalidRequestError(
                f"The stream of response '{record.id}' was not stored: that requires 'background', "
                "or 'stream' with 'store', and a stream that is not too large.",
                param="stream",
            )
        events, number = _last_event(record, number), 0
    exchange.hold(len(events))
    return replayed(exchange, events, number)


def _last_event(record: StoredResponse, number: int) -> bytes:
    """Return the event that says how a response ended, as event ``number``."""
    # The SDKs have no event for cancelled; the object's status shows it.
    name = b"response." + ("failed" if record.status == "cancelled" else record.status).encode()
    data = b'{"type":"%b","sequence_number":%d,"response":%b}' % (name, number, record.body)
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, name, data)


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
