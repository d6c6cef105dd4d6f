"""Children learn of faults only on a server that injects some."""

from __future__ import annotations

from pathlib import Path

import structlog

from engine.faults.page import FaultPage
from engine.faults.table import Fault
from service.supervision.faults import fault_arguments


def test_a_server_without_faults_has_no_file_of_them(tmp_path: Path) -> None:
    assert fault_arguments(tmp_path, ()) == []
    assert not list(tmp_path.iterdir())


def test_children_get_the_file_and_the_log_a_warning_for_each(tmp_path: Path) -> None:
    faults = (Fault(name="engine_kill"), Fault(name="store_down"))
    with structlog.testing.capture_logs() as said:
        [argument] = fault_arguments(tmp_path, faults)
    flag, _, path = argument.partition("=")
    assert flag == "--faults"
    assert FaultPage(Path(path)).faults == faults
    assert [(line["log_level"], line["fault"]) for line in said] == [
        ("warning", "engine_kill"),
        ("warning", "store_down"),
    ]
