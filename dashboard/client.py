"""Sends a request to a server and reads its answer as it comes; it can be stopped at any time.

The stream is read by a task on a background event loop, because only there can a read that waits
for a busy server be cancelled at once. Cancelling closes the connection, which is how a server
learns that the answer is no longer needed.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from dashboard import server
from dashboard.answer import Answer, BrokenStreamError, Ending
from dashboard.apis.ask import Ask
from dashboard.apis.table import Api
from dashboard.certificates import certificates
from dashboard.sse import EventDecoder

# Reading may take as long as the server needs; a person can stop it.
_TIMEOUT = httpx.Timeout(10.0, read=None)
_MOST_EVENTS = 500  # of an answer, kept as they came,
_MOST_CHARACTERS = 4_000  # and of each the beginning
_MOST_BODY = 64 << 20  # bytes of an answer that is not a stream


@dataclass(frozen=True, slots=True)
class Request:
    api: Api
    ask: Ask

    def body(self) -> dict[str, Any]:
        return self.api.body(self.ask)


class Generation:
    """An answer in progress. ``patience``: seconds after which an answer that is not being read
    (the page's connection was lost) is cancelled. The API key is gone when the answer has ended."""

    def __init__(
        self,
        url: str,
        request: Request,
        api_key: str = "",
        patience: float = 60.0,
        body: dict[str, Any] | None = None,
    ) -> None:
        self.request = request
        self._body = request.body() if body is None else body
        self.url = url
        self._patience = patience
        self._changed = threading.Condition()
        self._looked = time.monotonic()
        _http()
        self._answer = Answer(sent=time.monotonic())
        self._events: deque[str] = deque(maxlen=_MOST_EVENTS)
        self._task = asyncio.run_coroutine_threadsafe(self._run(api_key), _event_loop())

    @classmethod
    def all_at_once(
        cls, url: str, requests: Sequence[Request], api_key: str = ""
    ) -> tuple[Generation, ...]:
        """All bodies are made before the first is sent, and none waits for another's connection."""
        ready = [(request, request.body()) for request in requests]
        return tuple(cls(url, request, api_key, body=body) for request, body in ready)

    def answer(self) -> Answer:
        """Return a copy of the answer so far."""
        with self._changed:
            self._looked = time.monotonic()
            return self._answer.copy()

    def events(self) -> list[str]:
        """The last events as the server sent them, the latest last."""
        with self._changed:
            return list(self._events)

    def forget_events(self) -> None:
        with self._changed:
            self._events.clear()

    @property
    def size(self) -> int:
        """Characters."""
        with self._changed:
            return self._answer.size + sum(map(len, self._events))

    @property
    def running(self) -> bool:
        with self._changed:
            return self._answer.ending is None

    def wait(self, seen_chunks: int, timeout: float) -> None:
        """Until more than ``seen_chunks`` have come, or the end, or ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._answer.chunks > seen_chunks or self._answer.ending is not None,
                timeout,
            )

    def cancel(self) -> None:
        """Close the connection now. What has come so far stays. Does nothing after the end."""
        self._end(Ending.STOPPED)
        self._task.cancel()

    async def _run(self, api_key: str) -> None:
        watch = asyncio.create_task(self._give_up_when_unwatched())
        try:
            await self._stream(api_key)
            self._end(Ending.COMPLETE)
        except httpx.TransportError as error:
            self._end(Ending.FAILED, server.unreachable(self.url, error))
        except (server.RefusalError, server.UnusableKeyError, BrokenStreamError) as error:
            self._end(Ending.FAILED, str(error))
        except Exception as error:
            self._end(
                Ending.FAILED,
                f"The dashboard could not complete the request: {type(error).__name__}: {error}",
            )
        finally:
            self._end(Ending.STOPPED)  # cancelled: the other endings were recorded above
            watch.cancel()

    async def _stream(self, api_key: str) -> None:
        """Raises RefusalError, UnusableKeyError, httpx.TransportError or BrokenStreamError."""
        api = self.request.api
        async with _http().stream(
            "POST",
            f"{self.url}{api.path}",
            json=self._body,
            headers=server.authorization(api_key),
        ) as response:
            if response.is_error:
                await response.aread()
                raise server.refusal(response)
            with self._changed:
                self._answer.request_id = response.headers.get("x-request-id", "")
                self._answer.trace_id = response.headers.get("x-trace-id", "")
            if api.streams:
                await self._read_events(response)
            else:
                self._event((await _whole(response)).decode(errors="replace"))
        if self._answer.finish_reason is None:
            raise BrokenStreamError(
                "The server closed the connection before the answer was complete."
            )

    async def _read_events(self, response: httpx.Response) -> None:
        decoder = EventDecoder()
        async for block in response.aiter_bytes():
            for data in decoder.feed(block):
                if data == "[DONE]":
                    return
                self._event(data)

    def _event(self, data: str) -> None:
        with self._changed:
            self._events.append(data[:_MOST_CHARACTERS])
            try:
                self.request.api.read(self._answer, data)
            except msgspec.DecodeError as error:
                raise BrokenStreamError(f"The server sent an invalid chunk: {error}") from error
            finally:
                self._changed.notify_all()

    def _end(self, ending: Ending, error: str = "") -> None:
        with self._changed:
            if self._answer.ending is None:
                self._answer.ending = ending
                self._answer.error = error
                self._changed.notify_all()

    async def _give_up_when_unwatched(self) -> None:
        while (left := self._looked + self._patience - time.monotonic()) > 0:
            await asyncio.sleep(left)
        self.cancel()


async def _whole(response: httpx.Response) -> bytes:
    """Raises BrokenStreamError if the body is too long to be shown."""
    body = bytearray()
    async for block in response.aiter_bytes():
        body += block
        if len(body) > _MOST_BODY:
            raise BrokenStreamError(f"The answer is longer than {_MOST_BODY >> 20} MiB.")
    return bytes(body)


@functools.cache
def prepare(url: str) -> None:
    """Asks ``url`` for something small, once. A process's first request loads the asynchronous
    half of httpx: two tenths of a second that the first answer would wait."""
    asyncio.run_coroutine_threadsafe(_http().head(f"{url}/health"), _event_loop())


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="chat streams", daemon=True).start()
    return loop


@functools.cache
def _http() -> httpx.AsyncClient:
    """Shared, since making one takes a tenth of a second (TLS certificates).
    Connections are not kept: a stream's end is its connection's end."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(verify=certificates(), timeout=_TIMEOUT, limits=limits)
