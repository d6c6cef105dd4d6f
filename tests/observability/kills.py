"""The state that a SIGKILL between any two lines of a module leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def states_between_lines(
    work: Callable[[], object], state: Callable[[], bytes], *modules: ModuleType
) -> list[bytes]:
    """Every different ``state`` before, after and between the lines of ``modules`` that ``work``
    runs."""
    files = {module.__file__ for module in modules}
    seen = [state()]

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if (now := state()) != seen[-1]:
            seen.append(now)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        work()
    finally:
        sys.settrace(before)
    if (now := state()) != seen[-1]:
        seen.append(now)
    return seen
