"""What a visitor has typed outlives the page it was typed on, and stays in this process."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.session import poller_for
from dashboard.settings import SERVERS_VARIABLE

SERVERS = "http://127.0.0.1:9 http://127.0.0.1:10"


def two_pages() -> None:
    import streamlit as st

    from dashboard.session import remembered

    if st.toggle("other page", key="other"):
        return
    st.text_input("Name", key=remembered("name", "nobody"))


def models() -> None:
    import streamlit as st

    from dashboard.session import pick

    listed = ["a", "b"] if not st.toggle("reloaded", key="reloaded") else ["c", "a"]
    st.caption(pick("Model", listed, "model"))


def server() -> None:
    import streamlit as st

    from dashboard.session import chosen_server

    st.caption(chosen_server())


def test_a_value_is_there_again_when_its_page_is() -> None:
    app = AppTest.from_function(two_pages).run()
    assert app.text_input(key="name").value == "nobody"
    app.text_input(key="name").set_value("Ada").run()
    app.toggle(key="other").set_value(True).run()
    assert not app.text_input
    app.run()  # Streamlit forgets the values of widgets that a run has not drawn
    app.toggle(key="other").set_value(False).run()
    assert app.text_input(key="name").value == "Ada"
    assert not app.query_params


def test_a_choice_that_is_no_longer_offered_gives_way_to_the_first() -> None:
    app = AppTest.from_function(models).run()
    assert app.caption[0].value == "a"
    app.selectbox(key="model").set_value("b").run()
    assert app.caption[0].value == "b"
    app.toggle(key="reloaded").set_value(True).run()
    assert app.caption[0].value == "c"


def test_a_server_is_asked_for_only_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, SERVERS.split()[0])
    alone = AppTest.from_function(server).run()
    assert not alone.selectbox
    assert alone.caption[0].value == SERVERS.split()[0]
    monkeypatch.setenv(SERVERS_VARIABLE, SERVERS)
    app = AppTest.from_function(server).run()
    app.selectbox(key="server").set_value("127.0.0.1:10").run()
    assert app.caption[0].value == SERVERS.split()[1]
    assert app.query_params == {"server": "127.0.0.1:10"}


def test_the_address_decides_which_server_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, SERVERS)
    app = AppTest.from_function(server)
    app.query_params["server"] = "127.0.0.1:10"
    assert app.run().caption[0].value == SERVERS.split()[1]
    app.query_params["server"] = "elsewhere"
    assert app.run().caption[0].value == SERVERS.split()[1]
    del app.query_params["server"]
    assert app.run().caption[0].value == SERVERS.split()[0]


def test_all_sessions_share_one_poller_for_each_server() -> None:
    try:
        assert poller_for("http://127.0.0.1:9") is poller_for("http://127.0.0.1:9")
        assert poller_for("http://127.0.0.1:9") is not poller_for("http://127.0.0.1:10")
    finally:
        poller_for.clear()
