"""Finds the request that kills engines, while other requests only lose time.

When an engine dies, each sequence that it was running but had generated no token for is a suspect.
(So is one with tokens, once ``LATE_DEATHS`` engines have died in the middle of its text, and one
that was only queued while two died.) The next engine gets the others first; then the suspects are
on trial, one at a time, until each has a token and is trusted again. The sequence on trial when an
engine dies is accused: its next trial comes before all others are handed over, with nothing else in
the engine. If that engine dies too, the request is convicted (the fourth time, if its trial takes
more than one token): it is rejected for an hour, from any client and with any seed.

So a death with another cause (a kill, a lost device) convicts no request, unless it happens
repeatedly just while the same sequence is on trial.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable

import msgspec

from engine.messages import Generate, Submit
from service.engine.convictions import MOST_REMEMBERED, REMEMBERED_SECONDS, Convictions
from service.engine.sequence import EngineSequence
from service.errors import CrashingRequestError

LATE_DEATHS = 4
WAITING_DEATHS = 2
_MOST_TRIAL_TOKENS = 256
# For trials longer than one token, during which an engine may also die by chance.
_LONG_TRIALS = 3


def fingerprint(message: Submit) -> bytes:
    """Return a digest of the prompt and parameters that is the same for every client. The seed is
    excluded, because it changes when a client retries."""
    task = message.task
    if isinstance(task, Generate):
        asked: object = msgspec.structs.replace(task.params, seed=0)
    else:
        asked = (task.second_text, task.dimensions, task.activate)
    # With keys as strings, because msgspec sorts no others (logit_bias has numbers).
    asked = msgspec.to_builtins(asked, str_keys=True, order="deterministic")
    data = msgspec.msgpack.encode((message.prompt_token_ids, asked))
    return hashlib.blake2b(data, digest_size=16).digest()


class _Memory:
    """Fingerprints of the last hour; the oldest are dropped when there are too many."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[bytes, tuple[float, int]] = {}  # expiry time and count

    def __bool__(self) -> bool:
        return bool(self._entries)

    def count(self, digest: bytes) -> int:
        """Return how often it was added."""
        expiry, count = self._entries.get(digest, (0.0, 0))
        return count if expiry > self._clock() else 0

    def add(self, digest: bytes) -> None:
        count = self.count(digest)
        self._entries.pop(digest, None)
        while len(self._entries) >= MOST_REMEMBERED:
            del self._entries[next(iter(self._entries))]
        self._entries[digest] = self._clock() + REMEMBERED_SECONDS, count + 1

    def discard(self, digest: bytes) -> None:
        self._entries.pop(digest, None)


class Suspects:
    """Call ``engine_died`` after each death and ``acquit`` after each trial. Holds no engine.
    ``convictions``: those of all workers."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        convictions: Convictions | None = None,
    ) -> None:
        self._accused = _Memory(clock)
        self._convicted = Convictions(clock=clock) if convictions is None else convictions

    def check(self, message: Submit) -> None:
        """Raise CrashingRequestError for a convicted request."""
        if self._convicted and fingerprint(message) in self._convicted:
            raise crashing_request()

    def is_accused(self, sequence: EngineSequence) -> bool:
        return bool(self._accused) and self._accused.count(_digest(sequence)) > 0

    def acquit(self, sequence: EngineSequence) -> None:
        """Trust a sequence again that has passed its trial."""
        sequence.trial_tokens = sequence.late_deaths = sequence.waiting_deaths = 0
        if self._accused:
            self._accused.discard(_digest(sequence))

    def engine_died(
        self,
        at_work: Iterable[EngineSequence],
        waiting: Iterable[EngineSequence],
        *,
        tried: EngineSequence | None = None,
        alone: bool = False,
    ) -> bool:
        """Process the death of an engine that was running ``at_work`` and had queued ``waiting``.
        ``tried`` was on trial, with nothing else in the engine if ``alone``. Returns True if it was
        convicted."""
        admitted, queued = list(at_work), list(waiting)
        for sequence in admitted:
            sequence.deaths += 1
            if sequence is tried:
                continue
            if sequence.life_tokens == 0:
                sequence.trial_tokens = max(sequence.trial_tokens, 1)
            elif tried is None:
                sequence.late_deaths += 1
                if sequence.late_deaths >= LATE_DEATHS:
                    # A little longer than the engine lasted.
                    needed = min(2 * sequence.life_tokens + 8, _MOST_TRIAL_TOKENS)
                    sequence.trial_tokens = max(sequence.trial_tokens, needed)
        for sequence in queued:
            sequence.deaths += 1
            sequence.waiting_deaths += 1
            if sequence.waiting_deaths >= WAITING_DEATHS or not admitted:
                sequence.trial_tokens = max(sequence.trial_tokens, 1)
        if tried is None:
            return False
        digest = _digest(tried)
        needed = 1 if tried.trial_tokens <= 1 else _LONG_TRIALS
        if not alone or self._accused.count(digest) < needed:
            self._accused.add(digest)
            return False
        self._accused.discard(digest)
        self._convicted.add(digest)
        for sequence in (*admitted, *queued):  # the cause of their deaths is now known
            sequence.late_deaths = sequence.waiting_deaths = 0
            sequence.trial_tokens = min(sequence.trial_tokens, 1)
        return True

    def is_convicted(self, sequence: EngineSequence) -> bool:
        return bool(self._convicted) and _digest(sequence) in self._convicted


def crashing_request() -> CrashingRequestError:
    return CrashingRequestError(
        "The engine died each time it ran this request, the last time alone. It is refused "
        "for an hour: do not retry it; change the prompt or the parameters."
    )


def _digest(sequence: EngineSequence) -> bytes:
    assert sequence.message is not None
    return fingerprint(sequence.message)
