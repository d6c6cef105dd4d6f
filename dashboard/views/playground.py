"""Chat with a model, and see what each answer cost."""

from __future__ import annotations

from functools import partial

import httpx
import streamlit as st

from dashboard import chats, server
from dashboard.client import prepare
from dashboard.markdown import plain_label, plain_markdown, plain_name
from dashboard.play import settings, turns
from dashboard.play.actions import Asking, below_last, beside_question
from dashboard.play.results import tool_results
from dashboard.session import chosen_server, remembered

_HEIGHT = 480  # pixels, where the style sheet is not followed

_POCKET = (
    "**pocket** is Quire's built-in demonstration model: a few megabytes, trained from scratch on "
    "generated text. It speaks the whole protocol (it chats a little, thinks, calls tools, stops "
    "by itself), but it knows next to nothing and is not an assistant. Serve a real checkpoint "
    "with `quire serve PATH`."
)
_POCKET_QUESTIONS = ("Who are you?", "What can you do?", "Tell me a story about a fox.")


def page() -> None:
    conversation = chats.current()
    with st.sidebar:
        url = chosen_server()
        api_key = st.text_input(
            "API key",
            type="password",
            key=remembered("api_key", ""),
            autocomplete="off",
            help="Only if the server requires one. It is kept in this dashboard's memory for "
            "your session, until you reload the page, and sent to the server with each request.",
        )
    prepare(url)
    models = _models(url, api_key)
    problem = models if isinstance(models, str) else None
    panes = None
    if not isinstance(models, str):
        with st.sidebar:
            panes = settings.panes(models)
    asking = Asking(conversation, url, panes, api_key)
    was_running = conversation.running
    question = _bottom(asking, problem)
    chats.keep()
    if question:
        asking.ask(question)
        st.rerun()
    if not conversation.turns:
        _welcome(asking)
        return
    # The style sheet turns the outer container upside down, so that the browser keeps it at its
    # end, unless one has scrolled up.
    with st.container(height=_HEIGHT, border=False, autoscroll=False, key="chat"), st.container():
        _chat(asking)
    if was_running and not conversation.running:
        st.rerun()  # the answer ended after the field for questions had been drawn as disabled


def _chat(asking: Asking) -> None:
    conversation = asking.conversation
    last = len(conversation.turns) - 1
    for index, turn in enumerate(conversation.turns):
        if turn.running:
            turns.follow(turn)
            st.rerun()
        turns.question(turn, partial(beside_question, asking, index))
        turns.ended(turn)
        if index == last:
            tool_results(asking)
            below_last(asking)


def _models(url: str, api_key: str) -> list[str] | str:
    """Names of the models, or why there are none, in words."""
    try:
        return _listed(url, api_key) or "The server lists no models."
    except httpx.TransportError as error:
        return server.unreachable(url, error)
    except server.UnusableKeyError as error:
        return str(error)
    except server.RefusalError as error:
        if error.status != httpx.codes.UNAUTHORIZED:
            return str(error)
        # The server's own words are about the header that a client should send.
        wrong = "does not know this API key. Correct" if api_key else "needs an API key. Enter"
        return f"The server {wrong} it in the side bar."


@st.cache_data(ttl=10, show_spinner=False)
def _listed(url: str, api_key: str) -> list[str]:
    """Asking on each redraw would be a request per click."""
    return server.list_models(url, api_key)


def _bottom(asking: Asking, problem: str | None) -> str | None:
    """``problem``: why no model can be asked."""
    conversation, panes = asking.conversation, asking.panes
    with st.bottom:
        if problem is not None:
            st.warning(plain_markdown(problem))
            st.button("Try again", icon=":material/refresh:")
        if conversation.running:
            st.button(
                "Stop", icon=":material/stop_circle:", key="stop-answer", on_click=conversation.stop
            )
            label = "Answering"
        elif problem is not None:
            label = "Not available now"
        elif panes is None:
            label = "Correct the settings first"
        else:
            label = panes[0].api.asks_for
        return st.chat_input(
            label,
            key="question",
            disabled=conversation.running or panes is None,
            submit_mode="disable",
        )


def _welcome(asking: Asking) -> None:
    st.subheader("Playground")
    if asking.panes is None:
        return
    model = asking.panes[0].model
    if model != "pocket":
        st.markdown(plain_label(f"Ask {plain_name(model)} something."))
        return
    st.markdown(_POCKET)
    with st.container(horizontal=True):
        for question in _POCKET_QUESTIONS:
            st.button(question, on_click=asking.ask, args=(question,))
