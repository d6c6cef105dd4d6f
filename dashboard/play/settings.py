"""The side bar: what is set for the next answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import streamlit as st

from dashboard.apis.table import APIS, BY_NAME
from dashboard.conversation import Choices
from dashboard.markdown import plain_markdown
from dashboard.play import inputs
from dashboard.session import SERVER, pick, remembered, typed
from dashboard.whole import UNUSABLE, whole_field

T = TypeVar("T")

THINKING = {"Model's default": None, "On": True, "Off": False}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "Balanced": {"temperature": 0.7, "top_p": 0.95},
    "Precise": {"temperature": 0.0, "top_p": 1.0, "seed": 1},
    "Creative": {"temperature": 1.2, "top_p": 0.98},
    "Think first": {"thinking": "On", "temperature": 0.6, "max_tokens": 4096},
    "Answer in JSON": {"schema": inputs.EXAMPLE_SCHEMA, "temperature": 0.0},
    "Call a tool": {"tools": inputs.EXAMPLE_TOOLS, "temperature": 0.0},
}

# What is set for each pane.
NAMES = (
    *("api", "model", "system", "temperature", "top_p", "max_tokens", "seed", "thinking"),
    *("stop", "tools", "schema", "logprobs", "documents"),
)
SECOND = "_2"  # ends the keys of the second pane's widgets
# What comes back with the chat after a reload.
KEPT = (SERVER, *NAMES, *(name + SECOND for name in NAMES), "two_panes")


def panes(models: list[str]) -> tuple[Choices, ...] | None:
    """The settings of each pane; None if one of them cannot be used. The reason is then shown next
    to it."""
    two = st.toggle(
        "Two panes",
        key=remembered("two_panes", False),
        help="Send each question twice, with different settings.",
    )
    if not two:
        one = _choices(models, "")
        return None if one is None else (one,)
    first_tab, second_tab = st.tabs(["Pane A", "Pane B"])
    with first_tab:
        first = _choices(models, "")
    with second_tab:
        second = _choices(models, SECOND)
    return None if first is None or second is None else (first, second)


def _choices(models: list[str], pane: str) -> Choices | None:
    api = BY_NAME[pick("API", [api.name for api in APIS], f"api{pane}")]
    model = pick("Model", models, f"model{pane}")
    values: dict[str, Any] = {}
    if "system" in api.uses:
        values["system"] = st.text_area(
            "System prompt", key=remembered(f"system{pane}", ""), height=90
        )
    if "documents" in api.uses:
        text = st.text_area(
            "Documents, one per line", key=remembered(f"documents{pane}", ""), height=160
        )
        values["documents"] = inputs.documents(text)
        if not values["documents"]:
            st.caption("Enter at least one document.")
            return None
    if "temperature" in api.uses:
        values |= _length_and_temperature(pane)
    if "top_p" in api.uses:
        with st.expander("More"):
            values |= _more(api.uses, pane)
    if UNUSABLE in values.values():
        return None
    return Choices(model=model, api=api, **values)


def _length_and_temperature(pane: str) -> dict[str, Any]:
    return {
        "temperature": st.slider(
            "Temperature", 0.0, 2.0, step=0.05, key=remembered(f"temperature{pane}", 0.7)
        ),
        "max_tokens": whole_field(
            "Max tokens", 1, 1_000_000, key=remembered(f"max_tokens{pane}", 512)
        ),
    }


def _more(uses: frozenset[str], pane: str) -> dict[str, Any]:
    st.selectbox(
        "Preset",
        list(PRESETS),
        index=None,
        key=f"preset{pane}",
        placeholder="choose one",
        on_change=_apply_preset,
        args=(pane,),
    )
    values: dict[str, Any] = {
        "top_p": st.slider("Top p", 0.01, 1.0, step=0.01, key=remembered(f"top_p{pane}", 0.95))
    }
    if "seed" in uses:
        values["seed"] = whole_field(
            "Seed", 0, value=None, key=remembered(f"seed{pane}"), placeholder="random"
        )
    if "thinking" in uses:
        chosen = st.segmented_control(
            "Thinking",
            list(THINKING),
            required=True,
            key=remembered(f"thinking{pane}", next(iter(THINKING))),
            help="Sent to the chat template as enable_thinking.",
        )
        values["thinking"] = THINKING.get(chosen or "")
    if "logprobs" in uses:
        values["logprobs"] = st.toggle(
            "Logprobs",
            key=remembered(f"logprobs{pane}", False),
            help="Shows how likely each token was.",
        )
    written: dict[str, Any] = {
        "stop": _written("Stop strings, one per line", f"stop{pane}", inputs.stops),
        "schema": _written("JSON schema", f"schema{pane}", inputs.schema),
    }
    if "tools" in uses:
        written["tools"] = _written("Tools (JSON)", f"tools{pane}", inputs.tools)
    return values | written


def _written(label: str, key: str, read: Callable[[str], T]) -> T:
    """What was written, read; ``UNUSABLE`` if it cannot be, which is said below it."""
    text = st.text_area(label, key=remembered(key, ""), height=90)
    try:
        return read(text)
    except ValueError as error:
        st.error(plain_markdown(str(error)))
        unusable: T = UNUSABLE
        return unusable


def _apply_preset(pane: str) -> None:
    for name, value in PRESETS.get(st.session_state.get(f"preset{pane}") or "", {}).items():
        st.session_state[f"{name}{pane}"] = value
        typed()[f"{name}{pane}"] = value
