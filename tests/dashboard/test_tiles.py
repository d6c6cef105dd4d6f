"""What the tiles say, and when they turn amber or red."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dashboard.condition import Level
from dashboard.reading import Quantiles, Reading
from dashboard.tiles import Tile, as_html, bucket_quantile, tiles
from observability.outcomes import OUTCOMES, WAITING_REASONS, Outcome, OutcomeGroup
from tests.dashboard.test_reading import Server

IDLE: dict[str, Any] = {
    "running": 0.0,
    "waiting": dict.fromkeys(WAITING_REASONS, 0.0),
    "in_progress": 0.0,
    "kv_ratio": 0.0,
    "kv_blocks": {"free": 100.0, "cached": 0.0, "active": 0.0},
    "prompt_computed": 0.0,
    "prompt_cached": 0.0,
    "generated": 0.0,
    "preemptions": 0.0,
    "requests": {"stop": 0.0},
}


def reading(**known: Any) -> Reading:
    return replace(Server().read(), **IDLE | known)


def tile(label: str, **known: Any) -> Tile:
    engine = {"max_num_seqs": "64"}
    (found,) = (t for t in tiles(reading(**known), engine) if t.label.startswith(label))
    return found


def test_an_idle_server_is_calm_and_says_that_there_is_no_traffic() -> None:
    shown = tiles(reading(), {})
    assert {tile.level for tile in shown} == {Level.CALM}
    assert "no traffic in the last 30 s" in tile("First token").notes
    assert "no traffic in the last 10 s" in tile("Requests").notes


@pytest.mark.parametrize("label", ["Generated", "Prompt", "First token", "Between", "Requests"])
def test_rates_of_0_are_no_missing_traffic_while_requests_are_in_progress(label: str) -> None:
    shown = tile(label, in_progress=20.0, running=20.0)
    assert "20 requests in flight" in shown.notes
    assert "traffic" not in " ".join(shown.notes)


def test_a_gap_that_is_open_now_is_told_and_turns_the_tile_red() -> None:
    shown = tile("Between", in_progress=20.0, longest_gap=12.0)
    assert shown.notes[0] == "gap now 12 s"
    assert len(shown.notes) <= 2  # more would not fit the tile
    assert shown.level is Level.CRITICAL
    assert tile("Between", longest_gap=0.02).level is Level.CALM


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.name)
def test_only_answers_are_called_answered(outcome: Outcome) -> None:
    shown = tile("Requests", requests={outcome.name: 2.0})
    is_answer = outcome.group is OutcomeGroup.ANSWERED
    assert (shown.notes == ("all answered",)) == is_answer
    assert is_answer or shown.notes == (f"2.00 /s {outcome.group.value}",)


@pytest.mark.parametrize(
    ("requests", "level"),
    [
        ({"stop": 100.0, "client_gone": 50.0}, Level.CALM),
        ({"stop": 99.5, "refused:overloaded": 0.5}, Level.CALM),
        ({"stop": 95.0, "refused:overloaded": 5.0}, Level.WARNING),
        ({"stop": 14.0, "refused:overloaded": 170.0}, Level.CRITICAL),
        ({"refused:unauthorized": 0.2}, Level.CALM),  # two in ten seconds
        ({"refused:unauthorized": 0.3}, Level.CRITICAL),
        ({"stop": 999.0, "error:engine": 1.0}, Level.WARNING),
        ({"stop": 90.0, "error:engine": 10.0}, Level.CRITICAL),
    ],
)
def test_refusals_and_failures_turn_amber_and_red(requests: dict[str, float], level: Level) -> None:
    assert tile("Requests", requests=requests).level is level


def test_what_arrives_is_shown_where_it_is_counted() -> None:
    assert tile("Requests", requests={"stop": 1.0}, received=7.0).value == "7.00 /s"


@pytest.mark.parametrize("reason", WAITING_REASONS)
def test_every_reason_for_waiting_is_said_in_words(reason: str) -> None:
    waiting = {**dict.fromkeys(WAITING_REASONS, 0.0), reason: 3.0}
    shown = tile("Waiting", waiting=waiting, oldest_waiting=6.0)
    assert shown.notes == ("oldest 6.0 s", WAITING_REASONS[reason])
    assert shown.level is Level.CRITICAL


def test_an_older_server_tells_no_age_of_what_waits() -> None:
    shown = tile("Waiting", waiting={"slots": 3.0})
    assert (shown.notes, shown.level) == ((WAITING_REASONS["slots"],), Level.CALM)


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.5, Level.CALM), (0.9, Level.WARNING), (0.99, Level.CRITICAL)]
)
def test_a_full_kv_cache_turns_amber_then_red(ratio: float, level: Level) -> None:
    assert tile("KV cache", kv_ratio=ratio).level is level


def test_a_full_batch_is_amber_only_while_others_wait() -> None:
    assert tile("Running", running=64.0).level is Level.CALM
    assert tile("Running", running=64.0, waiting={"slots": 1.0}).level is Level.WARNING
    assert tile("Running", running=64.0).value == "64 / 64"


def test_a_percentile_of_buckets_has_two_digits_and_says_that_it_is_about() -> None:
    shown = tile("First token", generated=1.0, ttft=Quantiles(1.234, 2.824, 700.0))
    assert shown.value == "≈2.8 s"
    assert shown.notes == ("p50 ≈1.2 s", "p99 >600 s")
    assert shown.level is Level.WARNING
    assert bucket_quantile(math.nan, 600.0) == "–"


def test_what_is_shown_cannot_be_markup() -> None:
    drawn = as_html([Tile("<b>", "1 <i>", ("<script>",), Level.CRITICAL)], old=True)
    assert "<script>" not in drawn
    assert "<i>" not in drawn
    assert "over a limit" in drawn
    assert "quire-old" in drawn
