"""What can be done with a turn, by the callbacks that the buttons call. The buttons themselves are
pressed in Chromium."""

from __future__ import annotations

import pytest
import streamlit as st

from dashboard.apis.ask import Ask, Tool
from dashboard.conversation import Choices, Conversation
from dashboard.play.actions import Asking, differences
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


def test_what_differs_is_in_the_words_of_the_settings() -> None:
    tools = (Tool("get_weather", "", {}), Tool("get_time", "", {}))
    plain = Ask("m", ())
    other = Ask(
        "m",
        (),
        temperature=0.5,
        thinking=False,
        stop=("a\n", "b"),
        tools=tools,
        schema={"type": "object"},
        logprobs=True,
    )
    assert differences(plain, plain) == []
    assert differences(plain, other) == [
        "temperature: – / 0.5",
        "thinking: – / off",
        'stop: – / "a\\n", "b"',
        "tools: – / get_weather, get_time",
        'schema: – / {"type": "object"}',
        "logprobs: off / on",
    ]
    changed = (Tool("get_weather", "Now", {}), tools[1])
    assert differences(Ask("m", (), tools=tools), Ask("m", (), tools=changed)) == [
        "tools: get_weather, get_time / get_weather, get_time, defined differently"
    ]
