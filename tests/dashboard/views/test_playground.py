"""The playground, drawn by Streamlit against a running Quire, without a browser."""

from __future__ import annotations

import json

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.play.actions import Asking
from dashboard.settings import SERVERS_VARIABLE, server_name
from dashboard.views import playground as views
from tests.dashboard.drawn import words
from tests.dashboard.foreign_server import ForeignServer
from tests.dashboard.test_client import CHAT, streams, text
from tests.e2e.quire_server import QuireServer, until

SECRET = "sk-never-shown"


def playground_script() -> None:
    from dashboard.views import playground

    playground.page()


@pytest.fixture
def playground(quire: QuireServer, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Opened, and set to short, greedy answers."""
    monkeypatch.setenv(SERVERS_VARIABLE, quire.url)
    app = AppTest.from_function(playground_script, default_timeout=60).run()
    app.slider(key="temperature").set_value(0.0)
    app.number_input(key="max_tokens").set_value(4)
    return app.run()


def test_a_question_gets_an_answer_and_its_cost(playground: AppTest) -> None:
    playground.chat_input[0].set_value("Hello").run()
    shown = words(playground)
    assert "HelloHelloHelloHello" in shown
    assert "4 output tokens" in shown
    assert "prompt tokens" in shown
    assert "first token" in shown
    assert "tok/s" in shown
    assert "finish: length" in shown


def test_an_answer_that_ends_while_the_page_is_drawn_leaves_the_next_question_open(
    playground: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    bottom = views._bottom

    def slowly(asking: Asking, problem: str | None) -> str | None:
        asked = bottom(asking, problem)
        until(lambda: not asking.conversation.running, 30, "the answer's end")
        return asked

    monkeypatch.setattr(views, "_bottom", slowly)
    playground.chat_input[0].set_value("Hello").run()
    assert "finish: length" in words(playground)
    assert not playground.chat_input[0].disabled


def test_an_answer_can_be_asked_for_again_and_cleared(playground: AppTest) -> None:
    playground.chat_input[0].set_value("Hello").run()
    playground.number_input(key="max_tokens").set_value(2).run()
    button(playground, "Regenerate").click().run()
    assert "2 output tokens" in words(playground)
    assert "4 output tokens" not in words(playground)
    button(playground, "Clear").click().run()
    assert "HelloHello" not in words(playground)


def test_the_next_question_brings_the_conversation_along(playground: AppTest) -> None:
    playground.text_area(key="system").set_value("Be brief.").run()
    playground.chat_input[0].set_value("Hello").run()
    playground.chat_input[0].set_value("Hello again").run()
    command = playground.code[0].value
    sent = json.loads(command[command.index("{") : command.rindex("}") + 1])
    assert [message["role"] for message in sent["messages"]] == [
        *("system", "user", "assistant", "user")
    ]
    assert sent["messages"][2]["content"] == "Hello" * 4
    assert sent["max_tokens"] == 4
    assert sent["temperature"] == 0


def test_the_key_stays_out_of_sight(playground: AppTest) -> None:
    playground.text_input(key="api_key").set_value(SECRET).run()
    playground.chat_input[0].set_value("Hello").run()
    assert "4 output tokens" in words(playground)
    command = playground.code[0].value
    assert "Authorization: Bearer $QUIRE_API_KEY" in command
    assert SECRET not in command + words(playground)
    assert SECRET not in str(playground.query_params)


def test_a_refusal_is_shown_in_the_servers_words(playground: AppTest) -> None:
    playground.number_input(key="max_tokens").set_value(999_999).run()
    playground.chat_input[0].set_value("Hello " * 40_000).run()
    assert not playground.exception
    assert playground.error[0].value.startswith("The server refused (400): ")


def test_pocket_is_introduced_as_what_it_is(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = json.dumps({"object": "list", "data": [{"id": "pocket", "object": "model"}]})
    foreign.replies["/v1/models"] = lambda exchange: exchange.answer(200, listed)
    monkeypatch.setenv(SERVERS_VARIABLE, foreign.url)
    app = AppTest.from_function(playground_script, default_timeout=60).run()
    assert "demonstration model" in words(app)
    assert "is not an assistant" in words(app)


def test_a_server_that_wants_a_key_says_so(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"error": {"message": "A key is needed.", "type": "authentication_error"}})
    foreign.replies["/v1/models"] = lambda exchange: exchange.answer(401, body)
    monkeypatch.setenv(SERVERS_VARIABLE, foreign.url)
    app = AppTest.from_function(playground_script, default_timeout=60).run()
    assert "The server needs an API key. Enter it in the side bar." in words(app)
    app.sidebar.text_input[0].set_value("sk-wrong").run()
    assert "The server does not know this API key. Correct it in the side bar." in words(app)
    app.sidebar.text_input[0].set_value("schlüssel").run()
    assert "The API key contains characters other than printable ASCII." in words(app)


def serve(foreign: ForeignServer, answer: str) -> None:
    listed = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]})
    foreign.replies["/v1/models"] = lambda exchange: exchange.answer(200, listed)
    foreign.replies[CHAT] = streams(text(answer, "stop"), "data: [DONE]\n\n")


def test_the_chat_stays_while_the_server_is_away(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(foreign, "An answer.")
    monkeypatch.setenv(SERVERS_VARIABLE, foreign.url)
    app = AppTest.from_function(playground_script, default_timeout=60).run()
    app.chat_input[0].set_value("Hello").run()
    foreign.stop()
    st.cache_data.clear()  # of the models, which is asked every ten seconds
    app.run()
    assert "Could not connect to" in words(app)
    assert "Hello" in words(app)
    assert "An answer." in words(app)
    assert app.chat_input[0].disabled
    assert button(app, "Regenerate").disabled
    foreign.start_again()
    button(app, "Try again").click().run()
    assert "An answer." in words(app)
    assert not app.chat_input[0].disabled


def test_the_copied_code_names_the_server_that_answered(
    foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(foreign, "One.")
    with ForeignServer() as other:
        serve(other, "Two.")
        monkeypatch.setenv(SERVERS_VARIABLE, f"{foreign.url} {other.url}")
        app = AppTest.from_function(playground_script, default_timeout=60).run()
        app.chat_input[0].set_value("Hello").run()
        app.selectbox(key="server").set_value(server_name(other.url)).run()
        assert "One." in words(app)
        assert f"curl -N {foreign.url}/v1" in app.code[0].value


def button(app: AppTest, label: str):  # type: ignore[no-untyped-def]  # AppTest's own type is private
    return next(button for button in app.button if button.label == label)
