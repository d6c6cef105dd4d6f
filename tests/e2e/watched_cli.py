"""``python -m tests.e2e.watched_cli serve``: the server with ``tests.e2e.watched_worker``."""

from __future__ import annotations

import sys
from typing import Any

from service import cli
from service.supervision import child, child_process


def spawn(module: str, *args: Any, **kwargs: Any) -> int:
    replaced = "tests.e2e.watched_worker" if module == "service.worker" else module
    return child_process.spawn(replaced, *args, **kwargs)


if __name__ == "__main__":
    child.spawn = spawn
    sys.exit(cli.main())
