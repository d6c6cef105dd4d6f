"""Checks that a loaded server stays stable: streams for minutes without pause and watches the
processes' memory.

``python -m bench.soak --minutes 5 --streams 64 --cores 2`` pins server and client together to that
many cores. Every answer is compared with the same prompt's non-streamed answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from bench.report import print_table, write_result
from tests.e2e.quire_server import QuireServer, descendants

PROMPTS = [
    "Hello!",
    "Tell me a story.",
    "What can you do?",
    "Count from 1 to 10.",
    "Who are you?",
    "What is 12 + 7?",
    "你好",
    "Thanks!",
]


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def role(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    for name in ("engine", "service.worker", "service.cli"):
        if name in words:
            return name
    return "other"


async def ask(port: int, prompt: str, *, stream: bool) -> str:
    body = json.dumps(
        {
            "model": "pocket",
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": 120,
            "stream": stream,
        }
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    reply = await reader.read()
    writer.close()
    _, payload = reply.split(b"\r\n\r\n", 1)
    if not stream:
        return str(json.loads(payload)["choices"][0]["message"]["content"])
    events = [line[6:] for line in payload.splitlines() if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise RuntimeError(f"a stream ended early: {payload[-200:]!r}")
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )


async def soak(server: QuireServer, streams: int, seconds: float) -> dict[str, Any]:
    whole = {prompt: await ask(server.port, prompt, stream=False) for prompt in PROMPTS}
    end = time.monotonic() + seconds
    counts = {"answers": 0, "different": 0}

    async def client(number: int) -> None:
        turn = number
        while time.monotonic() < end:
            prompt = PROMPTS[turn % len(PROMPTS)]
            turn += 1
            text = await ask(server.port, prompt, stream=True)
            counts["answers"] += 1
            counts["different"] += text != whole[prompt]

    assert server.process is not None
    pids = {server.process.pid, *descendants(server.process.pid)}
    samples: dict[int, list[tuple[float, float]]] = {pid: [] for pid in pids}

    async def weigh() -> None:
        start = time.monotonic()
        while time.monotonic() < end:
            for pid in pids:
                samples[pid].append((time.monotonic() - start, resident_mib(pid)))
            server.output()
            await asyncio.sleep(1)

    await asyncio.gather(weigh(), *(client(number) for number in range(streams)))
    return {"counts": counts, "samples": samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with QuireServer() as server:
        result = asyncio.run(soak(server, args.streams, args.minutes * 60))
        rows = []
        for pid, weights in result["samples"].items():
            settled = [weight for when, weight in weights if when > args.minutes * 60 / 5]
            half = len(settled) // 2
            rows.append(
                {
                    "process": role(pid),
                    "rss MiB, after 1/5": settled[0],
                    "rss MiB, end": settled[-1],
                    "second half minus first, MiB": sum(settled[half:]) / len(settled[half:])
                    - sum(settled[:half]) / len(settled[:half]),
                }
            )
        active = server.total("quire_kv_blocks", state="active")
    counts = result["counts"]
    print_table(rows)
    print(
        f"{counts['answers']} streamed answers, {counts['different']} unlike their whole answer; "
        f"KV blocks in use afterwards: {active:.0f}"
    )
    path = write_result("soak", rows, streams=args.streams, minutes=args.minutes, **counts)
    print(path)


if __name__ == "__main__":
    main()
