"""What browsers read besides Streamlit's own pages: the feed and the history of servers."""

from __future__ import annotations

import time
from collections.abc import Awaitable

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dashboard.fanout import follow
from dashboard.feed_token import seconds_left
from dashboard.feeds import RANGES, feeds
from dashboard.server import UnusableKeyError

# That read one server's feed: each holds a connection and the messages it has not read.
MOST_BROWSERS = 256
_KV = ".kv"
_NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}
_RETRY_LATER = {**_NO_STORE, "retry-after": "30"}


def channel_of(servers: list[int], *, kv: int | None = None) -> str:
    """Return the name of a feed, as in its address. ``kv``: the engine whose KV maps it has."""
    return "-".join(str(one) for one in servers) + ("" if kv is None else f"{_KV}{kv}")


def _kv_of(channel: str) -> int | None:
    """Return the engine whose KV maps a channel has; None if it has none."""
    _, has_maps, engine = channel.partition(_KV)
    return int(engine) if has_maps else None


async def feed(request: Request) -> Response:
    """``GET /feed/{channel}``: server-sent events of the servers in it, until the token expires: a
    page that may still read them has a new one by then."""
    channel = request.path_params["channel"]
    chosen, seconds = _chosen(request, channel), _seconds_left(request, channel)
    if chosen is None:
        return _refused()
    fanouts = [feeds().fanout(index, kv=_kv_of(channel)) for index in chosen]
    if any(len(fanout) >= MOST_BROWSERS for fanout in fanouts):
        return JSONResponse({"detail": "Too many browsers read this feed."}, 503, _RETRY_LATER)
    return StreamingResponse(
        follow(fanouts, seconds), media_type="text/event-stream", headers=_NO_STORE
    )


async def history(request: Request) -> Response:
    """``GET /history/{channel}/{server}/{minutes}``: the series of the last minutes."""
    chosen = _chosen(request, request.path_params["channel"])
    index, minutes = request.path_params["server"], request.path_params["minutes"]
    if chosen is None or index not in chosen or minutes not in RANGES:
        return _refused()
    try:
        body = await feeds().history(index, minutes)
    except (httpx.HTTPError, UnusableKeyError):
        return JSONResponse({"start": 0, "step": 1, "values": {}, "marks": []}, headers=_NO_STORE)
    return Response(body, media_type="application/json", headers=_NO_STORE)


async def kv_prefixes(request: Request) -> Response:
    """``GET /kv/{channel}/prefixes``: the tree of shared prefixes."""
    named = _kv_server(request)
    return _refused() if named is None else await _passed_on(feeds().prefixes(*named))


async def kv_times(request: Request) -> Response:
    """``GET /kv/{channel}/times``: when the kept KV maps were made."""
    named = _kv_server(request)
    return _refused() if named is None else await _passed_on(feeds().kv_times(*named))


async def kv_map(request: Request) -> Response:
    """``GET /kv/{channel}/at/{time}``: the KV map of that time, in epoch seconds."""
    named, at = _kv_server(request), request.path_params["time"]
    return _refused() if named is None else await _passed_on(feeds().kv_map(*named, at))


def _kv_server(request: Request) -> tuple[int, int] | None:
    """Return the server and the engine of a channel of KV maps, if the token opens it."""
    channel = request.path_params["channel"]
    chosen = _chosen(request, channel)
    engine = None if chosen is None else _kv_of(channel)
    return None if chosen is None or engine is None else (chosen[0], engine)


async def _passed_on(fetched: Awaitable[bytes]) -> Response:
    try:
        body = await fetched
    except (httpx.HTTPError, UnusableKeyError):
        return JSONResponse({"detail": "The server did not answer."}, 502, _NO_STORE)
    return Response(body, media_type="application/json", headers=_NO_STORE)


def _chosen(request: Request, channel: str) -> list[int] | None:
    """Return the servers of a channel that the request's token opens."""
    if not _seconds_left(request, channel):
        return None
    return [int(one) for one in channel.partition(_KV)[0].split("-")]


def _seconds_left(request: Request, channel: str) -> float:
    return seconds_left(request.query_params.get("token", ""), channel, time.time())


def _refused() -> Response:
    return JSONResponse({"detail": "Reload the page."}, 403, headers=_NO_STORE)


ROUTES = [
    Route("/feed/{channel}", feed),
    Route("/history/{channel}/{server:int}/{minutes:int}", history),
    Route("/kv/{channel}/prefixes", kv_prefixes),
    Route("/kv/{channel}/times", kv_times),
    Route("/kv/{channel}/at/{time:float}", kv_map),
]
