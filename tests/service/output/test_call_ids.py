"""Ids of calls have the shape that templates require, and no two are the same."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from service.output.call_ids import new_call_id


@pytest.mark.parametrize(
    ("style", "shape"), [("nine", r"[A-Za-z0-9]{9}"), ("random", r"call_[0-9a-f]{24}")]
)
def test_every_id_is_new_and_of_its_shape(style: Literal["nine", "random"], shape: str) -> None:
    mint = new_call_id(style)
    ids = [mint() for _ in range(500)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(shape, one) for one in ids)
