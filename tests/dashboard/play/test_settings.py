"""The side bar gives each pane its settings, and none where something cannot be used."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from dashboard.play import inputs
from dashboard.play.settings import KEPT, PRESETS


def bar() -> None:
    import streamlit as st

    from dashboard.play.settings import panes

    found = panes(["m", "n"])
    st.session_state["found"] = found


def found(app: AppTest):  # type: ignore[no-untyped-def]  # what the script has put there
    assert not app.exception, app.exception
    return app.session_state["found"]


def test_what_is_not_set_is_left_to_the_server() -> None:
    (choices,) = found(AppTest.from_function(bar, default_timeout=60).run())
    assert (choices.model, choices.api.name) == ("m", "Chat completions")
    assert (choices.seed, choices.thinking, choices.stop, choices.schema) == (None, None, (), None)


def test_each_pane_has_its_own_settings() -> None:
    app = AppTest.from_function(bar, default_timeout=60).run()
    app.toggle(key="two_panes").set_value(True).run()
    app.selectbox(key="model_2").set_value("n").run()
    app.slider(key="temperature").set_value(0.0).run()
    first, second = found(app)
    assert (first.model, first.temperature) == ("m", 0.0)
    assert (second.model, second.temperature) == ("n", 0.7)


def test_an_api_shows_only_what_it_has_a_field_for() -> None:
    app = AppTest.from_function(bar, default_timeout=60).run()
    app.selectbox(key="api").set_value("Messages").run()
    keys = {widget.key for widget in (*app.number_input, *app.toggle, *app.text_area)}
    assert {"max_tokens", "stop", "tools"} <= keys
    assert not {"seed", "logprobs", "documents"} & keys


def test_without_documents_there_is_nothing_to_rank() -> None:
    app = AppTest.from_function(bar, default_timeout=60).run()
    app.selectbox(key="api").set_value("Rerank").run()
    assert found(app) is None
    app.text_area(key="documents").set_value("a\nb").run()
    assert found(app)[0].documents == ("a", "b")


def test_what_cannot_be_read_is_said_and_nothing_is_sent() -> None:
    app = AppTest.from_function(bar, default_timeout=60).run()
    app.text_area(key="schema").set_value("[]").run()
    assert found(app) is None
    assert "must be a JSON object" in app.error[0].value


def test_a_preset_sets_what_it_names_and_nothing_else() -> None:
    app = AppTest.from_function(bar, default_timeout=60).run()
    app.text_area(key="system").set_value("Be brief.").run()
    app.selectbox(key="preset").set_value("Call a tool").run()
    (choices,) = found(app)
    assert choices.tools == inputs.tools(inputs.EXAMPLE_TOOLS)
    assert (choices.temperature, choices.system) == (0.0, "Be brief.")


def test_presets_set_only_what_is_kept_with_a_chat() -> None:
    assert {name for preset in PRESETS.values() for name in preset} <= set(KEPT)
