"""Streams a chat answer from any OpenAI-compatible server, and can stop it at any time.

The stream is read by a task on a background event loop, because only there can a read that waits
for a busy server be cancelled at once. Cancelling closes the connection, which is how a server
learns that the answer is no longer needed.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from dashboard import server
from dashboard.answer import Answer, Ending, decode_chunk
from dashboard.sse import EventDecoder

# Reading may take as long as the server needs; a person can stop it.
_TIMEOUT = httpx.Timeout(10.0, read=None)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """``thinking`` None leaves it to the model's template, and sends nothing about it."""

    model: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None = None
    thinking: bool | None = None

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": role, "content": text} for role, text in self.messages],
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "timings": True,
        }
        if self.seed is not None:
            body["seed"] = self.seed
        if self.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        return body


class Generation:
    """An answer in progress. ``patience``: seconds after which an answer that is not being read
    (the page was closed) is cancelled. The API key is gone when the answer has ended."""

    def __init__(
        self, url: str, request: ChatRequest, api_key: str = "", patience: float = 60.0
    ) -> None:
        self.request = request
        self._url = url
        self._patience = patience
        self._changed = threading.Condition()
        self._looked = time.monotonic()
        _http()
        self._answer = Answer(sent=time.monotonic())
        self._task = asyncio.run_coroutine_threadsafe(self._run(api_key), _event_loop())

    def answer(self) -> Answer:
        """Return a copy of the answer so far."""
        with self._changed:
            self._looked = time.monotonic()
            return copy.deepcopy(self._answer)

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
            self._end(Ending.FAILED, server.unreachable(self._url, error))
        except (server.RefusalError, _BrokenStreamError) as error:
            self._end(Ending.FAILED, str(error))
        finally:
            self._end(Ending.STOPPED)  # cancelled: the other endings were recorded above
            watch.cancel()

    async def _stream(self, api_key: str) -> None:
        """Raises RefusalError, httpx.TransportError or _BrokenStreamError."""
        async with _http().stream(
            "POST",
            f"{self._url}/v1/chat/completions",
            json=self.request.body(),
            headers=server.authorization(api_key),
        ) as response:
            if response.is_error:
                await response.aread()
                raise server.refusal(response)
            with self._changed:
                self._answer.request_id = response.headers.get("x-request-id", "")
                self._answer.trace_id = response.headers.get("x-trace-id", "")
            decoder = EventDecoder()
            async for block in response.aiter_bytes():
                if any(self._event(data) for data in decoder.feed(block)):
                    return
        if self._answer.finish_reason is None:
            raise _BrokenStreamError(
                "The server closed the connection before the answer was complete."
            )

    def _event(self, data: str) -> bool:
        """Returns whether this event is the last."""
        if data == "[DONE]":
            return True
        try:
            chunk = decode_chunk(data)
        except msgspec.DecodeError as error:
            raise _BrokenStreamError(f"The server sent an invalid chunk: {error}") from error
        with self._changed:
            self._answer.apply(chunk)
            self._changed.notify_all()
        if chunk.error is not None:
            raise _BrokenStreamError(f"The server reported an error: {chunk.error.message}")
        return False

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


class _BrokenStreamError(Exception):
    """The stream began but did not end properly. The message is for users."""


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
    return httpx.AsyncClient(timeout=_TIMEOUT, limits=httpx.Limits(max_keepalive_connections=0))
