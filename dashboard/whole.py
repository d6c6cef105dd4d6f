"""A field for a whole number."""

from __future__ import annotations

from typing import Any, Literal, overload

import streamlit as st

from dashboard.markdown import plain_markdown
from dashboard.words import in_full

# What a field returns if its content cannot be used; the reason is then shown below it.
UNUSABLE: Any = object()
_MOST = 2**53 - 1  # the browser's numbers are exact up to here


@overload
def whole_field(
    label: str,
    least: int | None = None,
    most: int = _MOST,
    *,
    value: int | Literal["min"] = "min",
    key: str | None = None,
) -> int: ...
@overload
def whole_field(
    label: str,
    least: int | None = None,
    most: int = _MOST,
    *,
    value: None,
    key: str | None = None,
    placeholder: str | None = None,
) -> int | None: ...
def whole_field(
    label: str,
    least: int | None = None,
    most: int = _MOST,
    *,
    value: int | Literal["min"] | None = "min",
    key: str | None = None,
    placeholder: str | None = None,
) -> int | None:
    """Return what was entered, or ``UNUSABLE`` if that has a fraction.

    It is a field for any number: of what is typed into Streamlit's field for whole numbers, the
    browser takes only the digits at the beginning, which makes 1 of ``1e5``.
    """
    with st.container(gap="xsmall"):
        entered = st.number_input(
            label,
            min_value=None if least is None else float(least),
            max_value=float(most),
            value=float(value) if isinstance(value, int) else value,
            step=1.0,
            format="%g",  # shown in full: the browser's %g shortens nothing, unlike Python's
            key=key,
            placeholder=placeholder,
        )
        if entered is None:
            return None
        if entered != int(entered):
            st.error(plain_markdown(not_whole(entered)))
            return UNUSABLE  # type: ignore[no-any-return]
    return int(entered)


def not_whole(entered: float) -> str:
    """Say what is wrong with a number that has a fraction."""
    return f"{in_full(entered)} is not a whole number. Enter one without a point, such as 2048."
