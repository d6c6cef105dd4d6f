"""A load trace: when prompts arrive, how long they and their outputs are, and which of them begin
alike. It has no text and nothing by which two traces could be linked.

While one is recorded, each prompt is cut into blocks. A block with all blocks before it gets a
number, the same for each prompt that begins so. What the numbers are made from is hashed with a
salt that is forgotten with the recording.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from engine.messages import Generate
from service.engine.submission import Submission
from service.records.row import Row
from service.turns import my_turn

BLOCK_TOKENS = 16
MOST_SECONDS = 3600.0
_MOST_REQUESTS = 100_000
_MOST_BLOCKS = 4_000_000
_MOST_NUMBERS = 1_000_000  # of different blocks: each takes some 160 bytes while it is recorded
_MOST_PENDING_TOKENS = 8_000_000
_BLOCKS_AT_ONCE = 500
_DIGEST_BYTES = 12

_encoder = msgspec.json.Encoder()


class TracedRequest(msgspec.Struct, frozen=True):
    """A line of the file: a prompt to generate from. ``timestamp``: milliseconds after the
    recording began. ``hash_ids``: the numbers of its whole blocks, of ``block_size`` tokens."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]
    block_size: int = BLOCK_TOKENS


@dataclass(slots=True)
class _Traced:
    arrival: float
    input_length: int
    blocks: array[int]
    output_length: int | None = None


class LoadTrace:
    """Give each submission to ``submitted`` and each ended request to ``ended``."""

    def __init__(self) -> None:
        self.until = 0.0  # of the epoch; 0: nothing was recorded
        self.left_out = 0
        self._began = 0.0
        # Lines never have the number of one in a recording before: it may still be in ``_pending``.
        self._line_numbers = itertools.count()
        self._lines: dict[int, _Traced] = {}
        self._lines_of: dict[str, list[int]] = {}  # by request, until it ends
        self._numbers: dict[bytes, int] = {}
        self._salt = b""
        self._num_blocks = 0
        self._pending: deque[tuple[int, bytes, list[int]]] = deque()
        self._pending_tokens = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_recording(self) -> bool:
        return time.time() < self.until

    @property
    def num_requests(self) -> int:
        """How many lines there will be when all requests have ended."""
        return len(self._lines)

    def start(self, seconds: float) -> None:
        """Record for so long, at most ``MOST_SECONDS``; forget the trace before."""
        self.stop()
        self._lines, self._lines_of, self._numbers, self._num_blocks = {}, {}, {}, 0
        self._salt = secrets.token_bytes(16)
        self.left_out = 0
        self._began = time.time()
        lasts = min(seconds, MOST_SECONDS)
        self.until = self._began + lasts
        self._timer = asyncio.get_running_loop().call_later(lasts, self.stop)

    def stop(self) -> None:
        """End the recording; what was recorded can still be read."""
        self.until = min(self.until, time.time())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None or self._task.done():
            self._forget()  # else when all is hashed

    def _forget(self) -> None:
        """Forget what the numbers are made from."""
        self._numbers, self._salt = {}, b""

    def submitted(self, submission: Submission) -> None:
        """Note a prompt to generate from; its blocks are hashed later, a few at a time."""
        if not self.is_recording or not isinstance(submission.task, Generate):
            return
        if submission.request_id in self._lines_of and not submission.seeds:
            return  # a further step of a beam search
        number = next(self._line_numbers)
        self._lines_of.setdefault(submission.request_id, []).append(number)
        tokens = submission.prompt_token_ids
        blocks = len(tokens) // BLOCK_TOKENS
        if (
            len(self._lines) >= _MOST_REQUESTS
            or self._num_blocks + blocks > _MOST_BLOCKS
            or self._pending_tokens + len(tokens) > _MOST_PENDING_TOKENS
        ):
            self.left_out += 1
            return
        self._num_blocks += blocks
        self._pending_tokens += len(tokens)
        self._lines[number] = _Traced(time.time(), len(tokens), array("i"))
        # Prompts share blocks only where the prefix cache would.
        cache_salt = submission.caller.cache_salt(submission.cache_salt)
        self._pending.append((number, cache_salt.encode(), tokens))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._hash(), name="load-trace")

    def ended(self, row: Row) -> None:
        """Note a request's output. Only its total is known, so its prompts get equal parts."""
        numbers = self._lines_of.pop(row.request_id, [])
        for place, number in enumerate(numbers):
            traced = self._lines.get(number)
            if traced is not None:
                traced.output_length = (row.output_tokens + place) // len(numbers)

    async def _hash(self) -> None:
        while self._pending:
            number, cache_salt, tokens = self._pending.popleft()
            traced = self._lines.get(number)
            if traced is not None and not await self._number(traced.blocks, cache_salt, tokens):
                self._lines.pop(number, None)
                self.left_out += 1
            self._pending_tokens -= len(tokens)
            await my_turn()
        if not self.is_recording:
            self._forget()

    async def _number(self, blocks: array[int], cache_salt: bytes, tokens: list[int]) -> bool:
        """Append the numbers of a prompt's blocks. False: there are too many different ones."""
        digest = blake2b(cache_salt, key=self._salt, digest_size=_DIGEST_BYTES).digest()
        size, whole = BLOCK_TOKENS * 8, len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
        for start in range(0, whole, _BLOCKS_AT_ONCE * BLOCK_TOKENS):
            end = min(whole, start + _BLOCKS_AT_ONCE * BLOCK_TOKENS)
            packed = array("q", tokens[start:end]).tobytes()
            for at in range(0, len(packed), size):
                block = digest + packed[at : at + size]
                digest = blake2b(block, key=self._salt, digest_size=_DIGEST_BYTES).digest()
                blocks.append(self._numbers.setdefault(digest, len(self._numbers)))
            if len(self._numbers) > _MOST_NUMBERS:
                return False
            await my_turn()
        return True

    async def hashed(self) -> None:
        """Return when every prompt so far has its numbers."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def lines(self) -> Iterator[bytes]:
        """Yield the file, a line for each prompt whose request has ended, in the order of arrival.
        Call ``hashed`` before."""
        for traced in list(self._lines.values()):
            if traced.output_length is not None:
                line = TracedRequest(
                    round((traced.arrival - self._began) * 1e3),
                    traced.input_length,
                    traced.output_length,
                    traced.blocks.tolist(),
                )
                yield _encoder.encode(line) + b"\n"
