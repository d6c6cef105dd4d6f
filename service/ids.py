"""The ids of requests, responses and streams: made here, and read here.

On a server with several API workers, the first two digits of an id say which worker made it, so
that every worker that gets it in a request knows where to look.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

MOST_NUMBERED = 256  # two hexadecimal digits
_MADE = re.compile(r"[a-z]+[-_]([0-9a-f]{2})[0-9a-f]{30}")


@dataclass(frozen=True, slots=True)
class Ids:
    """Makes the ids of worker ``worker`` of ``workers``. With only one, all digits are random."""

    worker: int = 0
    workers: int = 1

    def new(self, prefix: str) -> str:
        """Return a new id: ``prefix`` and 32 hexadecimal digits."""
        digits = uuid.uuid4().hex
        return f"{prefix}{digits if self.workers == 1 else f'{self.worker:02x}{digits[2:]}'}"

    def made_here(self, identity: str) -> bool:
        """True if this worker of several made the id."""
        made = _MADE.fullmatch(identity)
        return self.workers > 1 and made is not None and int(made[1], 16) == self.worker

    def other_worker(self, identity: str) -> int | None:
        """Return the worker that made this id; None if it was this one or none of this server.

        An id that another server made may seem to be of one of these workers.
        """
        if self.workers == 1:
            return None
        made = _MADE.fullmatch(identity)
        worker = self.worker if made is None else int(made[1], 16)
        return worker if worker != self.worker and worker < self.workers else None
