"""How ``bench.cpu_peers`` talks to its workers: one JSON object per line, in both directions.

A worker sends its version once it is ready, then answers each request (prompts, tokens to generate)
with the seconds it took. Uses only the standard library: workers run in environments without
Quire's packages.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

Prompts = list[list[int]]


@dataclass
class Timing:
    """Seconds from submission to each sequence's first token, and from there to the last token.
    ``prefill`` None: the engine does not expose the first token. ``first``: first tokens."""

    prefill: float | None
    decode: float
    tokens: int
    first: list[int]


class Stopwatch:
    """Times a run whose steps the caller controls."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._prefilled: float | None = None

    def prefilled(self) -> None:
        """Record that every sequence has its first token (later calls have no effect)."""
        if self._prefilled is None:
            self._prefilled = time.perf_counter()

    def stop(self, tokens: int, first: list[int]) -> Timing:
        end = time.perf_counter()
        if self._prefilled is None:
            return Timing(None, end - self._start, tokens, first)
        return Timing(self._prefilled - self._start, end - self._prefilled, tokens, first)


def serve(start: Callable[[dict[str, Any]], tuple[str, Callable[[Prompts, int], Timing]]]) -> None:
    """``start(settings)`` returns the engine's version and its ``run(prompts, tokens)``."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps what libraries print out of the protocol

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    version, run = start(json.loads(sys.argv[1]))
    say({"ready": version})
    for line in sys.stdin:
        request = json.loads(line)
        say(asdict(run(request["prompts"], request["tokens"])))
