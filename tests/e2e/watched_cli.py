"""``python -m tests.e2e.watched_cli serve``: the server with ``tests.e2e.watched_worker``. It may
have as many open files as ``WATCHED_FILES`` says."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from service import cli
from service.supervision import child, child_process


def spawn(module: str, *args: Any, **kwargs: Any) -> int:
    replaced = "tests.e2e.watched_worker" if module == "service.worker" else module
    return child_process.spawn(replaced, *args, **kwargs)


if __name__ == "__main__":
    if files := os.environ.get("WATCHED_FILES"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
    child.spawn = spawn
    sys.exit(cli.main())
