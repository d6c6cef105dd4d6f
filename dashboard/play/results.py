"""The boxes for the results of the calls that the last answers ended with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import streamlit as st

from dashboard.apis.ask import Message, arguments_of
from dashboard.conversation import Conversation
from dashboard.markdown import plain_label
from dashboard.play.actions import Asking

_MOST_SHOWN = 60  # characters of a call's arguments


@dataclass(slots=True)
class Box:
    """Takes one result, which goes to each pane that made the call, under that pane's id of it.
    ``places``: by pane, which of its calls this is."""

    key: str
    name: str
    arguments: str
    places: dict[int, int]

    def label(self, panes: int) -> str:
        if panes == 1:
            return f"Result of {self.name}"
        whose = "Both panes" if len(self.places) == panes else f"Pane {'AB'[min(self.places)]}"
        return f"{whose}: result of {self.name}"


def boxes(conversation: Conversation, panes: int) -> list[Box]:
    """One for each open call; panes that make the same call, by its name and arguments, share
    one."""
    found: dict[Hashable, Box] = {}
    for pane in range(panes):
        times: Counter[Hashable] = Counter()
        for place, call in enumerate(conversation.open_calls(pane)):
            arguments = arguments_of(call)
            same = call.name, json.dumps(arguments, sort_keys=True)
            times[same] += 1
            key = f"result-{id(conversation.turns[-1])}-{pane}-{place}"
            shown = json.dumps(arguments, ensure_ascii=False)
            box = found.setdefault((same, times[same]), Box(key, call.name, shown, {}))
            box.places[pane] = place
    return list(found.values())


def box_labels(drawn: list[Box], panes: int) -> list[str]:
    """Name what each box is for: the tool; if several are for one tool, the arguments, too; and if
    these are the same, at least as far as they are shown, its number among them."""
    labels = [box.label(panes) for box in drawn]
    labels = [
        f"{label} with {_cut(box.arguments)}" if labels.count(label) > 1 else label
        for box, label in zip(drawn, labels, strict=True)
    ]
    return [
        f"{label} ({labels[: place + 1].count(label)} of {labels.count(label)})"
        if labels.count(label) > 1
        else label
        for place, label in enumerate(labels)
    ]


def _cut(arguments: str) -> str:
    return arguments if len(arguments) <= _MOST_SHOWN else f"{arguments[: _MOST_SHOWN - 1]}…"


def tool_results(asking: Asking) -> None:
    """Draws the boxes, if there are open calls."""
    panes = asking.pane_count
    drawn = boxes(asking.conversation, panes)
    if not drawn:
        return
    with st.container(border=True):
        for box, label in zip(drawn, box_labels(drawn, panes), strict=True):
            st.text_area(plain_label(label), key=box.key, height=90)
        st.button(
            "Send the results",
            icon=":material/send:",
            on_click=send,
            args=(asking, drawn),
            disabled=asking.panes is None,
        )


def send(asking: Asking, filled: list[Box]) -> None:
    """Sends each pane what was written for its calls, in their order."""
    if asking.panes is None:
        return
    written = {
        (pane, place): str(st.session_state.get(box.key) or "")
        for box in filled
        for pane, place in box.places.items()
    }
    messages = [
        tuple(
            Message("tool", written[pane, place], call_id=call.id)
            for place, call in enumerate(asking.conversation.open_calls(pane))
        )
        for pane in range(len(asking.panes))
    ]
    asking.conversation.send(asking.url, messages, asking.panes, asking.api_key)
