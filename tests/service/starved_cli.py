"""``python -m tests.service.starved_cli serve``: the server, of whose attempts to start a child one
fails: the one with the number in STARVED_START."""

from __future__ import annotations

import errno
import itertools
import os
import sys

from service import cli
from service.supervision import child
from service.supervision.child_process import spawn

_numbers = itertools.count(1)


def _spawn(*args: object, **kwargs: object) -> int:
    if next(_numbers) == int(os.environ["STARVED_START"]):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return spawn(*args, **kwargs)  # type: ignore[arg-type]


if __name__ == "__main__":
    child.spawn = _spawn  # type: ignore[attr-defined]
    sys.exit(cli.main())
