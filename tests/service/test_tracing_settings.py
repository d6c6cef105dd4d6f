"""Whose sampled flags may count."""

from __future__ import annotations

import pytest

from engine.options import OptionError
from service.settings import ServiceSettings


def test_a_tracing_key_must_be_the_alias_of_a_key() -> None:
    keys = ("team=sk-one", "sk-two")
    assert ServiceSettings(api_key=keys, tracing_key=("team", "key2")).tracing_key
    with pytest.raises(OptionError, match=r"--tracing-key 'ops' .* there are team, key2"):
        ServiceSettings(api_key=keys, tracing_key=("ops",))
    with pytest.raises(OptionError, match="there are none"):
        ServiceSettings(tracing_key=("ops",))
