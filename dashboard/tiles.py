"""The live page's numbers: what is in each tile, and when it turns amber or red."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import observability.catalogue as catalogue
from dashboard.condition import Level
from dashboard.reading import QUANTILE_SECONDS, RATE_SECONDS, Quantiles, Reading
from dashboard.words import UNKNOWN, count, duration, number, percent
from observability.metric_kinds import Metric
from observability.outcomes import WAITING_REASONS, OutcomeGroup


@dataclass(frozen=True, slots=True)
class Limits:
    """From these values on a tile is amber or red."""

    warning: float
    critical: float

    def level(self, value: float) -> Level:
        if value >= self.critical:  # never true of NaN
            return Level.CRITICAL
        return Level.WARNING if value >= self.warning else Level.CALM


KV_LIMITS = Limits(0.85, 0.97)  # share of blocks held; at 1 sequences are preempted
OLDEST_WAIT_LIMITS = Limits(1.0, 5.0)  # seconds
GAP_LIMITS = Limits(1.0, 5.0)  # seconds without a token in the middle of an answer
REFUSED_LIMITS = Limits(0.01, 0.1)  # share of what ends
FEWEST_REFUSED = 3  # in RATE_SECONDS; of a few requests, one is a large share
FAILED_LIMITS = Limits(1e-9, 0.01)  # share of what ends
TTFT_LIMITS = Limits(2.0, 5.0)  # seconds, 95th percentile


@dataclass(frozen=True, slots=True)
class Tile:
    """``value``: a number with its unit after a space, or without one. ``notes``: what belongs to
    it, most important first."""

    label: str
    value: str
    notes: tuple[str, ...]
    level: Level = Level.CALM


def tiles(reading: Reading, engine: Mapping[str, str]) -> tuple[Tile, ...]:
    """``engine``: labels of quire_engine_info."""
    return (
        _output(reading),
        _prompt(reading),
        _latency("First token", reading, reading.ttft, catalogue.TIME_TO_FIRST_TOKEN, TTFT_LIMITS),
        _between_tokens(reading),
        _running(reading, engine.get("max_num_seqs", "")),
        _waiting(reading),
        _requests(reading),
        _kv_cache(reading),
    )


def _output(reading: Reading) -> Tile:
    note = "no preemptions"
    if reading.preemptions > 0:
        note = f"{number(reading.preemptions)} preemptions/s"
    if _has_no_tokens(reading):
        note = _in_progress(reading)
    level = Level.WARNING if reading.preemptions > 0 else Level.CALM
    return Tile("Generated", _rate(reading.generated, "tok/s"), (note,), level)


def _prompt(reading: Reading) -> Tile:
    prompt = reading.prompt_computed + reading.prompt_cached
    if prompt > 0:
        note = f"{percent(reading.prompt_cached / prompt)} from the prefix cache"
    else:
        note = _nothing(reading, prompt)
    return Tile("Prompt", _rate(prompt, "tok/s"), (note,))


def _latency(
    label: str,
    reading: Reading,
    quantiles: Quantiles,
    metric: Metric,
    limits: Limits | None = None,
) -> Tile:
    if math.isnan(quantiles.p95):
        return Tile(
            f"{label}, p95", UNKNOWN, (_nothing(reading, reading.generated, QUANTILE_SECONDS),)
        )
    highest = metric.buckets[-1]
    notes = (
        f"p50 {bucket_quantile(quantiles.p50, highest)}",
        f"p99 {bucket_quantile(quantiles.p99, highest)}",
    )
    level = limits.level(quantiles.p95) if limits else Level.CALM
    return Tile(f"{label}, p95", bucket_quantile(quantiles.p95, highest), notes, level)


def bucket_quantile(seconds: float, highest: float) -> str:
    """Two digits: it is interpolated within a bucket, and buckets are a quarter wide or more.
    ``highest``: the largest finite bound, beyond which no more is known."""
    if seconds >= highest:
        return f">{duration(highest, 2)}"
    return f"≈{duration(seconds, 2)}" if not math.isnan(seconds) else UNKNOWN


def _between_tokens(reading: Reading) -> Tile:
    """With the gap that is open now: a histogram sees a gap only when it ends."""
    metric = catalogue.INTER_TOKEN_LATENCY
    tile = _latency("Between tokens", reading, reading.itl, metric)
    level = GAP_LIMITS.level(reading.longest_gap)
    notes = tile.notes
    if level is not Level.CALM:
        notes = (f"gap now {duration(reading.longest_gap, 2)}", *notes[-1:])  # in two lines
    return Tile(tile.label, tile.value, notes, level)


def _running(reading: Reading, most: str) -> Tile:
    value = f"{count(reading.running)} / {most}" if most else count(reading.running)
    full = most.isdigit() and reading.running >= int(most) and reading.waiting_total > 0
    return Tile("Running", value, (_in_progress(reading),), Level.WARNING if full else Level.CALM)


def _waiting(reading: Reading) -> Tile:
    waits = reading.waiting_total > 0
    notes = [] if math.isnan(reading.waiting_total) or waits else ["none waiting"]
    if waits and not math.isnan(reading.oldest_waiting):
        notes.append(f"oldest {duration(reading.oldest_waiting, 2)}")
    notes += [WAITING_REASONS[reason] for reason, n in reading.waiting.items() if n > 0]
    level = OLDEST_WAIT_LIMITS.level(reading.oldest_waiting) if waits else Level.CALM
    return Tile("Waiting", count(reading.waiting_total), tuple(notes), level)


def _requests(reading: Reading) -> Tile:
    """Those that arrive; how they end is shown below."""
    ended = reading.requests_total
    rates = {group: reading.ended(group) for group in OutcomeGroup}
    others = [group for group in reversed(OutcomeGroup) if group is not OutcomeGroup.ANSWERED]
    notes = tuple(f"{number(rates[g])} /s {g.value}" for g in others if rates[g] > 0)
    if not notes:
        notes = ("all answered",) if ended > 0 else (_nothing(reading, ended),)
    level = Level.CALM
    if ended > 0:
        failed = FAILED_LIMITS.level(rates[OutcomeGroup.FAILED] / ended)
        refused = Level.CALM
        if round(rates[OutcomeGroup.REFUSED] * RATE_SECONDS) >= FEWEST_REFUSED:
            refused = REFUSED_LIMITS.level(rates[OutcomeGroup.REFUSED] / ended)
        level = max(failed, refused, key=list(Level).index)
    return Tile("Requests", _rate(reading.arriving, "/s"), notes, level)


def _kv_cache(reading: Reading) -> Tile:
    blocks = reading.kv_blocks
    total = sum(blocks.values())
    notes = (f"of {count(total)} blocks", f"{count(blocks['cached'])} cached")
    return Tile(
        "KV cache in use", percent(reading.kv_ratio), notes, KV_LIMITS.level(reading.kv_ratio)
    )


def _has_no_tokens(reading: Reading) -> bool:
    return reading.generated == 0 and reading.in_hand > 0


def _nothing(reading: Reading, rate: float, seconds: float = RATE_SECONDS) -> str:
    """Why a rate is 0 or not known. It needs two readings, so the first says nothing yet."""
    if math.isnan(rate):
        return "measuring"
    if reading.in_hand > 0:
        return _in_progress(reading)
    return f"no traffic in the last {seconds:.0f} s"


def _in_progress(reading: Reading) -> str:
    plural = "" if reading.in_hand == 1 else "s"
    return f"{count(reading.in_hand)} request{plural} in flight"


def _rate(rate: float, unit: str) -> str:
    return UNKNOWN if math.isnan(rate) else f"{number(rate)} {unit}"


def as_html(shown: Iterable[Tile], *, old: bool) -> str:
    """``old``: nothing new has come for a while; all numbers fade."""
    cells = "".join(
        f'<div class="quire-tile quire-{tile.level}"><dt>{html.escape(tile.label)}</dt>'
        f"<dd>{_value(tile)}<small>{' · '.join(map(html.escape, tile.notes))}</small></dd></div>"
        for tile in shown
    )
    return f'<dl class="quire-tiles{" quire-old" if old else ""}">{cells}</dl>'


_MARKS = {Level.CALM: "", Level.WARNING: "near a limit", Level.CRITICAL: "over a limit"}


def _value(tile: Tile) -> str:
    value, _, unit = tile.value.partition(" ")
    mark = _MARKS[tile.level]
    sign = f'<i role="img" aria-label="{mark}" title="{mark}">▲</i>' if mark else ""
    return f"<b>{html.escape(value)}<span> {html.escape(unit)}</span>{sign}</b>"
