"""The settings of the admin API."""

from __future__ import annotations

import pytest

from engine.options import OptionError, secret_environment, to_argv
from service.settings import ServiceSettings


def test_a_wrong_key_stops_the_start_and_names_the_flag() -> None:
    with pytest.raises(OptionError, match=r"^--admin-key: key 1 has fewer"):
        ServiceSettings(admin_key=("short",))


def test_a_wrong_api_key_is_still_noticed() -> None:
    with pytest.raises(OptionError, match="--api-key"):
        ServiceSettings(api_key=("other=sk-1",))


def test_keys_are_passed_on_in_the_environment_only() -> None:
    settings = ServiceSettings(admin_key=("read:bob=reader-key-1",), admin_port=8001)
    assert "reader-key-1" not in " ".join(to_argv(settings))
    assert "--admin-port=8001" in to_argv(settings)
    assert "reader-key-1" in secret_environment(settings)["QUIRE_ADMIN_KEY"]
