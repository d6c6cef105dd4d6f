"""``GET /admin/v1/bundle``: what an incident is looked at with later, in one file."""

from __future__ import annotations

import platform
import time
from collections.abc import AsyncIterator, Iterator

import msgspec
from litestar import Response

from engine.options import options
from observability.admin_api import (
    MAX_PAGE,
    BundleManifest,
    RequestQuery,
    Series,
)
from observability.history import HISTORY
from service.admin.bundle import zipped
from service.admin.pieces import page_pieces, request_pieces, series_pieces
from service.http.admin.call import AdminCall, AdminDesk
from service.http.admin.downloads import download, paced
from service.http.admin.queries import only
from service.http.serves import serves_admin
from service.settings import ServiceSettings
from service.version import VERSION

_HOUR = 3600.0
_SHOWN_SETTINGS = tuple(option.name for option in options(ServiceSettings) if not option.secret)
_COLUMNS = 10  # of the history in one answer
_MOST_AUDIT_ROWS = 1000
_ENGINE_FACTS = (
    *(
        "architecture",
        "implementation",
        "quantization",
        "unserved_inputs",
        "dtype",
        "device",
        "block_size",
    ),
    *("num_kv_blocks", "max_model_len", "max_num_seqs", "tensor_parallel_size"),
    *("prefix_caching", "load_seconds"),
)


@serves_admin("GET /admin/v1/bundle")
async def bundle(request: AdminCall) -> Response[bytes]:
    """The last hour in one zip file of JSON: figures, requests, audit, settings, versions. It has
    no content of any request, and no secret."""
    only(request.query_params)
    desk = request.desk
    desk.bundles.check()
    name = time.strftime("quire-%Y%m%d-%H%M%S.zip", time.gmtime())
    made = desk.bundles.one(zipped(_files(desk)))
    return download(made, "application/zip", file_name=name)


def _files(desk: AdminDesk) -> Iterator[tuple[str, AsyncIterator[bytes]]]:
    yield "manifest.json", _one(_manifest(desk))
    yield "overview.json", _overview(desk)
    yield "series.json", _series(desk)
    yield "requests.json", _requests(desk)
    yield "audit.json", _audit(desk)
    yield "hot_settings.json", _one(desk.settings.current())


def _manifest(desk: AdminDesk) -> BundleManifest:
    services = desk.services
    ready = services.link.state.ready
    chosen = services.settings
    return BundleManifest(
        created=time.time(),
        versions={"quire": VERSION, "python": platform.python_version()},
        settings={name: msgspec.to_builtins(getattr(chosen, name)) for name in _SHOWN_SETTINGS},
        engine={} if ready is None else {name: getattr(ready, name) for name in _ENGINE_FACTS},
    )


async def _one(value: object) -> AsyncIterator[bytes]:
    yield msgspec.json.encode(value)


async def _overview(desk: AdminDesk) -> AsyncIterator[bytes]:
    found, _ = await desk.whole.overview()
    yield msgspec.json.encode(found)


async def _series(desk: AdminDesk) -> AsyncIterator[bytes]:
    """Yield the last hour by the second. Columns are read in groups: an answer with all of
    them would have longer steps."""
    history = desk.services.overviews.history
    names, end = [column.name for column in HISTORY], time.time()
    begin = end - _HOUR + _COLUMNS  # the same for all, although the oldest second moves on
    whole: Series | None = None
    for start in range(0, len(names), _COLUMNS):
        part = await history.series(names[start : start + _COLUMNS], begin, end)
        if whole is None:
            whole = part
        else:
            whole.values.update(part.values)
    assert whole is not None
    async for piece in paced(series_pieces(whole)):
        yield piece


async def _requests(desk: AdminDesk) -> AsyncIterator[bytes]:
    """Yield the page of all requests that ended in the last hour."""
    since = time.time() - _HOUR
    if not desk.whole.peers:
        async for piece in paced(page_pieces(desk.services.records.ended_since(since))):
            yield piece
        return
    yield b'{"requests":['
    query: RequestQuery | None = RequestQuery(since=since, sort="-ended", limit=MAX_PAGE)
    separator = b""
    while query is not None:
        (page,) = (await desk.whole.rows(query)).parts
        requests = (row.request() for row in page.rows)
        async for piece in paced(request_pieces(requests, separator)):
            yield piece
        separator = b"," if page.rows else separator
        following = page.cursor
        query = None if following is None else msgspec.structs.replace(query, cursor=following)
    yield b'],"cursor":null,"source":"memory"}'


async def _audit(desk: AdminDesk) -> AsyncIterator[bytes]:
    told = await desk.whole.audit_rows(_MOST_AUDIT_ROWS, is_shared=desk.archive is not None)
    yield msgspec.json.encode(told.parts[0])
