"""What is left to the server is left out."""

from __future__ import annotations

from dashboard.apis.ask import Ask, Call, Message, arguments_of, given


def test_only_what_has_a_value_is_given() -> None:
    assert given(a=None, b="", c=[], d=0, e=0.0, f="x") == {"d": 0, "e": 0.0, "f": "x"}


def test_arguments_that_are_no_object_stay_as_text() -> None:
    assert arguments_of(Call("1", "f", '{"a": 1}')) == {"a": 1}
    assert arguments_of(Call("1", "f", "{broken")) == {"arguments": "{broken"}
    assert arguments_of(Call("1", "f", "")) == {}


def test_the_last_message_is_the_text() -> None:
    assert Ask("m", (Message("user", "a"), Message("user", "b"))).text == "b"
    assert Ask("m", ()).text == ""
