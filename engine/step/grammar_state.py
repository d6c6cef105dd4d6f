"""One sequence's way through its grammar."""

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

# A mask that took longer makes its sequence slow: steps do not wait for it any more.
SLOW_SECONDS = 0.005
# So many quick masks in a row make it quick again.
_QUICK_AGAIN = 32
# What one piece of work may take before the sequence is given up.
PATIENCE_SECONDS = 5.0


class GrammarError(RefusedError):
    """The grammar cannot be compiled, or led nowhere; the message says why."""


class Phase(enum.Enum):
    WORKING = "working"  # a thread compiles the grammar, or works out what may come next
    READY = "ready"  # ``mask`` says what may come next
    COMPLETE = "complete"  # the text is whole: nothing may come
    FAILED = "failed"  # ``error`` says why


class GrammarState:
    """Where a sequence stands in its grammar.

    The engine's thread starts a piece of work (``begin_work``); one other thread does it and ends
    it (``allow``, ``complete`` or ``fail``); between the two the engine's thread only reads
    ``phase``. Everything else belongs to whoever works.
    """

    __slots__ = (
        *("_done", "_quick", "_since", "awaited", "error", "grammar", "is_slow", "mask"),
        *("matcher", "phase", "stops"),
    )

    def __init__(self, grammar: str, stops: frozenset[int]) -> None:
        """``stops``: the end-of-sequence tokens that end this sequence."""
        self.grammar = grammar
        self.stops = stops
        self.phase = Phase.READY
        self.mask: TokenMask | None = None
        self.error = ""
        self.matcher: LLMatcher | None = None  # None: still at the grammar's start
        self.awaited = False  # the engine has nothing to do before this work ends
        self.is_slow = False
        self._quick = 0
        self._since = 0.0
        self._done = threading.Event()

    # --- the engine's thread -----------------------------------------------------------------

    def begin_work(self, *, queued: bool = False) -> None:
        """``queued``: it has to wait for others' work first; ``leave_queue`` tells of its end."""
        self._since = math.inf if queued else time.monotonic()
        self._done.clear()
        self.phase = Phase.WORKING

    def leave_queue(self) -> None:
        """The work on it begins: its time counts from now on. For any thread."""
        self._since = time.monotonic()

    @property
    def is_working(self) -> bool:
        return self.phase is Phase.WORKING

    @property
    def is_overdue(self) -> bool:
        return self.is_working and time.monotonic() - self._since > PATIENCE_SECONDS

    def wait(self, until: float) -> bool:
        """Whether the work was done before ``until``, in monotonic seconds. If not, the sequence
        is slow from now on, and steps no longer wait for it."""
        if not self.is_working or self._done.wait(max(until - time.monotonic(), 0.0)):
            return True
        self.is_slow = True
        return False

    # --- who works ---------------------------------------------------------------------------

    def allow(self, allowed: Allowed, mask: TokenMask) -> None:
        """``mask``: those allowed besides the end-of-sequence tokens that do not end this
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
