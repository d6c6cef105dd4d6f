"""Passes the faults to inject on to the child processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.faults.page import FaultPage
from engine.faults.table import Fault
from observability.logging import get_logger
from service.supervision.runtime_directory import FAULTS_FILE

_log = get_logger()


def fault_arguments(directory: Path, faults: Sequence[Fault]) -> list[str]:
    """Return the children's arguments: none without faults. Raises OSError if their file cannot be
    written to ``directory``."""
    if not faults:
        return []
    path = directory / FAULTS_FILE
    FaultPage.create(path, faults)
    for fault in faults:
        _log.warning("this server injects a fault into itself", fault=fault.name)
    return [f"--faults={path}"]
