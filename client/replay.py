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
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIRST_TOKEN_ID, TOKEN_IDS = 300, 600  # of every vocabulary that is not tiny, and no special ones
_DEFAULT_BLOCK = 512
_MOST_REQUESTS = 100_000
_CUT = "cut"


@dataclass(frozen=True, slots=True)
class TraceLine:
    at: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    block_size: int


@dataclass(slots=True)
class Replayed:
    """What one request's client saw, in seconds; ``error``: why there is no answer."""

    late: float = 0.0
    ttft: float | None = None
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


def read_trace(path: Path) -> list[TraceLine]:
    """Empty lines are skipped. Raises ValueError, naming the line."""
    found = []
    with path.open() as file:
        for number, text in enumerate(file, 1):
            if number > _MOST_REQUESTS:
                raise ValueError(f"more than {_MOST_REQUESTS} lines; shorten the file")
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                one = TraceLine(
                    float(line["timestamp"]) / 1e3,
                    int(line["input_length"]),
                    int(line["output_length"]),
                    tuple(map(int, line["hash_ids"])),
                    int(line.get("block_size", _DEFAULT_BLOCK)),
                )
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise ValueError(f"line {number} is not a valid line of a load trace") from error
            if not math.isfinite(one.at):
                raise ValueError(f"line {number} has a timestamp that is not a finite number")
            found.append(one)
    return sorted(found, key=lambda one: one.at)


def prompt_of(line: TraceLine, number: int) -> list[int]:
    """Return token ids: of each block those that its number always has, and after the last whole
    block some that no other prompt has."""
    ids: list[int] = []
    for block in line.hash_ids:
        if len(ids) < line.input_length:
            ids += random.Random(block).choices(_IDS, k=line.block_size)
    missing = line.input_length - len(ids)
    if missing > 0:
        ids += random.Random(f"rest of {number}").choices(_IDS, k=missing)
    return ids[: max(1, line.input_length)]


_IDS = range(FIRST_TOKEN_ID, FIRST_TOKEN_ID + TOKEN_IDS)


async def replay(
    lines: Sequence[TraceLine], base_url: str, *, model: str, key: str | None, speed: float
) -> list[Replayed]:
    """Send each request when it is due, whether or not earlier ones have been answered."""
    begun = time.monotonic()
    tasks = []
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
        tasks.append(asyncio.create_task(_send(base_url, key, json.dumps(body).encode(), late)))
    return await asyncio.gather(*tasks)


async def _send(base_url: str, key: str | None, body: bytes, late: float) -> Replayed:
    found = Replayed(late=late)
    url = urllib.parse.urlsplit(base_url)
    encrypted = url.scheme == "https"
    port = url.port or (443 if encrypted else 80)
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {url.path.rstrip('/')}/v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\n"
        f"{authorization}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=encrypted or None)
        writer.write(head.encode() + body)
        await writer.drain()
        status = (await reader.readline()).split(b" ", 2)[1].decode()
        while (await reader.readline()).strip():
            pass
        if status != "200":
            found.error = f"HTTP {status}"
        else:
            await _read_events(reader, begun, found)
        writer.close()
    except EOFError:  # within a chunk
        found.error = _CUT
    except (OSError, LookupError, TypeError, ValueError) as error:
        found.error = type(error).__name__
    return found


async def _read_events(reader: asyncio.StreamReader, begun: float, found: Replayed) -> None:
    """Read a chunked stream of events to its end."""
    last, rest, is_whole = 0.0, b"", False
    while size := int((await reader.readline()).strip() or b"0", 16):
        rest += await reader.readexactly(size + 2)
        rest = rest[:-2]
        *lines, rest = rest.split(b"\n")
        now = time.monotonic()
        for line in lines:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
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
        found.error = _CUT


def quantile(values: Sequence[float], share: float) -> float | None:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else None


def summary(answers: Sequence[Replayed], seconds: float) -> list[str]:
    """Return the lines to print."""
    whole = [one for one in answers if one.error is None]
    errors: dict[str, int] = {}
    for one in answers:
        if one.error is not None:
            errors[one.error] = errors.get(one.error, 0) + 1
    output = sum(one.output_tokens for one in whole)
    prompt, cached = sum(one.prompt_tokens for one in whole), sum(o.cached_tokens for o in whole)
    failed = ", ".join(f"{count} {why}" for why, count in sorted(errors.items())) or "none"
    share = f"{cached / prompt:.1%} of them cached" if prompt else "none cached"
    return [
        f"requests   {len(answers)} in {seconds:.1f} s, failed: {failed}",
        f"tokens     {prompt} in, {share}; {output} out, {output / max(seconds, 1e-9):.0f}/s",
        _row("TTFT", [one.ttft for one in whole if one.ttft is not None]),
        _row("ITL", [gap for one in whole for gap in one.gaps]),
        _row("sent late", [one.late for one in answers]),
    ]


def _row(name: str, values: Sequence[float]) -> str:
    cells = []
    for percent in (50, 95, 99):
        found = quantile(values, percent / 100)
        cells.append(f"p{percent} {'-' if found is None else f'{found * 1e3:.1f} ms'}")
    return f"{name:<10} {'  '.join(cells)}"


def run(path: Path, base_url: str, *, model: str, key: str | None, speed: float) -> int:
    """Replay a file and print what was seen; 1 if a request failed."""
    lines = read_trace(path)
    if not lines:
        raise ValueError("the file has no requests")
    begun = time.monotonic()
    answers = asyncio.run(replay(lines, base_url, model=model, key=key, speed=speed))
    for text in summary(answers, time.monotonic() - begun):
        print(text)
    return int(any(one.error is not None for one in answers))
