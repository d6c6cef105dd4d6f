"""The position of one sequence in its grammar."""

from __future__ import annotations

import enum
import math
import threading
import time
from typing import TYPE_CHECKING

from engine.errors import RefusedError
from engine.step.mask import Allowed, TokenMask

if TYPE_CHECKING:
    from llguidance import LLMatcher

# A slower mask makes its sequence slow: steps no longer wait for it.
SLOW_SECONDS = 0.005
# After this many quick masks in a row it is no longer slow.
_QUICK_AGAIN = 32
# Maximum duration of one piece of work before the sequence fails.
PATIENCE_SECONDS = 5.0


class GrammarError(RefusedError):
    """The grammar cannot be compiled, or leads nowhere; the message says why."""


class Phase(enum.Enum):
    WORKING = "working"  # a thread compiles the grammar, or computes what may come next
    READY = "ready"  # ``mask`` has the tokens that may come next
    COMPLETE = "complete"  # the text is complete: nothing may follow
    FAILED = "failed"  # ``error`` has the reason


class GrammarState:
    """The position of a sequence in its grammar.

    The engine's thread starts a piece of work (``begin_work``); one other thread does it and ends
    it (``allow``, ``complete`` or ``fail``); in between, the engine's thread only reads ``phase``,
    and calls ``abandon`` if the sequence ends. Everything else belongs to the thread doing the
    work.
    """

    __slots__ = (
        *("_done", "_quick", "_since", "awaited", "error", "grammar", "is_abandoned"),
        *("is_slow", "mask", "matcher", "phase", "stops"),
    )

    def __init__(self, grammar: str, stops: frozenset[int]) -> None:
        """``stops``: the end-of-sequence tokens that end this sequence."""
        self.grammar = grammar
        self.stops = stops
        self.phase = Phase.READY
        self.mask: TokenMask | None = None
        self.error = ""
        self.matcher: LLMatcher | None = None  # None: still at the grammar's start
        self.awaited = False  # the engine is idle until this work ends
        self.is_slow = False
        self.is_abandoned = False
        self._quick = 0
        self._since = 0.0
        self._done = threading.Event()

    # --- the engine's thread -----------------------------------------------------------------

    def begin_work(self, *, queued: bool = False) -> None:
        """Start a piece of work. ``queued``: see ``join_queue``."""
        self._since = math.inf if queued else time.monotonic()
        self._done.clear()
        self.phase = Phase.WORKING

    def join_queue(self) -> None:
        """Stop measuring time, as the work has to wait for others'. Like ``leave_queue`` it may be
        called from any thread."""
        self._since = math.inf

    def leave_queue(self) -> None:
        """Start measuring time, as the work begins now."""
        self._since = time.monotonic()

    def abandon(self) -> None:
        """Its sequence has ended: work not yet done may be skipped."""
        self.is_abandoned = True

    @property
    def is_working(self) -> bool:
        return self.phase is Phase.WORKING

    @property
    def is_overdue(self) -> bool:
        return self.is_working and time.monotonic() - self._since > PATIENCE_SECONDS

    def wait(self, until: float) -> bool:
        """True if the work was done before ``until``, in monotonic seconds. If not, the sequence
        becomes slow, and steps no longer wait for it."""
        if not self.is_working or self._done.wait(max(until - time.monotonic(), 0.0)):
            return True
        self.is_slow = True
        return False

    # --- the working thread -----------------------------------------------------------------------

    def allow(self, allowed: Allowed, mask: TokenMask) -> None:
        """``mask``: the allowed tokens, without those end-of-sequence tokens that do not end this
        sequence."""
        if mask.any():
            self.mask = mask
            self._end_work(Phase.READY)
        elif allowed.ends:
            self.complete()
        else:
            self.fail("the grammar leaves no token to choose from")

    def complete(self) -> None:
        self._end_work(Phase.COMPLETE)

    def fail(self, error: str) -> None:
        self.error = f"constraint: {error}"
        self._end_work(Phase.FAILED)

    def _end_work(self, phase: Phase) -> None:
        seconds = time.monotonic() - self._since
        if seconds > SLOW_SECONDS:
            self.is_slow, self._quick = True, 0
        elif self.is_slow:
            self._quick += 1
            self.is_slow = self._quick < _QUICK_AGAIN
        self.phase = phase
        self._done.set()
