"""Files for other programs: requests and usage as CSV and Parquet, and load traces."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response
from msgspec import Meta

from service.admin.problem import ProblemError, invalid, not_found, unavailable
from service.http.admin.call import AdminCall, json_answer
from service.http.admin.downloads import download, paced
from service.http.admin.queries import export_query, only
from service.http.admin.usage import usage_query
from service.http.event_stream import EventStream
from service.http.serves import serves_admin
from service.records.load_trace import MOST_SECONDS, LoadTrace
from service.records.ordering import QueryError
from service.store.archive import RequestArchive

_DAY = 86_400.0
_MEDIA_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


class LoadTraceOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: Annotated[float, Meta(gt=0, le=MOST_SECONDS)] = 300.0


def _archive(request: AdminCall) -> RequestArchive:
    archive = request.desk.services.archive
    if archive is None:
        raise unavailable("This server has no database for requests and usage (--store-url none).")
    return archive


def _invalid(error: ValueError) -> ProblemError:
    return invalid(str(error), error.field if isinstance(error, QueryError) else None)


async def _requests(request: AdminCall, form: str) -> EventStream:
    exports = request.desk.exports
    exports.check()
    query, archive = export_query(request.query_params), _archive(request)
    stored = await request.desk.whole.store_now()
    try:
        pieces = await archive.export_requests(query, form)
    except ValueError as error:
        raise _invalid(error) from None
    name = f"quire-requests.{form}"
    return download(exports.one(pieces), _MEDIA_TYPES[form], file_name=name, headers=stored.headers)


async def _usage(request: AdminCall, form: str) -> EventStream:
    exports = request.desk.exports
    exports.check()
    query, archive = usage_query(request), _archive(request)
    stored = await request.desk.whole.store_now(usage=True)
    try:
        pieces = await archive.export_usage(*query, form)
    except ValueError as error:
        raise _invalid(error) from None
    name = f"quire-usage.{form}"
    return download(exports.one(pieces), _MEDIA_TYPES[form], file_name=name, headers=stored.headers)


@serves_admin("GET /admin/v1/requests.csv")
async def requests_csv(request: AdminCall) -> EventStream:
    """All stored requests that a query finds."""
    return await _requests(request, "csv")


@serves_admin("GET /admin/v1/requests.parquet")
async def requests_parquet(request: AdminCall) -> EventStream:
    """The same as Parquet."""
    return await _requests(request, "parquet")


@serves_admin("GET /admin/v1/usage.csv")
async def usage_csv(request: AdminCall) -> EventStream:
    """The rows of ``usage``."""
    return await _usage(request, "csv")


@serves_admin("GET /admin/v1/usage.parquet")
async def usage_parquet(request: AdminCall) -> EventStream:
    """The same as Parquet."""
    return await _usage(request, "parquet")


@serves_admin("POST /admin/v1/loadtrace")
async def record_load_trace(request: AdminCall) -> Response[bytes]:
    """Record a load trace for some seconds; the one before is forgotten."""
    order = await request.decoded(LoadTraceOrder)
    trace = request.desk.services.load_trace
    trace.start(order.seconds)
    request.audit("loadtrace", after=f"{order.seconds:g} s")
    return _state(trace)


@serves_admin("DELETE /admin/v1/loadtrace")
async def stop_load_trace(request: AdminCall) -> Response[bytes]:
    """End the recording."""
    trace = request.desk.services.load_trace
    trace.stop()
    request.audit("loadtrace", after="stopped")
    return _state(trace)


@serves_admin("GET /admin/v1/loadtrace")
async def load_trace(request: AdminCall) -> EventStream:
    """The recorded trace, a line of JSON for each request that has ended."""
    only(request.query_params)
    trace = request.desk.services.load_trace
    if not trace.until:
        raise not_found("No load trace was recorded; POST to this path to record one.")
    exports = request.desk.exports
    exports.check()
    await trace.hashed()
    lines = exports.one(paced(trace.lines()))
    return download(lines, "application/jsonl", file_name="quire-load.jsonl")


def _state(trace: LoadTrace) -> Response[bytes]:
    return json_answer(
        {"until": trace.until, "requests": trace.num_requests, "left_out": trace.left_out}
    )
