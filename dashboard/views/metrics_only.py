"""The Live page of a server without an admin API: five minutes of its /metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

import streamlit as st

from dashboard.charts import (
    COUNT,
    DATASET,
    RATE,
    SECONDS,
    SHARE,
    Chart,
    Line,
    columns,
    specification,
)
from dashboard.condition import Level, condition, is_fresh
from dashboard.markdown import plain_markdown, plain_name
from dashboard.poller import View
from dashboard.reading import QUANTILE_SECONDS, RATE_SECONDS, Quantiles, Reading
from dashboard.session import poller_for, remembered
from dashboard.tiles import as_html, tiles
from dashboard.words import number, text_only
from observability.outcomes import OUTCOMES, OutcomeGroup

REFRESH_SECONDS = 1.0

# A colour means the same in every chart: teal runs or is generated, indigo is prompt, grey is kept
# or idle or has left, amber waits or is refused, red failed; blues are a latency's percentiles.
TEAL, INDIGO, GREY, AMBER, RED = "#0d9488", "#6366f1", "#8291a5", "#d97706", "#e11d48"
LIGHT_BLUE, BLUE, DEEP_BLUE = "#5bb0e4", "#1d8fd1", "#4a62c8"

_GROUP_COLORS = {
    OutcomeGroup.ANSWERED: TEAL,
    OutcomeGroup.LEFT: GREY,
    OutcomeGroup.REFUSED: AMBER,
    OutcomeGroup.FAILED: RED,
}
_BADGES = {Level.CALM: "green", Level.WARNING: "orange", Level.CRITICAL: "red"}


def _share(state: str) -> Callable[[Reading], float]:
    """Percent of all blocks."""
    return lambda reading: (
        100 * reading.kv_blocks[state] / (sum(reading.kv_blocks.values()) or math.nan)
    )


def _ended(group: OutcomeGroup) -> Callable[[Reading], float]:
    return lambda reading: reading.ended(group)


def _percentiles(of: Callable[[Reading], Quantiles]) -> tuple[Line, ...]:
    return (
        Line("p50", LIGHT_BLUE, lambda reading: of(reading).p50),
        Line("p95", BLUE, lambda reading: of(reading).p95),
        Line("p99", DEEP_BLUE, lambda reading: of(reading).p99),
    )


CHARTS = (
    Chart(
        "Sequences",
        COUNT,
        (
            Line("running", TEAL, lambda reading: reading.running),
            Line("waiting", AMBER, lambda reading: reading.waiting_total),
        ),
        stacked=True,
        limit="max_num_seqs",
    ),
    Chart(
        "Tokens per second",
        RATE,
        (
            Line("generated", TEAL, lambda reading: reading.generated),
            Line("prompt", INDIGO, lambda reading: reading.prompt_computed),
            Line("cached", GREY, lambda reading: reading.prompt_cached),
        ),
    ),
    Chart("Time to first token", SECONDS, _percentiles(lambda r: r.ttft), least=0.001),
    Chart(
        "KV cache",
        SHARE,
        (
            Line("active", TEAL, _share("active")),
            Line("cached", GREY, _share("cached")),
        ),
        stacked=True,
        top=100,
    ),
    Chart(
        "Requests ended per second",
        RATE,
        tuple(Line(group.value, color, _ended(group)) for group, color in _GROUP_COLORS.items()),
    ),
    Chart("Time between tokens", SECONDS, _percentiles(lambda r: r.itl), least=0.001),
)


def page(url: str) -> None:
    poller = poller_for(url)
    paused = _header_and_pause()
    if not paused:
        st.session_state.pop("paused_view", None)

    def draw() -> None:
        view = st.session_state.get("paused_view") or poller.view(wait=2.0)
        if paused:
            st.session_state["paused_view"] = view
        _draw(view)

    st.fragment(draw, run_every=None if paused else REFRESH_SECONDS)()


def _header_and_pause() -> bool:
    with st.container(horizontal=True, horizontal_alignment="right", key="live-pause"):
        return st.toggle("Pause", key=remembered("pause", False), width="content")


def _draw(view: View) -> None:
    _banner(view)
    if view.latest is None:
        return
    st.html(as_html(tiles(view.latest, view.engine), old=not is_fresh(view)))
    with st.grid(min_column_width=340):
        for chart in CHARTS:
            with st.container(border=True, gap=None, key=f"chart-{chart.title}"):
                st.markdown(f"**{chart.title}**")
                st.vega_lite_chart(
                    # As a named data set, since Streamlit draws a chart without its data first.
                    spec=specification(chart) | {"datasets": {DATASET: columns(chart, view)}},
                    width="stretch",
                    alt=f"{chart.title} over the last five minutes",
                )
    st.caption(_notes(view.latest))


def _banner(view: View) -> None:
    now = condition(view)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(now.word, color=_BADGES[now.level])  # type: ignore[arg-type]  # a literal, by the table
        st.markdown(plain_markdown(" · ".join(facts(view))))
        st.caption(_age(view), width="content")
    for sentence in now.sentences:
        (st.error if now.level is Level.CRITICAL else st.warning)(plain_markdown(sentence))


def facts(view: View) -> list[str]:
    """Return what is known of the model: its name, and what it runs on and takes."""
    engine = view.engine
    found = [
        plain_name(engine.get("model") or view.health.model) or "no model yet",
        engine.get("device", ""),
        engine.get("dtype", ""),
        engine.get("quantization", ""),
    ]
    if context := engine.get("max_model_len"):
        found.append(f"context of {int(context):,} tokens")
    found.append(text_only(view.health.unserved_inputs))
    return [fact for fact in found if fact not in ("", "none")]


def _age(view: View) -> str:
    if view.age is None:
        return "no data yet"
    stale = "" if is_fresh(view) else ": these numbers are out of date"
    return f"data {view.age:.0f} s old{stale}"


def _notes(reading: Reading) -> str:
    """What the numbers mean, and the ends without an answer, each with its meaning."""
    ends = [
        f"`{outcome.name}`, {number(rate)} /s: {outcome.sentence}"
        for outcome in OUTCOMES
        if outcome.group is not OutcomeGroup.ANSWERED
        and (rate := reading.requests.get(outcome.name, 0.0)) > 0
    ]
    return "\n\n".join(
        [
            *ends,
            f"Rates cover the last {RATE_SECONDS:.0f} s, percentiles (≈) the last "
            f"{QUANTILE_SECONDS:.0f} s, interpolated within histogram buckets as in PromQL. A line "
            "breaks where nothing was measured.",
        ]
    )
