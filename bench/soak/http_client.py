"""One HTTP request on one connection, by hand: a client that costs little and can leave."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

_PIECE = 65_536
_RESET = struct.pack("ii", 1, 0)


class CutError(Exception):
    """The server closed the connection before the answer was complete."""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[dict[str, Any]]:
        """The JSON events of a stream."""
        lines = [line[6:] for line in self.body.splitlines() if line.startswith(b"data: ")]
        return [json.loads(line) for line in lines if line != b"[DONE]"]


def request_bytes(method: str, path: str, body: Any, headers: dict[str, str]) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.0", "host: localhost", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(content)}", "", ""]
    return "\r\n".join(lines).encode() + content


async def send(port: int, sent: bytes) -> Reply:
    """Send a request and read its whole answer. Raises CutError or OSError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        said = await reader.read()
    except ConnectionError as error:
        raise CutError(str(error)) from error
    finally:
        writer.close()
    return _parsed(said)


async def begin(port: int, sent: bytes) -> Reply:
    """Send a request, read the head of its answer and leave. Raises CutError or OSError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return _parsed(await reader.readuntil(b"\r\n\r\n"), is_whole=False)
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        raise CutError(str(error)) from error
    finally:
        writer.close()


async def leave(port: int, sent: bytes, dice: random.Random) -> None:
    """Send a request, perhaps not all of it, and leave at any moment, with or without a goodbye."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if dice.random() < 0.1:
            sent = sent[: dice.randrange(1, len(sent))]
        writer.write(sent)
        await writer.drain()
        try:
            async with asyncio.timeout(dice.choice((0.0, 0.01, dice.uniform(0, 0.5)))):
                while await reader.read(_PIECE):
                    pass
        except TimeoutError:
            pass
        if dice.random() < 0.5:
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
    except ConnectionError:
        pass
    finally:
        writer.close()


def _parsed(said: bytes, *, is_whole: bool = True) -> Reply:
    head, separator, body = said.partition(b"\r\n\r\n")
    if not separator:
        raise CutError("no answer")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    headers = {name.lower(): value for name, _, value in pairs}
    length = headers.get("content-length")
    if is_whole and length is not None and len(body) < int(length):
        raise CutError("half an answer")
    return Reply(int(first.split()[1]), headers, body)
