"""Audit rows as JSON lines: in a separate file, or among the log lines if there is none."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import msgspec

from observability.admin_api import AuditRow
from observability.logging import LineWriter, get_logger

AUDIT_LOG_EVENT = "audit"

_log = get_logger()


class AppendedFile:
    """A file that other programs may rename or delete to rotate it: before each write it is opened
    again if its path names another file. Writes to it block. Raises OSError if it cannot be
    opened. When writes begin to fail, an error is logged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()
        self._fails = False

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes | memoryview) -> int:
        """Return how many bytes were written. Raises OSError."""
        try:
            self._follow_path()
            written = os.write(self._descriptor, data)
        except OSError as error:
            if not self._fails:
                _log.error(
                    "the audit log cannot be written", path=str(self._path), error=str(error)
                )
            self._fails = True
            raise
        self._fails = False
        return written

    def _follow_path(self) -> None:
        if not self._is_current():
            opened = self._open()  # first: a closed descriptor's number may name another file
            os.close(self._descriptor)
            self._descriptor = opened

    def flush(self) -> None:
        """Nothing is held back."""

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False


class AuditLog:
    """``path``: None for the log. A thread writes, so that a slow disk delays no request. Raises
    OSError if the file cannot be opened."""

    def __init__(self, path: Path | None = None) -> None:
        self._writer = None if path is None else LineWriter(AppendedFile(path))

    @property
    def dropped(self) -> int:
        """Rows that could not be written."""
        return 0 if self._writer is None else self._writer.dropped

    def write(self, row: AuditRow) -> None:
        """Append a row. Never blocks."""
        values = msgspec.structs.asdict(row)
        moment = datetime.datetime.fromtimestamp(values.pop("time"), datetime.UTC)
        if self._writer is None:
            _log.info(AUDIT_LOG_EVENT, **values)
        else:
            self._writer.write(msgspec.json.encode({"ts": moment.isoformat(), **values}))

    def close(self) -> None:
        """Write what is queued, for at most a second."""
        if self._writer is not None:
            self._writer.close()
