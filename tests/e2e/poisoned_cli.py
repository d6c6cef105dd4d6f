"""``python -m tests.e2e.poisoned_cli serve``: the server with an engine that dies of some requests
(``tests.e2e.poisoned_engine``)."""

from __future__ import annotations

import sys
from typing import Any

from service import cli
from service.supervision import child, child_process


def spawn(module: str, *args: Any, **kwargs: Any) -> int:
    replaced = "tests.e2e.poisoned_engine" if module == "engine" else module
    return child_process.spawn(replaced, *args, **kwargs)


if __name__ == "__main__":
    child.spawn = spawn
    sys.exit(cli.main())
