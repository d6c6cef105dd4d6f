"""The least work that the HTTP server can do per streamed token: the reference of ``bench.sse``.

A minimal ASGI app on the same server and event loop. It has no engine, parser, encoder or
accounting: every ``--step-ms`` each stream writes one chunk that was rendered once.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import uvloop

from service.http.server import HttpServer
from service.supervision.listener import open_listening_socket

_CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk",'
    b'"created":1760000000,"model":"tiny","choices":[{"index":0,"delta":{"content":" word"},'
    b'"logprobs":null,"finish_reason":null}]}\n\n'
)
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}


class Metronome:
    """Wakes every waiting stream at each step."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        loop = self._loop
        due = loop.time()
        while True:
            due = max(due + self._seconds, loop.time())
            await asyncio.sleep(due - loop.time())
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def next_step(self) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._waiting.append(future)
        return future


def bare_app(metronome: Metronome) -> Any:
    """Return an ASGI app that answers every request with an endless stream."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send(_START)
        leaving = asyncio.ensure_future(_left(receive))
        while not leaving.done():
            await metronome.next_step()
            await send({"type": "http.response.body", "body": _CHUNK, "more_body": True})

    return app


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def serve(port: int, step_seconds: float) -> None:
    """Serve until killed."""
    metronome = Metronome(step_seconds)
    server = HttpServer(bare_app(metronome), open_listening_socket("127.0.0.1", port))
    await server.start()
    print("limit accepts", flush=True)
    await metronome.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=10.0)
    args = parser.parse_args()
    uvloop.run(serve(args.port, args.step_ms / 1e3))


if __name__ == "__main__":
    main()
