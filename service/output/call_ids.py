"""Generates tool call ids when a call begins."""

from __future__ import annotations

import secrets
import string
import uuid
from collections.abc import Callable
from typing import Literal

_LETTERS_AND_DIGITS = string.ascii_letters + string.digits


def new_call_id(style: Literal["random", "nine"]) -> Callable[[], str]:
    """``nine``: nine letters and digits, as Mistral's chat templates require."""
    return _nine if style == "nine" else _random


def _random() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _nine() -> str:
    return "".join(secrets.choice(_LETTERS_AND_DIGITS) for _ in range(9))
