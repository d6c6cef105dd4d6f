"""What the admin API shows: the state now, the last hour, requests, the KV cache."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from litestar import Response
from litestar.params import FromPath

from observability.admin_api import KeptRequest, RequestQuery
from service.admin.own_part import remembered
from service.admin.pieces import page_pieces, series_pieces
from service.admin.problem import invalid, not_found
from service.errors import StoreUnavailableError
from service.http.admin.call import AdminCall, AdminDesk, json_answer
from service.http.admin.downloads import download, paced
from service.http.admin.queries import moment, number, only, request_query
from service.http.serves import serves_admin
from service.records.ordering import QueryError

_STORE_CURSOR = "s."


@serves_admin("GET /admin/v1/overview")
async def overview(request: AdminCall) -> Response[bytes]:
    """The state at this moment, the verdict, and the last minutes' figures."""
    only(request.query_params)
    found, _ = await request.desk.whole.overview()
    return json_answer(found, {"quire-admin-scope": request.actor.scope.value})


@serves_admin("GET /admin/v1/series")
async def series(request: AdminCall) -> Response[bytes]:
    """The last hour by the second, or part of it."""
    query = request.query_params
    only(query, "names", "from", "to", "step")
    history = request.desk.services.overviews.history
    names = tuple(name for name in query.get("names", "").split(",") if name)
    step = number(query, "step", 1.0, 1.0, 3600.0)
    begin, end = moment(query, "from"), moment(query, "to")
    if begin is not None and end is not None and begin >= end:
        raise invalid("'from' must be before 'to'.", "from")
    try:
        found = await history.series(names, begin, end, step)
    except ValueError as error:
        raise invalid(str(error), "names") from None
    return download(paced(series_pieces(found)), "application/json")


@serves_admin("GET /admin/v1/requests")
async def requests(request: AdminCall) -> Response[bytes]:
    """A page of requests."""
    query = request_query(request.query_params)
    try:
        pieces, headers = await _page(request, query)
    except QueryError as error:
        raise invalid(str(error), error.field) from None
    return download(paced(pieces), "application/json", headers=headers)


async def _page(request: AdminCall, query: RequestQuery) -> tuple[Iterator[bytes], dict[str, str]]:
    """Return the page from the workers' memory if that has all requests that can match, else from
    the store, whose pages' cursors are marked; and the reply's headers. The store also continues
    pages from memory, which may have forgotten requests meanwhile. Raises QueryError."""
    desk = request.desk
    is_stored = (query.cursor or "").startswith(_STORE_CURSOR)
    asks_store = is_stored or not remembered(desk.services.records, query)
    if asks_store:
        stored = await _stored_page(desk, query)
        if stored is not None:
            return stored
    found = await desk.whole.rows(query)
    (page,) = found.parts
    # Another worker has forgotten some. A store that has just failed would take as long again.
    if not (page.is_complete or asks_store):
        stored = await _stored_page(desk, query)
        if stored is not None:
            return stored
    return page_pieces((row.request() for row in page.rows), page.cursor), found.headers


async def _stored_page(
    desk: AdminDesk, query: RequestQuery
) -> tuple[Iterator[bytes], dict[str, str]] | None:
    """Return None if memory may be shown instead: there is no store, or it is unavailable."""
    cursor = (query.cursor or "").removeprefix(_STORE_CURSOR)
    is_stored = cursor != (query.cursor or "")
    if desk.archive is None or not (is_stored or desk.archive.keeps_requests):
        return None
    written = await desk.whole.store_now()
    try:
        page = await desk.archive.query(msgspec.structs.replace(query, cursor=cursor or None))
    except StoreUnavailableError:
        if is_stored:
            raise
        return None
    marked = None if page.cursor is None else _STORE_CURSOR + page.cursor
    return page_pieces(page.requests, marked, "store"), written.headers


@serves_admin("GET /admin/v1/requests/{request_id}")
async def one_request(request: AdminCall, request_id: FromPath[str]) -> Response[bytes]:
    """The whole record of a request, by its id or its trace's."""
    only(request.query_params)
    found, headers = await found_request(request, request_id)
    return json_answer(found, headers)


async def found_request(request: AdminCall, request_id: str) -> tuple[KeptRequest, dict[str, str]]:
    """Return the request, from a worker's memory or else from the store, and the reply's headers.
    Raises ProblemError."""
    desk = request.desk
    told = await desk.whole.find(request_id)
    found = told.parts[0] if told.parts else None
    if found is None and desk.archive is not None:
        found = await desk.archive.find(request_id)
    if found is None:
        said = (
            f"Request '{request_id[:64]}' was not found: this server never received it, or its "
            "record has expired."
        )
        if desk.archive is None or not desk.archive.keeps_requests:
            said += " The server stores no requests and remembers only the latest that have ended."
        raise not_found(said, told.headers)
    return found, told.headers


@serves_admin("GET /metrics")
async def admin_metrics(request: AdminCall) -> Response[bytes]:
    """The metrics, as on the public port of a server without API keys."""
    services = request.desk.services
    body, content_type = await services.metrics_pages.page(request.headers.get("accept", ""))
    return Response(content=body, status_code=200, headers={"content-type": content_type})
