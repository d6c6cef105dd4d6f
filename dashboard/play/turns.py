"""A question and its answers, drawn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st
from streamlit.runtime.scriptrunner import StopException

from dashboard.access import reader_of
from dashboard.answer import Answer, Ending
from dashboard.client import Generation
from dashboard.closing import connection_of_page, is_closed
from dashboard.conversation import Turn
from dashboard.markdown import plain_label, plain_markdown
from dashboard.play.figures import cost, progress, reasoned
from dashboard.play.marked import differing, tinted
from dashboard.play.prompt import PromptReading

# Redraw at most this often while an answer grows, and at least twice a second while none comes.
_FRAME_SECONDS = 0.06
_PATIENCE_SECONDS = 0.5

_AVATARS = {
    "user": ":material/person:",
    "assistant": ":material/menu_book:",
    "tool": ":material/build:",
}

_NOT_ASKED = "This pane called no tool, so it got no results. Your next message goes to both."

Slot = st.delta_generator.DeltaGenerator


def question(turn: Turn, beside: Callable[[], None] | None = None) -> None:
    """``beside`` draws what can be done with it. Results that only one pane got, or that are not
    the same in both, are drawn in the panes' columns."""
    texts = {
        exchange and tuple(message.content for message in exchange.messages)
        for exchange in turn.exchanges
    }
    shared = len(texts) == 1
    exchanges = turn.exchanges[:1] if shared else turn.exchanges
    for slot, exchange in zip(_slots(len(exchanges)), exchanges, strict=True):
        with slot:
            for message in exchange.messages if exchange is not None else ():
                with _message(message.role), st.container(horizontal=True):
                    st.markdown(plain_markdown(message.content), width="stretch")
                    if beside is not None:
                        beside()


def ended(turn: Turn) -> None:
    marked = _differences([generation.answer() for generation in turn.generations])
    slots = _slots(len(turn.exchanges))
    for pane, (slot, exchange) in enumerate(zip(slots, turn.exchanges, strict=True)):
        with slot:
            if exchange is None:
                st.caption(_NOT_ASKED)
                continue
            with _message("assistant"):
                answer = exchange.generation.answer()
                _ended_answer(answer, None if marked is None else marked[pane])


def _ended_answer(answer: Answer, marked: str | None) -> None:
    """The text is drawn where it grew: elsewhere it would be seen twice for a moment, until the
    old one is replaced."""
    if answer.reasoning:
        with st.status(reasoned(answer), state="complete", expanded=False):
            st.markdown(plain_markdown(answer.reasoning))
    else:
        st.empty()
    if marked is not None:
        st.html(marked)
    elif answer.text:
        st.markdown(plain_markdown(answer.text))
    for call in answer.tool_calls:
        st.markdown(plain_label(f"Calls the tool **{call.name}** with"))
        st.code(call.arguments, language="json")
    if answer.result is not None:
        st.dataframe(answer.result, hide_index=True)
    if answer.tokens:
        with st.expander("Tokens: the darker, the less likely", expanded=True):
            st.html(tinted(answer.tokens))
    if answer.ending is Ending.FAILED:
        st.error(plain_markdown(answer.error))
    st.caption(plain_markdown(cost(answer)))


def follow(turn: Turn) -> None:
    """Draws the answers as they grow, until they end. A rerun (a slider moved) interrupts this, and
    the next run follows on; so does the run of a page whose connection was lost and is back. When
    the page was closed, the answers are stopped."""
    connection = connection_of_page()
    question(turn)
    growing = []
    for slot, exchange in zip(_slots(len(turn.exchanges)), turn.exchanges, strict=True):
        if exchange is None:
            slot.caption(_NOT_ASKED)
            continue
        generation = exchange.generation
        with slot, _message("assistant"):
            reading = PromptReading(reader_of(generation.url))
            growing.append(_Growing(generation, reading, st.empty(), st.empty(), st.empty()))
    st.empty()  # takes the place of what stood below before: Streamlit would leave it, greyed
    try:
        while True:
            for one in growing:
                one.draw()
            waiting = [one for one in growing if not one.ended]
            if not waiting:
                return
            waiting[0].wait(_PATIENCE_SECONDS if len(growing) == 1 else _FRAME_SECONDS)
            time.sleep(_FRAME_SECONDS)
    except StopException:
        if is_closed(connection):
            for generation in turn.generations:
                generation.cancel()
        raise


@dataclass(slots=True)
class _Growing:
    generation: Generation
    reading: PromptReading
    reasoning: Slot
    text: Slot
    strip: Slot
    thoughts: Slot | None = None  # inside ``reasoning``, while it is open
    folded: bool = False
    seen: int = 0
    ended: bool = False

    def draw(self) -> None:
        if self.ended:
            return
        answer = self.generation.answer()
        self.seen, self.ended = answer.chunks, answer.ending is not None
        if answer.reasoning:
            self._reason(answer)
        if answer.text:
            self.text.markdown(plain_markdown(answer.text))
        elif answer.tool_calls:
            self.text.markdown(plain_label(f"Calls the tool **{answer.tool_calls[-1].name}** …"))
        read = None if answer.chunks else self.reading.share(answer.request_id)
        self.strip.caption(progress(answer, read))

    def wait(self, seconds: float) -> None:
        self.generation.wait(self.seen, seconds)

    def _reason(self, answer: Answer) -> None:
        """Open while it grows; folded at the answer's first word, or when it ends without one."""
        if answer.text or answer.tool_calls or self.ended:
            if not self.folded:
                self.folded = True
                with self.reasoning.status(reasoned(answer), state="complete", expanded=False):
                    st.markdown(plain_markdown(answer.reasoning))
            return
        if self.thoughts is None:
            # Not a `with` block: on leaving it, Streamlit marks the box complete, and a slow
            # browser that gets both updates at once shows it folded.
            box = self.reasoning.status("Reasoning", state="running", expanded=True)
            self.thoughts = box.empty()
        self.thoughts.markdown(plain_markdown(answer.reasoning))


def _slots(count: int) -> list[Slot]:
    return [st.container()] if count == 1 else list(st.columns(count))


def _differences(answers: list[Answer]) -> tuple[str, str] | None:
    """Two panes' answers with the words marked in which they differ."""
    if len(answers) != 2 or not all(answer.text for answer in answers):
        return None
    if answers[0].text == answers[1].text or not st.session_state.get("mark_differences"):
        return None
    return differing(answers[0].text, answers[1].text)


def _message(role: str) -> Slot:
    return st.chat_message(role, avatar=_AVATARS[role])
