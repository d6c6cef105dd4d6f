"""Who used how much: by key, model or route, in hours or days."""

from __future__ import annotations

import time
from typing import NamedTuple

from litestar import Response

from service.admin.archive import ArchiveSource
from service.admin.pieces import rows_pieces
from service.admin.problem import invalid, unavailable
from service.http.admin.call import AdminCall
from service.http.admin.downloads import download, paced
from service.http.admin.queries import choice, moment, only
from service.http.serves import serves_admin
from service.records.ordering import QueryError

USAGE_BY = ("key", "model", "route")
_DAY = 86_400.0


class UsageQuery(NamedTuple):
    """The arguments of ``ArchiveSource.usage``."""

    by: str
    begin: float
    end: float
    bucket: str


def usage_query(request: AdminCall) -> UsageQuery:
    query = request.query_params
    only(query, "by", "from", "to", "bucket")
    end = moment(query, "to")
    end = time.time() if end is None else end
    begin = moment(query, "from")
    return UsageQuery(
        choice(query, "by", USAGE_BY, "key") or "key",
        end - _DAY if begin is None else begin,
        end,
        choice(query, "bucket", ("hour", "day"), "hour") or "hour",
    )


def _archive(request: AdminCall) -> ArchiveSource:
    archive = request.desk.archive
    if archive is None:
        raise unavailable("This server has no database for usage (--store-url none).")
    return archive


@serves_admin("GET /admin/v1/usage")
async def usage(request: AdminCall) -> Response[bytes]:
    """Rows of ``UsageRow``; by default the last day by key in hours."""
    archive, query = _archive(request), usage_query(request)
    stored = await request.desk.whole.store_now(usage=True)
    try:
        rows = await archive.usage(*query)
    except QueryError as error:
        raise invalid(str(error), error.field) from None
    return download(paced(rows_pieces(rows)), "application/json", headers=stored.headers)
