"""What a worker that cannot start writes for the supervisor."""

from __future__ import annotations

from pathlib import Path

from engine.beats import failure_path
from service.checkpoint.files import CheckpointError
from service.start_failure import report_failure


def test_only_what_a_sentence_explains_is_written_for_the_supervisor(tmp_path: Path) -> None:
    page = tmp_path / "worker-1.page"
    assert report_failure(RuntimeError("a bug"), str(page)) == 1
    assert list(tmp_path.iterdir()) == []
    assert report_failure(CheckpointError("tokenizer.json", "it is odd"), str(page)) == 1
    assert failure_path(page).read_text() == "tokenizer.json: it is odd"


def test_a_worker_without_a_supervisor_writes_nothing(tmp_path: Path) -> None:
    assert report_failure(CheckpointError("tokenizer.json", "it is odd"), None) == 1
