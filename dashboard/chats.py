"""Chats that survive a reload of the page.

A chat is named by a random id in the page's address. The address alone opens nothing: a chat opens
only in the browser that it was held in. It opens as a copy where another tab still has it, so that
two tabs never write into one chat. API keys are not kept.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.conversation import Conversation
from dashboard.play.settings import KEPT
from dashboard.session import typed

MOST_CHATS = 200
MOST_CHARACTERS = 16_000_000
"""Of all chats together; beyond it the ones longest unused are forgotten."""

PARAMETER = "chat"


@dataclass(slots=True)
class Chat:
    """``browser``: whose it is; ``session``: the page that has it open."""

    browser: str
    session: str
    conversation: Conversation = field(default_factory=Conversation)
    choices: dict[str, Any] = field(default_factory=dict)
    size: int = 0


class Chats:
    """All chats of this process, bounded in number and characters."""

    def __init__(self, most: int = MOST_CHATS, most_characters: int = MOST_CHARACTERS) -> None:
        self._most = most
        self._most_characters = most_characters
        self._chats: OrderedDict[str, Chat] = OrderedDict()  # the longest unused first
        self._lock = threading.Lock()

    def open(
        self, name: str, browser: str, session: str, is_open: Callable[[str], bool]
    ) -> tuple[str, Chat] | None:
        """The chat called ``name`` for a page that was just loaded, with the name it has from now
        on; None if there is none for this browser."""
        with self._lock:
            chat = self._chats.get(name)
            if chat is None or not browser or chat.browser != browser:
                return None
            if not is_open(chat.session):
                chat.session = session
                return name, chat
            copy = Chat(browser, session, chat.conversation.copy(), dict(chat.choices))
            return new_name(), copy

    def keep(self, name: str, chat: Chat) -> None:
        """Called whenever a chat has been used. One that is too long by itself is not kept."""
        chat.size = chat.conversation.size + sum(len(str(value)) for value in chat.choices.values())
        with self._lock:
            self._chats.pop(name, None)
            if chat.size <= self._most_characters:
                self._chats[name] = chat
            held = sum(other.size for other in self._chats.values())
            while len(self._chats) > self._most or held > self._most_characters:
                held -= self._chats.popitem(last=False)[1].size

    def __len__(self) -> int:
        return len(self._chats)


def new_name() -> str:
    return secrets.token_urlsafe(16)


def browser_of(cookies: Mapping[str, str]) -> str:
    """What distinguishes this browser from others: a digest of the token in Streamlit's cookie
    against cross-site requests, which is random, and masked anew in each response. Empty without
    one."""
    fields = str(cookies.get("_streamlit_xsrf", "")).strip('"').split("|")
    if len(fields) != 4 or fields[0] != "2":
        return ""
    try:
        mask, masked = bytes.fromhex(fields[1]), bytes.fromhex(fields[2])
    except ValueError:
        return ""
    if len(mask) != 4 or not masked:
        return ""
    token = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
    return hashlib.sha256(token).hexdigest()


@st.cache_resource(show_spinner=False)
def _all() -> Chats:
    return Chats()


def reopen() -> None:
    """Called by every page, since a reload may happen on any: brings back the chat that the address
    names, and keeps its name in the address."""
    state = st.session_state
    name = st.query_params.get(PARAMETER)
    if name and "chat" not in state:
        found = _all().open(name, browser_of(st.context.cookies), page_session(), _is_open)
        if found is not None:
            state["chat"] = found
            typed().update(found[1].choices)
    _show_name()


def current() -> Conversation:
    """The chat of this page."""
    fresh = new_name(), Chat(browser_of(st.context.cookies), page_session())
    chat: Chat = st.session_state.setdefault("chat", fresh)[1]
    return chat.conversation


def keep() -> None:
    """Keeps this page's chat as it now is, once something was asked in it."""
    name, chat = st.session_state["chat"]
    chat.choices = {key: value for key, value in typed().items() if key in KEPT}
    if chat.conversation.turns:
        _all().keep(name, chat)
    _show_name()


def _show_name() -> None:
    name, chat = st.session_state.get("chat", ("", None))
    if chat is not None and chat.conversation.turns:
        st.query_params[PARAMETER] = name
    elif PARAMETER in st.query_params:
        del st.query_params[PARAMETER]


def page_session() -> str:
    context = get_script_run_ctx()
    return "" if context is None else context.session_id


def _is_open(session: str) -> bool:
    return runtime.exists() and runtime.get_instance().is_active_session(session)
