"""Decides from heartbeats (``engine.beats``) whether a child process hangs. Without clock or I/O.

Only time during which the supervisor itself was running counts: after a container was frozen, a
machine suspended or the supervisor stopped, each child gets its full time again.
"""

from __future__ import annotations

from engine.beats import Page, Sign

ENGINE_TIMEOUT_SECONDS = 60.0
# A worker imports its libraries and reads the tokenizer before its first beat.
STARTING_FACTOR = 10.0


class Silence:
    """Measures how long a value has stayed the same. Call ``observe`` every ``tick`` seconds."""

    def __init__(self, tick: float) -> None:
        self._longest_step = 2 * tick
        self._value: object = None
        self._seconds = 0.0
        self._seen_at: float | None = None

    def observe(self, value: object, now: float) -> float:
        passed = 0.0 if self._seen_at is None else now - self._seen_at
        self._seen_at = now
        if value == self._value:
            self._seconds += min(passed, self._longest_step)
        else:
            self._value = value
            self._seconds = 0.0
        return self._seconds

    def forget(self) -> None:
        """Start over, because the process was replaced."""
        self._value = None
        self._seconds = 0.0


def worker_hangs(page: Page, silent: float, timeout: float) -> bool:
    """``silent``: seconds without a beat. ``timeout`` 0 disables the check."""
    if timeout == 0:
        return False
    return silent >= (timeout if page[Sign.READY_AT] else STARTING_FACTOR * timeout)


def engine_hangs(page: Page, silent: float, inactive: float, setting: float | None) -> bool:
    """``silent``: seconds without a beat. ``inactive``: seconds during which its main thread also
    used no CPU. ``setting``: seconds of silence allowed; None: 60, or longer if earlier steps took
    long; 0: never hangs. Loading may take any time."""
    if not page[Sign.READY_AT] or setting == 0:
        return False
    if setting is not None:
        return silent >= setting
    allowed = max(ENGINE_TIMEOUT_SECONDS, page[Sign.ALLOWED_SECONDS])
    return silent >= allowed or inactive >= ENGINE_TIMEOUT_SECONDS
