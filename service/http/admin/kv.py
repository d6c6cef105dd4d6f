"""The KV cache: the pool by owner, and the tree of shared prefixes."""

from __future__ import annotations

from litestar import Response

from service.admin.pieces import kv_pieces
from service.admin.problem import not_found, unavailable
from service.engine.inspections import NoInspectionError
from service.http.admin.call import AdminCall, json_answer
from service.http.admin.downloads import download, paced
from service.http.admin.queries import moment, number, only
from service.http.serves import serves_admin
from service.overview.kv_cache import KvCache

_MOST_PREFIXES = 500


@serves_admin("GET /admin/v1/kv")
async def kv_map(request: AdminCall) -> Response[bytes]:
    """The block pool by owner, run-length coded; with ``at``, as it was then."""
    query = request.query_params
    only(query, "at", "engine")
    kv_cache = _asked_for(request)
    at = moment(query, "at")
    if at is not None:
        then = await kv_cache.history.at(at)
        if then is None:
            raise not_found(
                "No map of that time is available: maps are kept for an hour, and only made while "
                "a reader requests them. /admin/v1/kv/times lists them."
            )
        then = await request.desk.whole.with_keys(then)
        return download(paced(kv_pieces(then)), "application/json")
    try:
        found = await request.desk.whole.with_keys(await kv_cache.map())
    except NoInspectionError as error:
        raise unavailable(f"The KV cache map is unavailable: {error}.") from None
    return download(paced(kv_pieces(found)), "application/json")


@serves_admin("GET /admin/v1/kv/times")
async def kv_times(request: AdminCall) -> Response[bytes]:
    """The times of the maps that are kept."""
    only(request.query_params, "engine")
    return json_answer(_asked_for(request).history.times())


@serves_admin("GET /admin/v1/kv/prefixes")
async def prefixes(request: AdminCall) -> Response[bytes]:
    """The tree of shared prefixes, the most used first."""
    query = request.query_params
    only(query, "limit", "engine")
    limit = int(number(query, "limit", 50, 1, _MOST_PREFIXES))
    try:
        found = await _asked_for(request).prefixes(limit)
    except NoInspectionError as error:
        raise unavailable(f"The prefix tree is unavailable: {error}.") from None
    return json_answer(found)


def _asked_for(request: AdminCall) -> KvCache:
    """Return the KV cache of the engine that the query names by its index; by default the first."""
    caches = request.desk.services.overviews.kv_caches
    return caches.of(int(number(request.query_params, "engine", 0, 0, len(caches) - 1)))
