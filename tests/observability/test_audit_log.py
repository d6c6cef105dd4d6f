"""Audit rows in a separate file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from observability.admin_api import AuditRow
from observability.audit_log import AUDIT_LOG_EVENT, AppendedFile, AuditLog
from observability.logging import configure
from tests.observability.test_logging import Lines


def row(target: str = "log_level") -> AuditRow:
    return AuditRow(
        time=1_790_000_000.5,
        actor="night-shift",
        address="127.0.0.1",
        action="change setting",
        target=target,
        before="info",
        after="debug",
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_is_a_line_that_only_the_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    audit.write(row())
    audit.write(row("slo_ttft"))
    audit.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, second = lines(path)
    assert second["target"] == "slo_ttft"
    assert first == {
        "ts": "2026-09-21T14:13:20.500000+00:00",
        "actor": "night-shift",
        "address": "127.0.0.1",
        "action": "change setting",
        "target": "log_level",
        "before": "info",
        "after": "debug",
        "result": "done",
    }
    assert audit.dropped == 0


def test_rows_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for _ in range(2):
        audit = AuditLog(path)
        audit.write(row())
        audit.close()
    assert len(lines(path)) == 2


def test_a_file_that_was_renamed_is_opened_again(tmp_path: Path) -> None:
    path, rotated = tmp_path / "audit.log", tmp_path / "audit.log.1"
    file = AppendedFile(path)
    file.write(b"one\n")
    os.rename(path, rotated)
    file.write(b"two\n")
    path.unlink()
    file.write(b"three\n")
    assert (rotated.read_text(), path.read_text()) == ("one\n", "three\n")


def test_rows_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    audit = AuditLog(folder / "audit.log")
    (folder / "audit.log").unlink()
    folder.rmdir()
    audit.write(row())
    audit.close()
    assert audit.dropped == 1


def test_while_it_cannot_be_opened_no_other_file_is_closed_or_written(tmp_path: Path) -> None:
    folder, other = tmp_path / "logs", tmp_path / "other"
    folder.mkdir()
    file = AppendedFile(folder / "audit.log")
    (folder / "audit.log").unlink()
    folder.rmdir()
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    with pytest.raises(FileNotFoundError):
        file.write(b"one\n")
    opened = [os.open(other, os.O_WRONLY | os.O_CREAT) for _ in range(5)]
    with pytest.raises(FileNotFoundError):
        file.write(b"two\n")
    for descriptor in opened:
        os.fstat(descriptor)
        os.close(descriptor)
    folder.mkdir()
    file.write(b"three\n")
    assert (folder / "audit.log").read_text() == "three\n"
    assert other.read_bytes() == b""
    [line] = stream.read_all(writer)  # not one for each row
    assert line["event"] == "the audit log cannot be written"


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AuditLog(tmp_path / "missing" / "audit.log")


def test_without_a_file_rows_are_log_lines() -> None:
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    AuditLog().write(row())
    (line,) = stream.read_all(writer)
    assert line["event"] == AUDIT_LOG_EVENT
    assert line["target"] == "log_level"
