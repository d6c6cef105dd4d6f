"""Load runs: the one in progress or else the last; operators start and stop them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.markdown import plain_markdown
from dashboard.refused import carried_out, refused
from dashboard.signing_in import admitted, one_server, operators_only
from dashboard.whole import UNUSABLE, whole_field
from dashboard.words import UNKNOWN, count, duration, number, percent
from observability.admin_api import (
    MAX_LOAD_CONCURRENCY,
    MAX_LOAD_RATE,
    MAX_LOAD_SECONDS,
    LoadReport,
    LoadRun,
)
from observability.outcomes import OUTCOMES, OutcomeGroup, group_of

_RUNNING_REFRESH_SECONDS = 1.0
_IDLE_REFRESH_SECONDS = 5.0  # another operator may start one
_SMALLEST_RATE = 0.01  # the API takes anything above 0
_STATES = {"running": "Running", "done": "Done", "stopped": "Stopped"}
_SENTENCES = {outcome.name: outcome.sentence for outcome in OUTCOMES}


def page() -> None:
    index = one_server()
    found = admitted(index)
    st.caption(
        "During a load run the server sends requests to itself under the key `loadtest`, at random "
        "intervals; they also appear in *Requests*. Only the current or the last run is kept, "
        "until the API worker restarts."
    )
    try:
        report = found.client.load()
    except AdminRefusalError as refusal:
        refused(refusal)
        return
    runs = _runs(report.run)
    if found.operates:
        _form(found.client, report)
        if runs and st.button("Stop", icon=":material/stop:"):
            carried_out(found.client.stop_load)
    else:
        operators_only("start or stop a load run", index)
    seconds = _RUNNING_REFRESH_SECONDS if runs else _IDLE_REFRESH_SECONDS
    st.fragment(_figures, run_every=seconds)(found.client, report.run)


def _form(client: AdminClient, report: LoadReport) -> None:
    with st.form("load"):
        profile = st.selectbox(
            "Profile",
            list(report.profiles),
            format_func=lambda name: f"{name}: {report.profiles[name]}",
        )
        with st.container(horizontal=True):
            rate = st.number_input(
                f"Requests per second ({_SMALLEST_RATE} to {MAX_LOAD_RATE})",
                min_value=_SMALLEST_RATE,
                max_value=float(MAX_LOAD_RATE),
                value=1.0,
            )
            seconds = whole_field(
                f"Seconds (1 to {MAX_LOAD_SECONDS})", 1, MAX_LOAD_SECONDS, value=30
            )
            concurrency = whole_field(
                f"Maximum in flight (1 to {MAX_LOAD_CONCURRENCY})",
                1,
                MAX_LOAD_CONCURRENCY,
                value=32,
            )
        # Not disabled while a run is in progress: Streamlit would drop a click made before the
        # page knew of it, and the server has a sentence for it.
        started = st.form_submit_button("Start", type="primary")
        if started and UNUSABLE not in (seconds, concurrency):
            carried_out(lambda: client.start_load(profile, rate, seconds, concurrency))


def _figures(client: AdminClient, seen: LoadRun | None) -> None:
    """``seen``: the run for which the rest of the page was drawn."""
    try:
        run = client.load().run
    except AdminRefusalError as refusal:
        st.warning(plain_markdown(str(refusal)))
        return
    if _identity(run) != _identity(seen):
        st.rerun()
    if run is None:
        st.info("There has been no load run since the server's API worker started.")
        return
    st.markdown(plain_markdown(state_of(run)))
    if _runs(run):
        st.progress(min(1.0, run.elapsed / run.seconds))
    with st.container(horizontal=True):
        for label, value in totals(run).items():
            st.metric(label, value, width="content")
    st.dataframe(latency_rows(run), hide_index=True, alt="Latencies of the load run")
    if run.ended:
        st.dataframe(ends(run), hide_index=True, alt="How the load run's requests ended")


def _runs(run: LoadRun | None) -> bool:
    return run is not None and run.state == "running"


def _identity(run: LoadRun | None) -> tuple[float, str] | None:
    return None if run is None else (run.started, run.state)


def state_of(run: LoadRun) -> str:
    """Return what the run is or was, and how far it has come."""
    asked = (
        f"{run.profile}, {number(run.rate)} requests per second for {duration(run.seconds)}, "
        f"at most {count(run.concurrency)} in flight"
    )
    if _runs(run) and run.elapsed > run.seconds:
        progress = "all sent; waiting for the last answers"
    else:
        progress = f"{duration(run.elapsed)} so far" if _runs(run) else duration(run.elapsed)
    return f"**{_STATES.get(run.state, run.state)}** ({progress}): {asked}."


def totals(run: LoadRun) -> dict[str, str]:
    """Return the run's figures by their labels. Rates and tokens are of requests that ended."""
    ended = sum(run.ended.values())
    of = dict.fromkeys(OutcomeGroup, 0)
    for name, requests in run.ended.items():
        of[group_of(name)] += requests
    lost = of[OutcomeGroup.FAILED] + of[OutcomeGroup.REFUSED]
    return {
        "Sent": count(run.sent),
        "In flight" if _runs(run) else "Cut off": count(run.sent - ended),
        "Answered": count(of[OutcomeGroup.ANSWERED]),
        "Failed or refused": f"{count(lost)} ({percent(lost / ended)})" if ended else UNKNOWN,
        "Requests ended per second": _rate(ended, run.elapsed),
        "Output tokens": count(run.tokens_out),
        "Output tokens per second": _rate(run.tokens_out, run.elapsed),
    }


def _rate(things: int, seconds: float) -> str:
    return number(things / seconds) if seconds > 0 else UNKNOWN


def latency_rows(run: LoadRun) -> list[dict[str, Any]]:
    """Return one row for each latency, with its percentiles over the whole run."""
    measured = {
        "First token (TTFT)": run.ttft,
        "Between tokens (ITL), mean per request": run.itl,
        "Whole request": run.total,
    }
    return [
        {
            "latency": label,
            "p50": duration(found.p50),
            "p95": duration(found.p95),
            "p99": duration(found.p99),
            "requests": found.count,
        }
        for label, found in measured.items()
    ]


def ends(run: LoadRun) -> list[dict[str, Any]]:
    """Return one row for each way in which requests ended, the most frequent first."""
    return [
        {
            "outcome": name,
            "requests": requests,
            "group": group_of(name).value,
            "meaning": _SENTENCES.get(name, ""),
        }
        for name, requests in sorted(run.ended.items(), key=lambda item: (-item[1], item[0]))
    ]
