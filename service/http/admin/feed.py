"""``GET /admin/v1/feed``."""

from __future__ import annotations

from litestar import Response

from service.http.admin.call import AdminCall
from service.http.admin.queries import choice, engine_index, only
from service.http.event_stream import EventStream
from service.http.serves import serves_admin

# Seconds that a reader may block one write.
_PATIENCE = 5.0


@serves_admin("GET /admin/v1/feed")
async def live_feed(request: AdminCall) -> Response[bytes]:
    """Server-sent events: a ``Frame`` each second; with ``kv=1``, also two KV maps a second, of the
    engine that ``engine`` names by its index or of the first."""
    query = request.query_params
    only(query, "kv", "engine")
    wants_kv = choice(query, "kv", ("0", "1"), "0") == "1"
    desk = request.desk
    engine = engine_index(query, len(desk.services.overviews.kv_caches))
    alias = request.actor.alias
    desk.feed.make_room(alias)
    return EventStream(
        desk.feed.follow(alias, kv=engine if wants_kv else None),
        {"cache-control": "no-store"},
        patience=_PATIENCE,
        keep_alive=0.0,
        cut=lambda _: None,
    )
