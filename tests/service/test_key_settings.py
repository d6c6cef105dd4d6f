"""Where keys come from decides whether a request needs one."""

from __future__ import annotations

import pytest

from engine.options import OptionError
from service.settings import ServiceSettings


def test_a_server_whose_keys_can_change_needs_one() -> None:
    assert not ServiceSettings().needs_key
    assert ServiceSettings(api_key=("sk-one",)).needs_key
    assert ServiceSettings(stored_keys=True).needs_key
    assert ServiceSettings(keys_file="keys.toml").needs_key


def test_stored_keys_need_a_store() -> None:
    with pytest.raises(OptionError, match="needs a store"):
        ServiceSettings(stored_keys=True, store_url="none")


def test_aliases_that_may_sample_are_checked_if_all_are_known() -> None:
    with pytest.raises(OptionError, match="not an alias"):
        ServiceSettings(api_key=("a=sk-one",), tracing_key=("b",))
    assert ServiceSettings(stored_keys=True, tracing_key=("b",)).tracing_key == ("b",)
