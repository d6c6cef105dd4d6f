"""Rotary settings are read from every place that config.json may have them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.architecture.errors import UnsupportedError
from engine.architecture.fields import ConfigFields
from engine.architecture.rope import read_rope
from tests.engine.architecture.rope_settings import POSITIONS, SETTINGS


def test_yarn_without_a_factor_takes_it_from_the_lengths() -> None:
    fields = ConfigFields("test", {"rope_parameters": SETTINGS["yarn without a factor"]})
    assert read_rope(fields, max_position_embeddings=POSITIONS).factor == 4.0


def test_settings_under_both_names_must_agree() -> None:
    both: dict[str, Any] = {
        "rope_parameters": SETTINGS["yarn"],
        "rope_scaling": dict(SETTINGS["yarn"]),
    }
    alone = ConfigFields("test", {"rope_parameters": SETTINGS["yarn"]})
    assert read_rope(ConfigFields("test", both), POSITIONS) == read_rope(alone, POSITIONS)
    both["rope_scaling"]["factor"] = 32.0
    with pytest.raises(UnsupportedError, match="both rope_parameters and rope_scaling"):
        read_rope(ConfigFields("test", both), POSITIONS)
