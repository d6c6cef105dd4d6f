from __future__ import annotations

from structlog.testing import capture_logs

from service.store.refused_rows import RefusedRows


def test_a_line_a_minute_counts_all_rows_since_the_one_before() -> None:
    now = 0.0
    refusals = RefusedRows("refused", clock=lambda: now)
    with capture_logs() as lines:
        refusals.note([])
        assert lines == []
        refusals.note(["first", "second"])
        now = 59.0
        refusals.note(["third"])
        now = 60.0
        refusals.note([])
        refusals.note(["fourth"])
    wrote = {"event": "refused", "log_level": "error"}
    assert lines == [
        {**wrote, "rows": 2, "error": "first"},
        {**wrote, "rows": 2, "error": "fourth"},
    ]
