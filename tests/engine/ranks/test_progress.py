"""Loading is reported once for all ranks, and never goes back."""

from __future__ import annotations

from engine.ranks.progress import LoadingProgress


def test_the_slowest_rank_s_phase_is_reported_with_the_progress_of_all() -> None:
    told: list[tuple[str, int, int]] = []
    progress = LoadingProgress(2, lambda *call: told.append(call))
    progress.update(0, "config", 1, 1)
    progress.update(1, "config", 1, 1)
    progress.update(0, "weights", 50, 100)
    progress.update(1, "weights", 10, 100)
    progress.update(0, "weights", 100, 100)
    progress.update(0, "kv_cache", 0, 1)  # it waits there: the other still reads
    progress.update(1, "weights", 60, 100)
    progress.update(1, "kv_cache", 0, 1)
    progress.finish()
    progress.update(1, "kv_cache", 1, 1)
    assert told == [
        ("config", 0, 1),
        ("config", 1, 1),
        ("weights", 30, 100),
        ("weights", 55, 100),
        ("weights", 80, 100),
        ("kv_cache", 0, 1),
    ]
