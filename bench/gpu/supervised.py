"""Runs the bench in a child process, since a kernel that hangs or writes where it must not takes
its process along: the row at fault becomes an error, and another child measures those that are
left. Whatever is measured before the time ends is in the file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

# The exit status of a child whose device no longer answers.
DEVICE_LOST: Final = 70
# How long a child may take, after its time, to write what it has.
_GRACE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.2


class UnderWay(NamedTuple):
    """A row that is being measured. ``until``: of ``time.monotonic``, which all processes share."""

    row: str
    until: float


def note_of(output: Path) -> Path:
    """Return the file that holds the row under way of a run that writes ``output``."""
    return output.with_suffix(".row")


@contextmanager
def under_way(output: Path, row: str, seconds: float) -> Iterator[None]:
    """Announce to the supervisor that a row begins, which may take that long."""
    note = note_of(output)
    note.parent.mkdir(parents=True, exist_ok=True)
    written = note.with_suffix(".row-new")
    written.write_text(json.dumps(UnderWay(row, time.monotonic() + seconds)))
    written.replace(note)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def supervise(
    command: Callable[[float, bool], list[str]],
    output: Path,
    until: float,
    add_error: Callable[[str, str], None],
) -> int:
    """Run children until one ends by itself, and return its exit status. ``command`` returns a
    child's, given the seconds that are left and whether rows have been measured before;
    ``add_error`` adds a row with an error to ``output``. ``until``: of ``time.monotonic``."""
    is_resumed = False
    note = note_of(output)
    note.unlink(missing_ok=True)
    while True:
        child = subprocess.Popen(
            command(max(0.0, until - time.monotonic()), is_resumed), start_new_session=True
        )
        try:
            late = _await(child, note, until + _GRACE_SECONDS)
        finally:
            _end(child)
        left = _read(note)
        if left is not None:
            why = late or f"its process ended with status {child.returncode}"
            add_error(left.row, why)
            note.unlink(missing_ok=True)
        if left is None and child.returncode != DEVICE_LOST:
            return child.returncode if child.returncode >= 0 else 1
        if time.monotonic() >= until:
            return 1
        is_resumed = True


def _await(child: subprocess.Popen[Any], note: Path, until: float) -> str:
    """Wait for the child's end. Return why it must be ended before, or nothing."""
    while child.poll() is None:
        now = time.monotonic()
        row = _read(note)
        if row is not None and now > row.until:
            return "it took far longer than such a row needs, so its process was ended"
        if now > until:
            return "no time left, so its process was ended"
        time.sleep(_POLL_SECONDS)
    return ""


def _end(child: subprocess.Popen[Any]) -> None:
    """End the child and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _read(note: Path) -> UnderWay | None:
    try:
        return UnderWay(*json.loads(note.read_text()))
    except FileNotFoundError:
        return None
