"""A turn is drawn with all that its answer has. How one grows is tested in Chromium."""

from __future__ import annotations

import pytest
from streamlit.runtime.scriptrunner import StopException
from streamlit.testing.v1 import AppTest

from dashboard.play import turns
from tests.dashboard.drawn import words


class Ended:
    """A generation that has ended."""

    url = "http://127.0.0.1:9"

    def __init__(self, **fields: object) -> None:
        from dashboard.answer import Answer, Ending

        self._answer = Answer(sent=0.0, ending=Ending.COMPLETE, **fields)  # type: ignore[arg-type]

    def answer(self) -> object:
        return self._answer


def drawn(*generations: Ended, mark: bool = False) -> AppTest:
    def script(generations: object, mark: bool) -> None:
        import streamlit as st

        from dashboard.apis.ask import Message
        from dashboard.conversation import Exchange, Turn
        from dashboard.play import turns

        st.session_state["mark_differences"] = mark
        asked = (Message("user", "What?"),)
        turn = Turn(tuple(Exchange(asked, one) for one in generations))  # type: ignore[attr-defined]
        turns.question(turn)
        turns.ended(turn)

    return AppTest.from_function(
        script, kwargs={"generations": generations, "mark": mark}, default_timeout=60
    ).run()


def test_text_reasoning_and_calls_are_shown() -> None:
    from dashboard.answer import ToolCall

    app = drawn(
        Ended(text="Yes.", reasoning="Hm.", thought_ms=1500, tool_calls=[ToolCall("", "f", "{}")])
    )
    text = words(app)
    assert all(part in text for part in ("What?", "Yes.", "Hm.", "Calls the tool **f** with"))
    assert app.status[0].label == "Reasoned for 1.50 s"
    assert app.code[0].value == "{}"


def test_reasoning_that_is_cut_short_no_longer_spins_while_another_answer_grows() -> None:
    def script(generation: object) -> None:
        from dashboard.apis.ask import Message
        from dashboard.conversation import Exchange, Turn
        from dashboard.play import turns

        turns.follow(Turn((Exchange((Message("user", "What?"),), generation),)))  # type: ignore[arg-type]

    cut = Ended(reasoning="Hm.", thought_ms=1500)
    app = AppTest.from_function(script, kwargs={"generation": cut}, default_timeout=60).run()
    (box,) = app.status
    assert (box.label, box.state) == ("Reasoned for 1.50 s", "complete")


@pytest.mark.parametrize("closed", [True, False])
def test_an_answer_is_stopped_when_the_page_is_closed_and_not_when_it_lost_its_connection(
    monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    def script(generation: object) -> None:
        from dashboard.apis.ask import Message
        from dashboard.conversation import Exchange, Turn
        from dashboard.play import turns

        turns.follow(Turn((Exchange((Message("user", "What?"),), generation),)))  # type: ignore[arg-type]

    class Growing(Ended):
        cancelled = False

        def wait(self, _: int, __: float) -> None:
            """As Streamlit ends the script of a page without a connection."""
            raise StopException

        def cancel(self) -> None:
            self.cancelled = True

    monkeypatch.setattr(turns, "connection_of_page", lambda: "this")
    monkeypatch.setattr(turns, "is_closed", lambda connection: connection == "this" and closed)
    generation = Growing(text="Hel")
    generation.answer().ending = None  # type: ignore[attr-defined]
    AppTest.from_function(script, kwargs={"generation": generation}, default_timeout=60).run()
    assert generation.cancelled == closed


def test_a_failure_is_told_below_what_came() -> None:
    from dashboard.answer import Ending

    failed = Ended(text="Hel")
    answer = failed.answer()
    answer.ending, answer.error = Ending.FAILED, "It broke."  # type: ignore[attr-defined]
    text = words(drawn(failed))
    assert "Hel" in text
    assert "It broke." in text


def test_differences_are_marked_where_one_wants_them() -> None:
    def marks(app: AppTest) -> int:
        return sum("<mark>" in str(element.proto.body) for element in app.get("html"))

    panes = (Ended(text="a red fox"), Ended(text="a blue fox"))
    assert marks(drawn(*panes, mark=True)) == 2
    assert marks(drawn(*panes)) == 0
    assert marks(drawn(Ended(text="same"), Ended(text="same"), mark=True)) == 0


@pytest.mark.parametrize(("pane_b", "drawn"), [("rain", 1), ("snow", 2), (None, 1)])
def test_results_are_drawn_once_where_both_panes_got_the_same(
    pane_b: str | None, drawn: int
) -> None:
    def script(generation: object, pane_b: str | None) -> None:
        from dashboard.apis.ask import Message
        from dashboard.conversation import Exchange, Turn
        from dashboard.play import turns

        def got(text: str, call_id: str) -> Exchange:
            return Exchange((Message("tool", text, call_id=call_id),), generation)  # type: ignore[arg-type]

        turn = Turn((got("rain", "a1"), None if pane_b is None else got(pane_b, "b1")))
        turns.question(turn)
        turns.ended(turn)

    app = AppTest.from_function(
        script,
        kwargs={"generation": Ended(text="It is wet."), "pane_b": pane_b},
        default_timeout=60,
    ).run()
    assert not app.exception
    messages = [message.avatar for message in app.chat_message]
    assert len(messages) == drawn + (1 if pane_b is None else 2)
    assert ("This pane called no tool" in words(app)) == (pane_b is None)
