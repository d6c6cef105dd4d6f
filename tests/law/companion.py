"""Streams that run along with costly requests, and the gaps between their tokens.

    python -m tests.law.companion PORT STREAMS

It streams until a line arrives on standard input, then prints the gaps, in seconds, as a JSON list.
It is a separate process, so that the requests' sender does not delay it.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

_ASK = {"prompt": "hi", "max_tokens": 100_000, "ignore_eos": True, "stream": True}


def follow(port: int, gaps: list[float], ended: threading.Event, begun: threading.Barrier) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(_ASK).encode())
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    reply.readline()
    begun.wait()
    before = time.monotonic()
    while not ended.is_set() and (line := reply.readline()):
        if line.startswith(b"data: "):
            now = time.monotonic()
            gaps.append(now - before)
            before = now
    connection.close()


def main(port: int, streams: int) -> None:
    gaps: list[float] = []
    ended, begun = threading.Event(), threading.Barrier(streams + 1)
    threads = [
        threading.Thread(target=follow, args=(port, gaps, ended, begun)) for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    begun.wait()
    print("begun", flush=True)
    sys.stdin.readline()
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps(gaps))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
