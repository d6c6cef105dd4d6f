"""What can be done with a turn, by the callbacks that the buttons call. The buttons themselves are
pressed in Chromium."""

from __future__ import annotations

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.apis.ask import Call, Message
from dashboard.conversation import Choices, Conversation
from dashboard.play.actions import Asking
from tests.dashboard.foreign_server import ForeignServer
from tests.dashboard.test_client import CHAT, streams, text
from tests.dashboard.test_conversation import settled


@pytest.fixture
def asking(foreign: ForeignServer) -> Asking:
    foreign.replies[CHAT] = streams(text("ok", "stop"), "data: [DONE]\n\n")
    return Asking(Conversation(), foreign.url, (Choices("m"),), "")


def test_settings_that_cannot_be_used_ask_nothing(foreign: ForeignServer) -> None:
    asking = Asking(Conversation(), foreign.url, None, "")
    asking.ask("Hi")
    assert asking.conversation.turns == []


def test_an_edit_of_spaces_changes_nothing(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.ask("A")
    settled(asking.conversation)
    monkeypatch.setattr(st, "session_state", {"edit": "  ", "other": "B"})
    asking.edited(0, "edit")
    assert [turn.question for turn in asking.conversation.turns] == ["A"]
    asking.edited(0, "other")
    settled(asking.conversation)
    assert [turn.question for turn in asking.conversation.turns] == ["B"]


def test_each_call_gets_its_own_result(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.ask("A")
    settled(asking.conversation)
    monkeypatch.setattr(st, "session_state", {"r0": "rain"})
    asking.answered((Call("c1", "f", "{}"), Call("c2", "g", "{}")), "r")
    settled(asking.conversation)
    assert asking.conversation.turns[-1].messages == (
        Message("tool", "rain", call_id="c1"),
        Message("tool", "", call_id="c2"),
    )


def test_a_tool_name_from_the_model_is_no_image_in_a_label() -> None:
    def script() -> None:
        from types import SimpleNamespace

        from dashboard.apis.ask import Call
        from dashboard.play.actions import Asking, tool_results

        calls = (Call("c1", "![x](http://127.0.0.1:9/label.png) f", "{}"),)
        conversation = SimpleNamespace(turns=[object()], open_calls=lambda: calls)
        tool_results(Asking(conversation, "", None, ""))  # type: ignore[arg-type]

    app = AppTest.from_function(script, default_timeout=60).run()
    assert app.text_area[0].label == r"Result of !\[x](http://127.0.0.1:9/label.png) f"
