"""``quire pull``, and the process that downloads for ``quire serve``."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars

from observability.logging import get_logger
from observability.terminal import for_terminal
from service.hub.errors import HubError, HubUnreachableError
from service.hub.fetching import Fetched, Fetching
from service.hub.kept import adopt
from service.hub.place import ModelPlace, is_commit
from service.hub.problems import explained
from service.hub.progress import LogLines, Report, TerminalBar
from service.hub.units import in_units

_log = get_logger()


class FirstFiles(msgspec.Struct, frozen=True):
    """What the process that fetched all but the weights prints. ``is_whole``: the weights are there
    too, and right."""

    commit: str
    directory: str
    is_whole: bool


def quiet_library() -> None:
    """Have the library write nothing itself, one line is better than eight bars, and send the hub
    nothing about this machine."""
    disable_progress_bars()
    for name in ("huggingface_hub", "httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"huggingface_hub(\.|$)")
    constants.HF_HUB_DISABLE_TELEMETRY = True


def end_at_signals() -> None:
    """Have the signals that stop a process end this one at once. As process 1 of a container it
    would ignore them, and an interpreter that ends by itself waits for transfers in threads."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: os._exit(128 + received))


def pull(place: ModelPlace, check: Callable[[Path], None], *, if_missing: bool = False) -> int:
    """Have the whole model in the cache. ``check``: raises HubError for a directory, with all but
    the weights, whose weights need not be downloaded. ``if_missing``: ask the hub only if the model
    is not there; a commit, which cannot change, never needs asking. Returns the exit status;
    transfers may continue in threads after a failure."""
    return _run(place, lambda: _pull(place, check, if_missing=if_missing))


def _pull(place: ModelPlace, check: Callable[[Path], None], *, if_missing: bool) -> None:
    keeps = if_missing or is_commit(place.revision)
    directory = place.whole_snapshot() if keeps else None
    if directory is None:
        reports, end = _shown(place)
        try:
            directory = _fetched(Fetching(place, check=check, reports=reports), place)
        finally:
            end()
    commit = directory.name
    record = place.record(commit)
    size = in_units(sum(file.size for file in record.files.values()))
    all_known = "" if record.is_whole else "; the hub was not asked whether this is complete"
    print(
        f"{place.asked} at commit {commit}: {len(record.files)} files, {size}, all checksums "
        f"right, in {directory}{all_known}",
        flush=True,
    )


def _fetched(fetching: Fetching, place: ModelPlace) -> Path:
    try:
        return fetching.run().directory
    except HubUnreachableError as error:
        directory = adopt(place)
        if directory is None:
            raise
        _log.warning("the copy in the cache is used", model=place.name, reason=str(error))
        return directory


def first_files(place: ModelPlace, *, needs_weights: bool) -> int:
    """Have everything but the weights, and print ``FirstFiles``; a GGUF model is needed whole.
    Returns the exit status."""
    reports, end = ((), lambda: None) if place.variant is None else _shown(place)

    def run() -> None:
        fetching = Fetching(
            place,
            weights=place.variant is not None,
            needs_weights=needs_weights,
            reports=reports,
        )
        try:
            fetched = fetching.run()
        except HubUnreachableError as error:
            directory = adopt(place)
            if directory is None:
                raise
            _log.warning("the copy in the cache is used", model=place.name, reason=str(error))
            fetched = Fetched(directory.name, directory, True, 0, 0)
        finally:
            end()
        found = FirstFiles(fetched.commit, str(fetched.directory), fetched.is_whole)
        print(msgspec.json.encode(found).decode(), flush=True)

    return _run(place, run)


def rest(place: ModelPlace, report: Report) -> int:
    """Have the weights too, for a server that shows how far they are. Returns the exit status."""
    reports, end = _shown(place)

    def run() -> None:
        try:
            _fetched(Fetching(place, reports=(report, *reports)), place)
        finally:
            end()

    return _run(place, run)


def _run(place: ModelPlace, work: Callable[[], None]) -> int:
    quiet_library()
    try:
        work()
    except HubError as error:
        print(f"quire: {for_terminal(str(error))}", file=sys.stderr, flush=True)
        return 1
    except OSError as error:
        problem = explained(error, place, has_token=False)
        print(f"quire: {for_terminal(str(problem))}", file=sys.stderr, flush=True)
        return 1
    return 0


def _shown(place: ModelPlace) -> tuple[Sequence[Report], Callable[[], None]]:
    """Return how people see the progress, and what ends it."""
    if sys.stderr.isatty():
        bar = TerminalBar(place.name)
        return (bar,), bar.end
    return (LogLines(place.name),), lambda: None
