"""What several workers saw, joined."""

from __future__ import annotations

import msgspec

from service.overview.joined_snapshot import joined_held, joined_snapshot, largest_holder
from service.overview.snapshot import OneEngine, Snapshot

# What all workers see alike, or what is not simply added or the largest.
SHARED = {
    *("engine", "detail", "problem", "expects_engine", "load_seconds", "killed_after", "running"),
    *("max_running", "waiting_reason", "kv_active", "kv_blocks", "recomputed_share"),
    *("prompt_tokens", "output_tokens", "longest_step", "refused", "refused_share"),
    *("refused_outcome", "draining", "engines", "predicted_wait", "longest_prefill"),
    *("longest_prefill_tokens", "since_request", "largest_holder", "largest_holder_share"),
}


def test_every_number_is_joined_or_the_same_for_all() -> None:
    """A new field is in one of the three."""
    numbers = [one.name for one in msgspec.structs.fields(Snapshot) if one.name not in SHARED]
    one, other = (
        Snapshot(engine="ok", **dict.fromkeys(numbers, value))  # type: ignore[arg-type]
        for value in (2, 3)
    )
    joined = joined_snapshot([one, other], one)
    assert {getattr(joined, name) for name in numbers} == {3, 5}
    assert joined == joined_snapshot([other, one], one)


def test_an_engine_is_as_its_worst_and_has_the_sequences_of_all() -> None:
    """Whose loss one worker notices first."""
    seen = [
        Snapshot(
            engine="ok", engines=(OneEngine(status="ok"), OneEngine(status="ok", sequences=3))
        ),
        Snapshot(
            engine="ok",
            engines=(OneEngine(status="ok"), OneEngine(status="lost", detail="gone", sequences=4)),
        ),
    ]
    expected = OneEngine(status="lost", detail="gone", sequences=7)
    for order in (seen, seen[::-1]):
        assert joined_snapshot(order, order[0]).engines[1] == expected


def test_the_longest_prefill_keeps_its_tokens() -> None:
    seen = [
        Snapshot(engine="ok", longest_prefill=1.0, longest_prefill_tokens=9000),
        Snapshot(engine="ok", longest_prefill=2.0, longest_prefill_tokens=5000),
    ]
    joined = joined_snapshot(seen, seen[0])
    assert (joined.longest_prefill, joined.longest_prefill_tokens) == (2.0, 5000)


def test_tokens_of_no_key_count_but_have_no_name() -> None:
    held = joined_held([{"ann": 100, "": 300}, {"ann": 100, "bob": 100}])
    assert held == {"ann": 200, "bob": 100, "": 300}
    assert largest_holder(held) == ("ann", 200 / 600)
    assert largest_holder({"": 5}) == largest_holder({}) == (None, 0.0)
