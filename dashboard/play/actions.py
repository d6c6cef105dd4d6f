"""What can be done with a turn: edit it, see its other versions, take it along as code, look into
how it came about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from dashboard.answer import Answer
from dashboard.apis.ask import Ask, Tool
from dashboard.client import Generation
from dashboard.codes import LANGUAGES
from dashboard.conversation import Choices, Conversation, Turn
from dashboard.markdown import plain_markdown
from dashboard.play.figures import record
from dashboard.session import SERVER, has_page
from dashboard.settings import server_name

_MOST_SHOWN = 60  # characters of a setting's value


@dataclass(frozen=True, slots=True)
class Asking:
    """``panes`` None: nothing can be asked now: the settings are wrong, or the server is away."""

    conversation: Conversation
    url: str
    panes: tuple[Choices, ...] | None
    api_key: str

    @property
    def pane_count(self) -> int:
        """Of the last turn while nothing can be asked."""
        if self.panes is None:
            return len(self.conversation.turns[-1].exchanges)
        return len(self.panes)

    def ask(self, question: str) -> None:
        if self.panes is not None:
            self.conversation.ask(self.url, question, self.panes, self.api_key)

    def ask_again(self, index: int, question: str | None = None) -> None:
        if self.panes is not None:
            self.conversation.ask_again(self.url, index, self.panes, self.api_key, question)

    def edited(self, index: int, key: str) -> None:
        text = str(st.session_state.get(key) or "")
        if text.strip():
            self.ask_again(index, text)


def beside_question(asking: Asking, index: int) -> None:
    """Edit, and a way through the versions of this turn where there are several."""
    conversation = asking.conversation
    turn = conversation.turns[index]
    if turn.brings_results:
        return
    key = f"edit-{id(turn)}"
    versions = conversation.alternatives(index)
    if len(versions) > 1:
        _versions(conversation, index, versions, versions.index(turn))
    # The key makes the next version's a new popover; without it, that one would stay open.
    with st.popover("Edit", icon=":material/edit:", type="tertiary", key=f"popover-{key}"):
        st.text_area("Message", turn.question, key=key)
        st.button(
            "Send as a new branch",
            key=f"send-{key}",
            on_click=asking.edited,
            args=(index, key),
            disabled=asking.panes is None,
        )


def _versions(conversation: Conversation, index: int, versions: list[Turn], at: int) -> None:
    for label, icon, step in (("Earlier", "chevron_left", -1), ("Later", "chevron_right", 1)):
        if step == 1:
            st.markdown(f"Version {at + 1} of {len(versions)}", width="content")
        st.button(
            label,
            key=f"version-{id(versions[at])}-{step}",
            icon=f":material/{icon}:",
            type="tertiary",
            disabled=not 0 <= at + step < len(versions),
            on_click=conversation.show,
            args=(index, versions[min(max(at + step, 0), len(versions) - 1)]),
        )


def below_last(asking: Asking) -> None:
    conversation = asking.conversation
    last = len(conversation.turns) - 1
    turn = conversation.turns[last]
    two = len(turn.exchanges) == 2
    if two:
        for slot, exchange in zip(st.columns(2), turn.exchanges, strict=True):
            if exchange is not None:
                with slot, st.container(horizontal=True):
                    _about(asking, exchange.generation, exchange.generation.answer())
    both = len(turn.asked) == 2
    if both:
        _differences(turn)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Regenerate",
            icon=":material/refresh:",
            type="tertiary",
            on_click=asking.ask_again,
            args=(last,),
            disabled=asking.panes is None
            or not any(conversation.messages_again(last, len(asking.panes))),
        )
        if both:
            st.toggle("Mark differences", key="mark_differences")
        elif not two:
            _about(asking, turn.generation, turn.generation.answer())
        st.button("Clear", icon=":material/delete:", type="tertiary", on_click=conversation.clear)


def _about(asking: Asking, generation: Generation, answer: Answer) -> None:
    request, with_key = generation.request, bool(asking.api_key)
    with st.popover("Copy as code", icon=":material/terminal:", type="tertiary"):
        for tab, (language, write) in zip(
            st.tabs(list(LANGUAGES)), LANGUAGES.values(), strict=True
        ):
            with tab:
                code = write(generation.url, request, with_key)
                st.code(code, language=language, wrap_lines=True)
    if answer.timings is not None:
        with st.popover("Timings", icon=":material/timer:", type="tertiary"):
            st.markdown("As measured by the server, not rounded.")
            st.code(record(answer), language="json")
    events = generation.events()
    if events:
        with st.popover("Raw events", icon=":material/data_object:", type="tertiary"):
            st.markdown(f"The last {len(events):,} events as received.")
            st.code("\n".join(events), language="json", height=320)
    if answer.request_id and has_page("request"):
        st.link_button(
            "Inspect request",
            f"request?{urlencode({'id': answer.request_id, SERVER: server_name(generation.url)})}",
            icon=":material/speed:",
            type="tertiary",
            help="The server's record of this request.",
        )


def _differences(turn: Turn) -> None:
    """The settings in which the panes differ, as they were when the question was asked."""
    asks = [generation.request.ask for generation in turn.generations]
    apis = [generation.request.api.name for generation in turn.generations]
    differing = differences(asks[0], asks[1])
    if apis[0] != apis[1]:
        differing.insert(0, f"API: {apis[0]} / {apis[1]}")
    words = f"A / B: {' · '.join(differing)}" if differing else "Both panes have the same settings."
    st.caption(plain_markdown(words))


def differences(one: Ask, other: Ask) -> list[str]:
    """Name the settings in which two differ, with both values."""
    differing = []
    for name in one.__dataclass_fields__:
        values = getattr(one, name), getattr(other, name)
        if name == "messages" or values[0] == values[1]:
            continue
        words = [_setting_words(value) for value in values]
        same = ", defined differently" if words[0] == words[1] else ""
        differing.append(f"{name.replace('_', ' ')}: {words[0]} / {words[1]}{same}")
    return differing


def _setting_words(value: Any) -> str:
    match value:
        case None | "" | ():
            return "–"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(one.name if isinstance(one, Tool) else _quoted(one) for one in value)
        case Mapping():
            return _quoted(value)
    return str(value)


def _quoted(value: object) -> str:
    written = json.dumps(value, ensure_ascii=False)
    return written if len(written) <= _MOST_SHOWN else f"{written[: _MOST_SHOWN - 1]}…"
