"""The inspector: everything that is known of one request, and why it was slow."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import streamlit as st

from dashboard.access import Access
from dashboard.admin_client import AdminRefusalError
from dashboard.again import PROMPT, curl_like
from dashboard.clock import moment
from dashboard.feeds import feeds
from dashboard.markdown import plain_markdown, plain_name
from dashboard.phase_bar import phase_bar
from dashboard.refused import carried_out, refused
from dashboard.session import addressed_server
from dashboard.signing_in import admitted
from dashboard.trace_link import trace_link, trace_url
from dashboard.why_slow import gap_cause, prefix_sentence, slow_because
from dashboard.words import count, duration
from observability.admin_api import EventKind, KeptRequest
from observability.phases import PHASES


def page() -> None:
    index = addressed_server(feeds().servers)
    found = admitted(index)
    request_id = st.query_params.get("id", "")
    if not request_id:
        request_id = st.text_input("Request or trace id", width=420)
        if not request_id:
            return
    try:
        request = found.client.request(request_id)
    except AdminRefusalError as refusal:
        refused(refusal)
        return
    _head(request, found, feeds().servers[index].url)
    st.info(plain_markdown(slow_because(request)), icon=":material/timer:")
    _phases(request)
    if request.prefix is not None:
        st.markdown("**Prefix cache**")
        st.progress(
            request.prefix.matched / (request.prefix.of or 1),
            text=plain_markdown(prefix_sentence(request.prefix)),
        )
    left, right = st.columns(2)
    with left:
        _listed("Events", event_rows(request))
    with right:
        _listed("Longest steps", step_rows(request))
    with st.expander("Record (JSON)"):
        st.json(msgspec.to_builtins(request))


def _head(request: KeptRequest, found: Access, url: str) -> None:
    began = moment(request.received)
    end = f"{request.phase}, live" if request.live else request.outcome
    model = plain_name(request.model)
    facts = [request.key or "", request.route, model, began, end, duration(request.total)]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(plain_markdown(request.request_id), anchor=False)
        if request.live and found.operates and st.button("Cancel", icon=":material/cancel:"):
            carried_out(lambda: found.client.cancel(request.request_id))
        if link := trace_link(trace_url(os.environ), request.trace_id):
            st.link_button("Trace", link, icon=":material/account_tree:")
        if command := curl_like(url, request):
            with st.popover("As curl", icon=":material/terminal:"):
                st.caption(f"The settings are this request's; replace {PROMPT} with your text.")
                st.code(command, language="bash")
    st.markdown(plain_markdown(" · ".join(fact for fact in facts if fact)))
    tokens = (
        f"{count(request.prompt_tokens)} prompt tokens, {count(request.cached_tokens)} cached; "
        f"{count(request.output_tokens)} output tokens; first token after {duration(request.ttft)}"
    )
    st.caption(plain_markdown(f"{tokens}. Trace {request.trace_id or 'none'}."))


def _phases(request: KeptRequest) -> None:
    st.markdown("**Phases**")
    words = phase_words(request)
    drawing = phase_bar(request, width=1000)
    st.html(f'<img src="{drawing}" alt="{words}" style="width: 100%; height: 24px">')
    st.markdown(plain_markdown(words))


def phase_words(request: KeptRequest) -> str:
    """Say what the bar shows."""
    spent = [
        f"{phase.name} {duration(request.phases[phase.name])}"
        for phase in PHASES
        if phase.name in request.phases
    ]
    if request.other > 0:
        spent.append(f"other {duration(request.other)} (hatched: in no phase)")
    return " · ".join(spent) or "No phase was measured."


def event_rows(request: KeptRequest) -> list[dict[str, Any]]:
    """Return the request's events with what each value means, gaps with their cause."""
    rows = []
    for event in request.events:
        what = ""
        if event.kind is EventKind.OUTPUT:
            what = f"token {count(event.value)}"
        elif event.kind is EventKind.GAP:
            cause = gap_cause(request, event.at, event.value)
            what = f"{duration(event.value)}: {cause}" if cause else duration(event.value)
        elif event.kind is EventKind.STALLED:
            what = f"{duration(event.value)} until the client read"
        name = event.kind.value.replace("_", " ")
        rows.append({"after": duration(event.at), "event": name, "what": what})
    return rows


def step_rows(request: KeptRequest) -> list[dict[str, Any]]:
    """Return the longest steps of the request's life, and whose prompts were in them."""
    return [
        {
            "after": duration(step.at),
            "took": duration(step.seconds),
            "sequences": step.sequences,
            "prompts": ", ".join(
                f"{count(one.tokens)} of {one.request_id}" for one in step.prefills
            ),
        }
        for step in request.neighbours
    ]


def _listed(title: str, rows: list[dict[str, Any]]) -> None:
    st.markdown(f"**{title}**")
    if rows:
        st.dataframe(rows, hide_index=True, alt=title)
    else:
        st.caption("None.")
