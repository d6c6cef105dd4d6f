"""Chats survive a reload, in their browser alone, and never without bounds."""

from __future__ import annotations

import secrets

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.apis.ask import Message
from dashboard.chats import Chat, Chats, browser_of
from dashboard.client import Generation
from dashboard.conversation import Conversation, Exchange, Turn
from tests.dashboard.foreign_server import ForeignServer
from tests.dashboard.test_client import CHAT, REQUEST, Silence, finished, streams, text
from tests.e2e.quire_server import until


def nowhere(session: str) -> bool:
    return False


def everywhere(session: str) -> bool:
    return True


@pytest.fixture
def generation(foreign: ForeignServer) -> Generation:
    foreign.replies[CHAT] = streams(text("Hello", "stop"), "data: [DONE]\n\n")
    generation = Generation(foreign.url, REQUEST, api_key="secret")
    finished(generation)
    return generation


def turn(question: str, generation: Generation) -> Turn:
    return Turn((Exchange((Message("user", question),), generation),))


def chat(generation: Generation, browser: str = "mine", question: str = "Hi") -> Chat:
    return Chat(browser, "first", Conversation([turn(question, generation)]))


def test_a_page_that_is_loaded_again_has_its_chat(generation: Generation) -> None:
    chats, held = Chats(), chat(generation)
    held.choices["temperature"] = 0.2
    chats.keep("name", held)
    assert chats.open("name", "mine", "second", nowhere) == ("name", held)
    assert held.session == "second"


@pytest.mark.parametrize("browser", ["another", ""])
def test_the_address_alone_opens_nothing(generation: Generation, browser: str) -> None:
    chats = Chats()
    chats.keep("name", chat(generation))
    assert chats.open("name", browser, "second", nowhere) is None
    assert chats.open("guess", "mine", "second", nowhere) is None


def test_a_browser_that_says_nothing_of_itself_gets_nothing_back(generation: Generation) -> None:
    chats = Chats()
    chats.keep("name", chat(generation, browser=""))
    assert chats.open("name", "", "second", nowhere) is None


def test_a_second_tab_goes_on_with_a_copy(generation: Generation) -> None:
    chats, held = Chats(), chat(generation)
    chats.keep("name", held)
    opened = chats.open("name", "mine", "second", everywhere)
    assert opened is not None
    name, copy = opened
    assert name != "name"
    copy.conversation.turns.append(turn("And?", generation))
    assert [turn.question for turn in held.conversation.turns] == ["Hi"]


def test_a_copy_has_no_answer_that_still_grows(foreign: ForeignServer) -> None:
    silence = Silence(text("Hel"))
    foreign.replies[CHAT] = silence
    growing = Generation(foreign.url, REQUEST)
    until(lambda: growing.answer().chunks == 1, 20, "its beginning")
    assert Conversation([turn("Hi", growing)]).copy().turns == []
    growing.cancel()


def test_the_longest_unused_are_forgotten_first(generation: Generation) -> None:
    chats = Chats(most=2)
    for name in ("a", "b", "a", "c"):
        chats.keep(name, chat(generation))
    assert len(chats) == 2
    assert chats.open("b", "mine", "s", nowhere) is None
    assert chats.open("a", "mine", "s", nowhere) is not None


def test_all_together_have_a_bound_in_characters(generation: Generation) -> None:
    generation.forget_events()
    chats = Chats(most_characters=1000)
    for name in "abcdefgh":
        chats.keep(name, chat(generation, question="x" * 300))
    assert len(chats) == 3
    chats.keep("long", chat(generation, question="x" * 1001))
    assert chats.open("long", "mine", "s", nowhere) is None
    assert len(chats) == 3


def cookie(token: bytes) -> dict[str, str]:
    mask = secrets.token_bytes(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(token))
    return {"_streamlit_xsrf": f"2|{mask.hex()}|{masked.hex()}|1700000000"}


def test_a_browser_is_told_by_the_token_beneath_the_mask() -> None:
    token = secrets.token_bytes(16)
    assert browser_of(cookie(token)) == browser_of(cookie(token)) != ""
    assert browser_of(cookie(token)) != browser_of(cookie(secrets.token_bytes(16)))
    assert token.hex() not in browser_of(cookie(token))


@pytest.mark.parametrize("value", ["", "x", "2|zz|zz|1", "2||00|1", "2|00000000||1", "1|aa|bb|1"])
def test_a_cookie_that_cannot_be_read_is_no_browser(value: str) -> None:
    assert browser_of({"_streamlit_xsrf": value}) == ""


def page() -> None:
    import streamlit as st

    from dashboard import chats

    chats.reopen()
    conversation = chats.current()
    chats.keep()
    st.caption(f"{len(conversation.turns)} turns")


def test_what_comes_back_with_a_chat_includes_its_server() -> None:
    def script() -> None:
        import streamlit as st

        from dashboard import chats
        from dashboard.session import typed

        typed()["server"] = "b:8000"
        typed()["api_key"] = "secret"
        chats.current()
        chats.keep()
        st.caption(str(st.session_state["chat"][1].choices))

    app = AppTest.from_function(script).run()
    assert app.caption[0].value == "{'server': 'b:8000'}"


def test_an_empty_chat_has_no_address() -> None:
    app = AppTest.from_function(page).run()
    assert app.caption[0].value == "0 turns"
    assert not app.query_params


def test_a_name_that_nobody_gave_is_taken_out_of_the_address() -> None:
    app = AppTest.from_function(page)
    app.query_params["chat"] = "made-up"
    app.run()
    assert app.caption[0].value == "0 turns"
    assert not app.query_params
