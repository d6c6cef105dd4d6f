"""How the server is doing now, and over the last five minutes."""

from __future__ import annotations

import math

import streamlit as st

from dashboard.charts import Chart, Line, columns, specification
from dashboard.poller import View
from dashboard.reading import QUANTILE_SECONDS, RATE_SECONDS, Quantiles, Reading
from dashboard.server import State
from dashboard.session import chosen_server, poller_for, remembered
from dashboard.words import UNKNOWN, duration, number, percent, plain_markdown
from observability.outcomes import OUTCOMES, WAITING_REASONS, OutcomeGroup

REFRESH_SECONDS = 1.0
STALE_SECONDS = 5.0

_TEAL, _AMBER, _INDIGO, _RED, _GREY = "#0d9488", "#f59e0b", "#6366f1", "#e11d48", "#64748b"

_STATES = {
    State.READY: ("Ready", "green"),
    State.LOADING: ("Loading the model", "orange"),
    State.DRAINING: ("Draining", "orange"),
    State.FAILED: ("Failed", "red"),
    State.UNREACHABLE: ("Unreachable", "red"),
}

_COLORS = {
    OutcomeGroup.FAILED: _RED,
    OutcomeGroup.REFUSED: _AMBER,
    OutcomeGroup.LEFT: _GREY,
    OutcomeGroup.ANSWERED: _TEAL,
}


def _ended_line(group: OutcomeGroup) -> Line:
    return Line(group.value, _COLORS[group], lambda reading: reading.ended(group))


CHARTS = (
    Chart(
        "Sequences",
        "sequences",
        (
            Line("running", _TEAL, lambda r: r.running),
            Line("waiting", _AMBER, lambda r: r.waiting_total),
        ),
        area=True,
    ),
    Chart(
        "KV cache held by running sequences",
        "%",
        (Line("in use", _TEAL, lambda r: r.kv_ratio * 100),),
        area=True,
        top=100,
    ),
    Chart(
        "Tokens per second",
        "tokens/s",
        (
            Line("generated", _TEAL, lambda r: r.generated),
            Line("prompt, computed", _INDIGO, lambda r: r.prompt_computed),
            Line("prompt, cached", _GREY, lambda r: r.prompt_cached),
        ),
    ),
    Chart(
        "Requests per second",
        "requests/s",
        tuple(map(_ended_line, reversed(OutcomeGroup))),
    ),
    Chart(
        "Time to first token",
        "ms",
        (
            Line("p50", _TEAL, lambda r: r.ttft.p50 * 1000),
            Line("p95", _INDIGO, lambda r: r.ttft.p95 * 1000),
        ),
    ),
    Chart(
        "Inter-token latency",
        "ms",
        (
            Line("p50", _TEAL, lambda r: r.itl.p50 * 1000),
            Line("p95", _INDIGO, lambda r: r.itl.p95 * 1000),
        ),
    ),
)


def page() -> None:
    poller = poller_for(chosen_server())
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
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("Live")
        return st.toggle("Pause", key=remembered("pause", False), width="content")


def _draw(view: View) -> None:
    _banner(view)
    if view.latest is None:
        return
    _tiles(view.latest)
    for left, right in zip(CHARTS[::2], CHARTS[1::2], strict=True):
        for column, chart in zip(st.columns(2), (left, right), strict=True):
            with column.container(border=True):
                st.markdown(f"**{chart.title}**")
                st.vega_lite_chart(
                    columns(chart, view.readings, view.now),
                    specification(chart),
                    width="stretch",
                    alt=f"{chart.title} over the last five minutes",
                )
    st.caption(
        f"Rates are taken over {RATE_SECONDS:.0f} s, percentiles over the observations of the "
        f"last {QUANTILE_SECONDS:.0f} s. A line stops where nothing was measured."
    )


def _banner(view: View) -> None:
    label, color = _STATES[view.health.state]
    engine = view.engine
    facts = [
        f"**{engine.get('model') or view.health.model or 'no model yet'}**",
        engine.get("device", ""),
        engine.get("dtype", ""),
    ]
    if context := engine.get("max_model_len"):
        facts.append(f"context of {int(context):,} tokens")
    if sequences := engine.get("max_num_seqs"):
        facts.append(f"up to {sequences} sequences at once")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(label, color=color)  # type: ignore[arg-type]  # a literal, by the table above
        st.markdown(plain_markdown(" · ".join(fact for fact in facts if fact)))
        st.caption(_age(view), width="content")
    if view.problem:
        (st.error if view.health.state is State.UNREACHABLE else st.warning)(
            plain_markdown(view.problem)
        )


def _age(view: View) -> str:
    if view.age is None:
        return "no data yet"
    stale = ": these numbers are old" if view.age > STALE_SECONDS else ""
    return f"data {view.age:.0f} s old{stale}"


def _tiles(reading: Reading) -> None:
    top, bottom = st.columns(4), st.columns(4)
    prompt = reading.prompt_computed + reading.prompt_cached
    with top[0]:
        _tile("Running", number(reading.running), _in_progress(reading))
    with top[1]:
        _tile("Waiting", number(reading.waiting_total), _why_waiting(reading))
    with top[2]:
        _tile("KV cache in use", percent(reading.kv_ratio), _blocks(reading))
    with top[3]:
        _tile(
            "Requests", _per_second(reading.requests_total, "/s"), _ended(reading), _ends(reading)
        )
    with bottom[0]:
        _tile("Generated", _per_second(reading.generated, "tok/s"), _preempted(reading))
    with bottom[1]:
        _tile("Prompt", _per_second(prompt, "tok/s"), _cached(reading, prompt))
    with bottom[2]:
        _latency_tile("Time to first token", reading, reading.ttft)
    with bottom[3]:
        _latency_tile("Inter-token latency", reading, reading.itl)


def _tile(label: str, value: str, note: str, explanation: str | None = None) -> None:
    st.metric(
        label, value, note, delta_color="off", delta_arrow="off", border=True, help=explanation
    )


def _latency_tile(label: str, reading: Reading, quantiles: Quantiles) -> None:
    if math.isnan(reading.generated):
        _tile(label, UNKNOWN, _nothing(reading.generated))
    elif math.isnan(quantiles.p50):
        _tile(label, "No traffic", f"in the last {QUANTILE_SECONDS:.0f} s")
    else:
        _tile(f"{label}, p50", duration(quantiles.p50), f"p95 {duration(quantiles.p95)}")


def _per_second(rate: float, unit: str) -> str:
    return UNKNOWN if math.isnan(rate) else f"{number(rate)} {unit}"


def _in_progress(reading: Reading) -> str:
    return f"{number(reading.in_progress)} requests in progress"


def _why_waiting(reading: Reading) -> str:
    reasons = [WAITING_REASONS[reason] for reason, n in reading.waiting.items() if n > 0]
    return ", ".join(reasons) or "nothing waits"


def _blocks(reading: Reading) -> str:
    blocks = reading.kv_blocks
    return f"{number(blocks['active'])} blocks, {number(blocks['cached'])} kept for reuse"


def _ended(reading: Reading) -> str:
    if not reading.requests_total > 0:
        return _nothing(reading.requests_total)
    others = [group for group in reversed(OutcomeGroup) if group is not OutcomeGroup.ANSWERED]
    rates = {group: reading.ended(group) for group in others}
    parts = [f"{number(rate)} {group.value}" for group, rate in rates.items() if rate]
    return ", ".join(parts) or "all answered"


def _ends(reading: Reading) -> str | None:
    """The outcomes that occurred, each with its rate and its meaning."""
    lines = [
        f"- `{outcome.name}`, {number(rate)} /s: {outcome.sentence}"
        for outcome in OUTCOMES
        if (rate := reading.requests.get(outcome.name, 0.0)) > 0
    ]
    return "\n".join(lines) or None


def _nothing(rate: float) -> str:
    """A rate needs two readings, so the first says nothing yet."""
    return "measuring" if math.isnan(rate) else "no traffic"


def _preempted(reading: Reading) -> str:
    if reading.preemptions > 0:
        return f"{number(reading.preemptions)} preemptions /s"
    return "no preemptions"


def _cached(reading: Reading, prompt: float) -> str:
    if not prompt > 0:
        return _nothing(prompt)
    return f"{percent(reading.prompt_cached / prompt)} from the prefix cache"
