"""Plays a load trace against a server: prompts of the same lengths that begin alike where the
recorded ones did, made of random tokens, at the recorded times; prints what clients saw.

A line of the file is a JSON object with ``timestamp`` (milliseconds), ``input_length``,
``output_length`` and ``hash_ids``, the numbers of the prompt's whole blocks of ``block_size``
tokens (512 if there is none: the format of the Mooncake traces).
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from client.address import ServerAddress
from client.chat_client import MOST_ERROR_BYTES, ChatClient, error_message
from observability.terminal import for_terminal

FIRST_TOKEN_ID, TOKEN_IDS = 300, 600  # of every vocabulary that is not tiny, and no special ones
_DEFAULT_BLOCK = 512
_MOST_REQUESTS = 100_000
_MOST_BODY_BYTES = 1 << 30  # if the server does not say how long it is
_NOT_CONNECTED, _CUT = "not connected", "cut"
_FAILED, _UNREADABLE = "ended with an error", "not understood"


@dataclass(frozen=True, slots=True)
class TraceLine:
    at: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    block_size: int


@dataclass(slots=True)
class Replayed:
    """What one request's client saw, in seconds. ``error``: the kind of failure, if there is no
    answer; ``reason``: what it was."""

    late: float = 0.0
    ttft: float | None = None
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None
    reason: str = ""

    def fail(self, error: str, reason: str) -> None:
        self.error, self.reason = error, reason


def read_trace(path: Path) -> list[TraceLine]:
    """Empty lines are skipped. Raises ValueError, naming the file or the line."""
    found = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if number > _MOST_REQUESTS:
                    raise ValueError(f"more than {_MOST_REQUESTS:,} lines; shorten the file")
                if text.strip():
                    found.append(_line(text, number))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a load trace: it is not UTF-8 text") from error
    if not found:
        raise ValueError(f"{path} has no requests")
    return sorted(found, key=lambda one: one.at)


def _line(text: str, number: int) -> TraceLine:
    try:
        line = json.loads(text)
        one = TraceLine(
            float(line["timestamp"]) / 1e3,
            int(line["input_length"]),
            int(line["output_length"]),
            tuple(map(int, line["hash_ids"])),
            int(line.get("block_size", _DEFAULT_BLOCK)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"line {number} is not a valid line of a load trace") from error
    if not math.isfinite(one.at):
        raise ValueError(f"line {number} has a timestamp that is not a finite number")
    return one


def prompt_of(line: TraceLine, number: int) -> list[int]:
    """Return token ids, at least one: for each block those that its number always gives, then, for
    what is left, ids that no other prompt has."""
    length = max(1, line.input_length)
    ids: list[int] = []
    for block in line.hash_ids:
        if len(ids) < length:
            ids += random.Random(block).choices(_IDS, k=line.block_size)
    missing = length - len(ids)
    if missing > 0:
        ids += random.Random(f"rest of {number}").choices(_IDS, k=missing)
    return ids[:length]


_IDS = range(FIRST_TOKEN_ID, FIRST_TOKEN_ID + TOKEN_IDS)


async def replay(
    lines: Sequence[TraceLine],
    address: ServerAddress,
    *,
    model: str,
    key: str | None,
    speed: float,
    answers: dict[int, Replayed],
) -> None:
    """Send each request when it is due, whether or not earlier ones have been answered. Each puts
    its result into ``answers`` as it ends, where it is still found if the replay is cancelled."""

    async def send(number: int, body: bytes, late: float) -> None:
        answers[number] = await _send(address, key, body, late)

    begun = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number, line in enumerate(lines):
            due = begun + (line.at - lines[0].at) / speed
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            body = {
                "model": model,
                "prompt": prompt_of(line, number),
                "max_tokens": max(1, line.output_length),
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            late = time.monotonic() - due
            tasks.create_task(send(number, json.dumps(body).encode(), late))


async def _send(address: ServerAddress, key: str | None, body: bytes, late: float) -> Replayed:
    found = Replayed(late=late)
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {address.prefix}/v1/completions HTTP/1.1\r\nHost: {address.authority}\r\n"
        f"{authorization}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=address.is_encrypted or None
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a name
        reason = getattr(error, "strerror", None) or str(error)
        found.fail(_NOT_CONNECTED, f"no connection to {address.url}: {reason}")
        return found
    try:
        writer.write(head.encode() + body)
        await writer.drain()
        await _read_answer(reader, begun, found)
    except (OSError, EOFError):  # EOFError: within a chunk
        found.fail(_CUT, "the connection closed before the end of the answer")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"
        found.fail(_UNREADABLE, f"the answer is not that of a completions API ({what})")
    finally:
        writer.close()
    return found


async def _read_answer(reader: asyncio.StreamReader, begun: float, found: Replayed) -> None:
    first = await reader.readline()
    if not first:
        raise EOFError
    _, status, *phrase = first.decode("latin-1").split(maxsplit=2)
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if status == "200":
        await _read_events(_body(reader, headers), begun, found)
        return
    text = b""
    async for piece in _body(reader, headers):
        text += piece
        if len(text) >= MOST_ERROR_BYTES:
            break
    try:
        reason = error_message(json.loads(text))
    except ValueError:
        reason = "".join(phrase).strip()
    found.fail(f"HTTP {status}", reason)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """Yield the bytes of a body as they arrive."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).strip() or b"0", 16):
            yield (await reader.readexactly(size + 2))[:-2]
        return
    left = int(headers.get("content-length", _MOST_BODY_BYTES))
    while left > 0 and (piece := await reader.read(min(left, 65536))):
        left -= len(piece)
        yield piece


async def _read_events(body: AsyncIterator[bytes], begun: float, found: Replayed) -> None:
    """Read a stream of events to its end."""
    last, rest, is_whole = 0.0, b"", False
    async for piece in body:
        *lines, rest = (rest + piece).split(b"\n")
        now = time.monotonic()
        for line in lines:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if event.get("error"):
                    found.fail(_FAILED, error_message(event))
                    return
                if event.get("choices"):
                    if found.ttft is None:
                        found.ttft = now - begun
                    else:
                        found.gaps.append(now - last)
                    last = now
                if usage := event.get("usage"):
                    found.prompt_tokens = usage["prompt_tokens"]
                    found.output_tokens = usage["completion_tokens"]
                    details = usage.get("prompt_tokens_details") or {}
                    found.cached_tokens = details.get("cached_tokens") or 0
            is_whole = is_whole or line.startswith(b"data: [DONE]")
    if not is_whole:
        raise EOFError


def quantile(values: Sequence[float], percent: int) -> float | None:
    """Return a quantile by nearest rank: it is one of the values."""
    ranked = sorted(values)
    return ranked[-(-len(ranked) * percent // 100) - 1] if ranked else None


def summary(answers: Sequence[Replayed], seconds: float) -> list[str]:
    """Return the lines to print. Of each kind of failure there is the first one's reason."""
    whole = [one for one in answers if one.error is None]
    errors = Counter(one.error for one in answers if one.error is not None)
    reasons: dict[str, str] = {}
    for one in answers:
        if one.error is not None:
            reasons.setdefault(one.error, one.reason)
    output = sum(one.output_tokens for one in whole)
    prompt, cached = sum(one.prompt_tokens for one in whole), sum(o.cached_tokens for o in whole)
    failed = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items())) or "none"
    share = f"{cached / prompt:.1%} of them cached" if prompt else "none cached"
    return [
        f"requests   {len(answers)} in {seconds:.1f} s, failed: {failed}",
        *(f"  {kind}: {reason}" for kind, reason in sorted(reasons.items()) if reason),
        f"tokens     {prompt} in, {share}; {output} out, {output / max(seconds, 1e-9):.0f}/s",
        _row("TTFT", [one.ttft for one in whole if one.ttft is not None]),
        _row("ITL", [gap for one in whole for gap in one.gaps]),
        _row("sent late", [one.late for one in answers]),
    ]


def _row(name: str, values: Sequence[float]) -> str:
    cells = []
    for percent in (50, 95, 99):
        found = quantile(values, percent)
        cells.append(f"p{percent} {'-' if found is None else f'{found * 1e3:.1f} ms'}")
    return f"{name:<10} {'  '.join(cells)}"


def run(path: Path, base_url: str, *, model: str | None, key: str | None, speed: float) -> int:
    """Replay a file and print what was seen, also if Ctrl-C ends it. Return the exit status: 1 if
    a request failed, 130 if it was interrupted. Raises ValueError, ServerError."""
    client = ChatClient(base_url, key)
    lines = read_trace(path)
    model = model or client.first_model()
    answers: dict[int, Replayed] = {}
    status, begun = 0, time.monotonic()
    try:
        asyncio.run(
            replay(lines, client.address, model=model, key=key, speed=speed, answers=answers)
        )
    except KeyboardInterrupt:
        print(f"interrupted when {len(answers)} of {len(lines)} requests had ended")
        status = 128 + signal.SIGINT
    for text in summary(list(answers.values()), time.monotonic() - begun):
        print(for_terminal(text))
    return status or int(any(one.error is not None for one in answers.values()))
