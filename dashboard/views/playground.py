"""Chat with a model, and see what each answer cost."""

from __future__ import annotations

import json
import time

import httpx
import msgspec
import streamlit as st
from streamlit.runtime.scriptrunner import StopException

from dashboard import chats, server
from dashboard.answer import Answer, Ending, Timings
from dashboard.client import Generation, prepare
from dashboard.conversation import Choices, Conversation, Turn
from dashboard.curl import as_curl
from dashboard.session import chosen_server, pick, remembered
from dashboard.words import duration, number, plain_markdown

# Redraw at most this often while an answer grows, and at least twice a second while none comes.
_FRAME_SECONDS = 0.06
_PATIENCE_SECONDS = 0.5

_HEIGHT = 480  # pixels, where the style sheet is not followed

_AVATARS = {"user": ":material/person:", "assistant": ":material/menu_book:"}

_THINKING = {"Model's default": None, "On": True, "Off": False}

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
    if isinstance(models, str):
        st.warning(plain_markdown(models))
        st.button("Try again", icon=":material/refresh:")
        return
    with st.sidebar:
        choices = _choices(models)
    running = conversation.running
    question = _bottom(conversation, running)
    chats.keep()
    if question:
        conversation.ask(url, question, choices, api_key)
        st.rerun()
    if not conversation.turns:
        _welcome(conversation, url, choices, api_key)
        return
    # The style sheet turns the outer container upside down, so that the browser keeps it at its
    # end, unless one has scrolled up.
    with st.container(height=_HEIGHT, border=False, autoscroll=False, key="chat"), st.container():
        for turn in conversation.turns[:-1]:
            _draw_turn(turn, turn.generation.answer())
        last = conversation.turns[-1]
        if running is not None:
            _follow(last)
            st.rerun()
        _draw_turn(last, last.generation.answer())
        _actions(conversation, url, choices, api_key)


# --- settings -------------------------------------------------------------------------------------


def _models(url: str, api_key: str) -> list[str] | str:
    """Names of the models, or why there are none, in words."""
    try:
        return _listed(url, api_key) or "The server lists no model."
    except httpx.TransportError as error:
        return server.unreachable(url, error)
    except server.RefusalError as error:
        return str(error)


@st.cache_data(ttl=10, show_spinner=False)
def _listed(url: str, api_key: str) -> list[str]:
    """Asking on each redraw would be a request per click."""
    return server.list_models(url, api_key)


def _choices(models: list[str]) -> Choices:
    return Choices(
        model=pick("Model", models, "model"),
        system=st.text_area("System prompt", key=remembered("system", ""), height=90),
        temperature=st.slider(
            "Temperature", 0.0, 2.0, step=0.05, key=remembered("temperature", 0.7)
        ),
        top_p=st.slider("Top p", 0.01, 1.0, step=0.01, key=remembered("top_p", 0.95)),
        max_tokens=st.number_input("Max tokens", 1, 1_000_000, key=remembered("max_tokens", 512)),
        seed=st.number_input(
            "Seed", 0, None, None, 1, key=remembered("seed"), placeholder="a new one each time"
        ),
        thinking=_THINKING.get(
            st.segmented_control(
                "Thinking",
                list(_THINKING),
                required=True,
                key=remembered("thinking", next(iter(_THINKING))),
                help="Sent to the chat template as enable_thinking.",
            )
            or ""
        ),
    )


# --- the page's parts -----------------------------------------------------------------------------


def _bottom(conversation: Conversation, running: Generation | None) -> str | None:
    with st.bottom:
        if running is not None:
            st.button("Stop", icon=":material/stop_circle:", key="stop", on_click=conversation.stop)
        return st.chat_input(
            "Answering" if running else "Ask something",
            key="question",
            disabled=running is not None,
            submit_mode="disable",
        )


def _welcome(conversation: Conversation, url: str, choices: Choices, api_key: str) -> None:
    st.subheader("Playground")
    if choices.model != "pocket":
        st.markdown(f"Ask **{plain_markdown(choices.model)}** something.")
        return
    st.markdown(_POCKET)
    with st.container(horizontal=True):
        for question in _POCKET_QUESTIONS:
            st.button(question, on_click=conversation.ask, args=(url, question, choices, api_key))


def _follow(turn: Turn) -> None:
    """Draws the answer as it grows, until it ends. A rerun (a slider moved) interrupts this, and
    the next run follows on; when the browser has gone, the answer is stopped."""
    with _message("user"):
        st.markdown(plain_markdown(turn.question))
    with _message("assistant"):
        reasoning, text, strip = st.empty(), st.empty(), st.empty()
    st.empty()  # takes the place of what stood below before: Streamlit would leave it, greyed
    generation = turn.generation
    try:
        while True:
            answer = generation.answer()
            if answer.reasoning:
                _reasoning(reasoning, answer)
            if answer.text:
                text.markdown(plain_markdown(answer.text))
            strip.caption(progress(answer))
            if answer.ending is not None:
                return
            generation.wait(answer.chunks, _PATIENCE_SECONDS)
            time.sleep(_FRAME_SECONDS)
    except StopException:
        generation.cancel()
        raise


def _draw_turn(turn: Turn, answer: Answer) -> None:
    with _message("user"):
        st.markdown(plain_markdown(turn.question))
    with _message("assistant"):
        if answer.reasoning:
            _reasoning(st.empty(), answer)
        if answer.text:
            st.markdown(plain_markdown(answer.text))
        for call in answer.tool_calls:
            st.markdown(f"Calls the tool **{plain_markdown(call.name)}** with")
            st.code(call.arguments, language="json")
        if answer.ending is Ending.FAILED:
            st.error(plain_markdown(answer.error))
        st.caption(plain_markdown(cost(answer)))


def _message(role: str) -> st.delta_generator.DeltaGenerator:
    return st.chat_message(role, avatar=_AVATARS[role])


def _reasoning(slot: st.delta_generator.DeltaGenerator, answer: Answer) -> None:
    with slot.expander("Reasoning"):
        st.markdown(plain_markdown(answer.reasoning))


def progress(answer: Answer) -> str:
    """What stands under an answer that grows: how long one has waited, then what the server has
    counted so far."""
    if not answer.chunks:
        return f"Waiting for the first token, {duration(time.monotonic() - answer.sent, 2)}"
    if answer.usage is None:
        return "Answering"
    return f"{answer.usage.completion_tokens:,} output tokens so far"


def cost(answer: Answer) -> str:
    """What stands under an answer. Times and rates are the server's own."""
    timings, usage = answer.timings or Timings(), answer.usage
    parts = [
        f"{name} {duration(milliseconds / 1000)}"
        for name, milliseconds in (
            ("queue", timings.queue_ms),
            ("prefill", timings.prefill_ms),
            ("first token", timings.time_to_first_token_ms),
        )
        if milliseconds is not None
    ]
    if timings.output_tokens_per_second is not None:
        parts.append(f"{number(timings.output_tokens_per_second)} tok/s")
    if usage is not None:
        cached = usage.cached_tokens
        kept = f" ({cached:,} cached)" if cached is not None else ""
        parts.append(f"{usage.prompt_tokens:,} prompt tokens{kept}")
        parts.append(f"{usage.completion_tokens:,} output tokens")
    elif answer.ending is not None:
        parts.append(f"{answer.chunks:,} chunks received")
    if answer.ending is Ending.STOPPED:
        parts.append("stopped before its end")
    elif answer.finish_reason is not None:
        parts.append(f"finish: {answer.finish_reason}")
    return " · ".join(parts)


def record(answer: Answer) -> str:
    """All that the server says of the request, in its own digits."""
    ids = {"request_id": answer.request_id, "trace_id": answer.trace_id}
    told = {} if answer.timings is None else msgspec.structs.asdict(answer.timings)
    known = {name: value for name, value in (ids | told).items() if value not in ("", None)}
    return json.dumps(known, indent=2)


def _actions(conversation: Conversation, url: str, choices: Choices, api_key: str) -> None:
    with st.container(horizontal=True):
        st.button(
            "Regenerate",
            icon=":material/refresh:",
            type="tertiary",
            on_click=conversation.ask_again,
            args=(url, choices, api_key),
        )
        with st.popover("Copy as curl", icon=":material/terminal:", type="tertiary"):
            request = conversation.turns[-1].generation.request
            st.code(as_curl(url, request, bool(api_key)), language="bash", wrap_lines=True)
        answer = conversation.turns[-1].generation.answer()
        if answer.timings is not None:
            with st.popover("Timings", icon=":material/timer:", type="tertiary"):
                st.markdown("What the server measured, in its own digits.")
                st.code(record(answer), language="json")
        st.button(
            "Clear",
            icon=":material/delete:",
            type="tertiary",
            on_click=conversation.clear,
        )
