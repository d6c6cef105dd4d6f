"""What the admin API shows: the state now, the last hour, requests, the KV cache."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from litestar import Response
from litestar.params import FromPath

from observability.admin_api import KeptRequest, RequestQuery
from service.admin.pieces import page_pieces, series_pieces
from service.admin.problem import invalid, not_found
from service.errors import StoreUnavailableError
from service.http.admin.call import AdminCall, json_answer
from service.http.admin.downloads import download, paced
from service.http.admin.queries import moment, number, only, request_query
from service.http.serves import serves_admin
from service.records.records import Records

_STORE_CURSOR = "s."


@serves_admin("GET /admin/v1/overview")
async def overview(request: AdminCall) -> Response[bytes]:
    """The state at this moment, the verdict, and the last minutes' figures."""
    only(request.query_params)
    return json_answer(
        request.desk.services.overviews.now(), {"quire-admin-scope": request.actor.scope.value}
    )


@serves_admin("GET /admin/v1/series")
async def series(request: AdminCall) -> Response[bytes]:
    """The last hour by the second, or part of it."""
    query = request.query_params
    only(query, "names", "from", "to", "step")
    history = request.desk.services.overviews.history
    names = tuple(name for name in query.get("names", "").split(",") if name)
    step = number(query, "step", 1.0, 1.0, 3600.0)
    try:
        found = await history.series(names, moment(query, "from"), moment(query, "to"), step)
    except ValueError as error:
        raise invalid(str(error), "names") from None
    return download(paced(series_pieces(found)), "application/json")


@serves_admin("GET /admin/v1/requests")
async def requests(request: AdminCall) -> Response[bytes]:
    """A page of requests."""
    query = request_query(request.query_params)
    try:
        pieces = await _page(request, query)
    except ValueError as error:
        raise invalid(f"{error}") from None
    return download(paced(pieces), "application/json")


async def _page(request: AdminCall, query: RequestQuery) -> Iterator[bytes]:
    """Return the page from memory if that has all requests that can match, else from the store,
    whose pages' cursors are marked. Raises ValueError."""
    records, archive = request.desk.services.records, request.desk.archive
    cursor = query.cursor or ""
    if archive is not None and (
        cursor.startswith(_STORE_CURSOR) or (not cursor and not _remembered(records, query))
    ):
        asked = msgspec.structs.replace(query, cursor=cursor.removeprefix(_STORE_CURSOR) or None)
        try:
            page = await archive.query(asked)
        except StoreUnavailableError:
            if cursor:
                raise
        else:
            marked = None if page.cursor is None else _STORE_CURSOR + page.cursor
            return page_pieces(page.requests, marked, "store")
    rows, following = await records.rows(query)
    return page_pieces((row.request() for row in rows), following)


def _remembered(records: Records, query: RequestQuery) -> bool:
    oldest = records.oldest_ended
    return query.live or (query.since is not None and oldest is not None and query.since >= oldest)


@serves_admin("GET /admin/v1/requests/{request_id}")
async def one_request(request: AdminCall, request_id: FromPath[str]) -> Response[bytes]:
    """The whole record of a request, by its id or its trace's."""
    only(request.query_params)
    return json_answer(await found_request(request, request_id))


async def found_request(request: AdminCall, request_id: str) -> KeptRequest:
    """Return the request, from memory or else from the store. Raises ProblemError."""
    desk = request.desk
    found = desk.services.records.find(request_id)
    if found is None and desk.archive is not None:
        found = await desk.archive.find(request_id)
    if found is None:
        raise not_found(
            f"Request '{request_id[:64]}' was not found: this server never received it, or its "
            "record has expired."
        )
    return found


@serves_admin("GET /metrics")
async def admin_metrics(request: AdminCall) -> Response[bytes]:
    """The metrics, as on the public port of a server without API keys."""
    services = request.desk.services
    body, content_type = await services.metrics_pages.page(request.headers.get("accept", ""))
    return Response(content=body, status_code=200, headers={"content-type": content_type})
