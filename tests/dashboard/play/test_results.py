"""Each pane gets the results of the calls it made. The boxes are filled in Chromium, too."""

from __future__ import annotations

import json

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.apis.ask import Message
from dashboard.conversation import Choices, Conversation
from dashboard.play.actions import Asking
from dashboard.play.results import box_labels, boxes, send
from tests.dashboard.foreign_server import Exchange, ForeignServer
from tests.dashboard.test_client import CHAT, event, streams, text
from tests.dashboard.test_conversation import settled

PANES = (Choices("a"), Choices("b"))
OSLO, ROME = '{"city": "Oslo"}', '{"city": "Rome"}'


def called(foreign: ForeignServer, **calls: list[tuple[str, str]]) -> Asking:
    """A chat whose panes, by their models, have called these tools."""

    def reply(exchange: Exchange) -> None:
        model = json.loads(exchange.body)["model"]
        delta = {
            "content": "" if calls[model] else "Hm.",
            "tool_calls": [
                {
                    "index": place,
                    "id": f"{model}{place}",
                    "function": {"name": name, "arguments": arguments},
                }
                for place, (name, arguments) in enumerate(calls[model])
            ],
        }
        chunk = event(choices=[{"delta": delta, "finish_reason": "tool_calls"}])
        streams(chunk, "data: [DONE]\n\n")(exchange)

    foreign.replies[CHAT] = reply
    asking = Asking(Conversation(), foreign.url, PANES[: len(calls)], "")
    asking.ask("Weather?")
    settled(asking.conversation)
    foreign.replies[CHAT] = streams(text("ok", "stop"), "data: [DONE]\n\n")
    return asking


def sent(asking: Asking, monkeypatch: pytest.MonkeyPatch, **written: str) -> list[object]:
    """The results that each pane was sent, None for one that was not asked. ``written``: by the
    boxes' numbers."""
    filled = boxes(asking.conversation, asking.pane_count)
    state = {filled[int(name[1:])].key: value for name, value in written.items()}
    monkeypatch.setattr(st, "session_state", state)
    send(asking, filled)
    settled(asking.conversation)
    return [one and one.messages for one in asking.conversation.turns[-1].exchanges]


def labels(asking: Asking) -> list[str]:
    panes = asking.pane_count
    return box_labels(boxes(asking.conversation, panes), panes)


def result(text: str, call_id: str) -> Message:
    return Message("tool", text, call_id=call_id)


def test_each_call_gets_its_own_result(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = called(foreign, a=[("f", "{}"), ("g", "{}")])
    assert labels(asking) == ["Result of f", "Result of g"]
    assert sent(asking, monkeypatch, r0="rain") == [(result("rain", "a0"), result("", "a1"))]


def test_the_same_call_of_both_panes_has_one_box(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = called(foreign, a=[("f", OSLO)], b=[("f", OSLO.replace(" ", ""))])
    assert labels(asking) == ["Both panes: result of f"]
    assert sent(asking, monkeypatch, r0="rain") == [
        (result("rain", "a0"),),
        (result("rain", "b0"),),
    ]


def test_each_pane_has_boxes_for_what_it_alone_called(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = called(foreign, a=[("f", OSLO)], b=[("f", ROME), ("f", OSLO), ("f", OSLO)])
    assert labels(asking) == [
        "Both panes: result of f",
        'Pane B: result of f with {"city": "Rome"}',
        'Pane B: result of f with {"city": "Oslo"}',
    ]
    assert sent(asking, monkeypatch, r0="rain", r1="sun", r2="snow") == [
        (result("rain", "a0"),),
        (result("sun", "b0"), result("rain", "b1"), result("snow", "b2")),
    ]


def test_calls_of_one_tool_are_told_apart(foreign: ForeignServer) -> None:
    long = [json.dumps({"text": "a" * 100, "end": end}) for end in ("x", "y")]
    asking = called(foreign, a=[("f", ROME), *(("f", one) for one in long), ("g", "{}")])
    cut = f"{long[0][:59]}…"
    assert labels(asking) == [
        'Result of f with {"city": "Rome"}',
        f"Result of f with {cut} (1 of 2)",
        f"Result of f with {cut} (2 of 2)",
        "Result of g",
    ]


def test_a_pane_without_calls_is_not_asked(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = called(foreign, a=[], b=[("f", OSLO)])
    assert labels(asking) == ["Pane B: result of f"]
    assert sent(asking, monkeypatch, r0="rain") == [None, (result("rain", "b0"),)]


def test_calls_of_a_closed_pane_have_no_box(foreign: ForeignServer) -> None:
    asking = called(foreign, a=[("f", OSLO)], b=[("g", ROME)])
    assert labels(Asking(asking.conversation, asking.url, PANES[:1], "")) == ["Result of f"]
    away = Asking(asking.conversation, asking.url, None, "")
    assert labels(away) == ["Pane A: result of f", "Pane B: result of g"]
    send(away, boxes(away.conversation, 2))
    assert len(away.conversation.turns) == 1


def test_a_tool_name_from_the_model_is_no_image_in_a_label(foreign: ForeignServer) -> None:
    def script(asking: object) -> None:
        from dashboard.play.results import tool_results

        tool_results(asking)  # type: ignore[arg-type]

    asking = called(foreign, a=[("![x](http://127.0.0.1:9/label.png) f", "{}")])
    app = AppTest.from_function(script, kwargs={"asking": asking}, default_timeout=60).run()
    assert app.text_area[0].label == r"Result of !\[x](http://127.0.0.1:9/label.png) f"
