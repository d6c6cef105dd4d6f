"""What browsers read besides Streamlit's own pages: the feed and the history of servers."""

from __future__ import annotations

import time
from collections.abc import Awaitable

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dashboard.fanout import follow
from dashboard.feed_token import is_valid
from dashboard.feeds import RANGES, feeds

# That read one server's feed: each holds a connection and the messages it has not read.
MOST_BROWSERS = 256
_NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}
_RETRY_LATER = {**_NO_STORE, "retry-after": "30"}


def channel_of(servers: list[int], *, kv: bool = False) -> str:
    """Return the name of a feed, as in its address."""
    return "-".join(str(one) for one in servers) + (".kv" if kv else "")


async def feed(request: Request) -> Response:
    """``GET /feed/{channel}``: server-sent events of the servers in it."""
    channel = request.path_params["channel"]
    chosen = _chosen(request, channel)
    if chosen is None:
        return _refused()
    kv = channel.endswith(".kv")
    fanouts = [feeds().fanout(index, kv=kv) for index in chosen]
    if any(len(fanout) >= MOST_BROWSERS for fanout in fanouts):
        return JSONResponse({"detail": "Too many browsers read this feed."}, 503, _RETRY_LATER)
    return StreamingResponse(follow(fanouts), media_type="text/event-stream", headers=_NO_STORE)


async def history(request: Request) -> Response:
    """``GET /history/{channel}/{server}/{minutes}``: the series of the last minutes."""
    chosen = _chosen(request, request.path_params["channel"])
    index, minutes = request.path_params["server"], request.path_params["minutes"]
    if chosen is None or index not in chosen or minutes not in RANGES:
        return _refused()
    try:
        body = await feeds().history(index, minutes)
    except httpx.HTTPError:
        return JSONResponse({"start": 0, "step": 1, "values": {}, "marks": []}, headers=_NO_STORE)
    return Response(body, media_type="application/json", headers=_NO_STORE)


async def kv_prefixes(request: Request) -> Response:
    """``GET /kv/{channel}/prefixes``: the tree of shared prefixes."""
    index = _kv_server(request)
    return _refused() if index is None else await _passed_on(feeds().prefixes(index))


async def kv_times(request: Request) -> Response:
    """``GET /kv/{channel}/times``: when the kept KV maps were made."""
    index = _kv_server(request)
    return _refused() if index is None else await _passed_on(feeds().kv_times(index))


async def kv_map(request: Request) -> Response:
    """``GET /kv/{channel}/at/{time}``: the KV map of that time, in epoch seconds."""
    index, at = _kv_server(request), request.path_params["time"]
    return _refused() if index is None else await _passed_on(feeds().kv_map(index, at))


def _kv_server(request: Request) -> int | None:
    """Return the server of a channel of KV maps, which has one, if the token opens it."""
    channel = request.path_params["channel"]
    chosen = _chosen(request, channel) if channel.endswith(".kv") else None
    return None if chosen is None else chosen[0]


async def _passed_on(fetched: Awaitable[bytes]) -> Response:
    try:
        body = await fetched
    except httpx.HTTPError:
        return JSONResponse({"detail": "The server did not answer."}, 502, _NO_STORE)
    return Response(body, media_type="application/json", headers=_NO_STORE)


def _chosen(request: Request, channel: str) -> list[int] | None:
    """Return the servers of a channel that the request's token opens."""
    if not is_valid(request.query_params.get("token", ""), channel, time.time()):
        return None
    return [int(one) for one in channel.removesuffix(".kv").split("-")]


def _refused() -> Response:
    return JSONResponse({"detail": "Reload the page."}, 403, headers=_NO_STORE)


ROUTES = [
    Route("/feed/{channel}", feed),
    Route("/history/{channel}/{server:int}/{minutes:int}", history),
    Route("/kv/{channel}/prefixes", kv_prefixes),
    Route("/kv/{channel}/times", kv_times),
    Route("/kv/{channel}/at/{time:float}", kv_map),
]
