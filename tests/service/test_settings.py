"""Settings of the service: who may come in, by which names, within which bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.options import OptionError
from service.settings import ServiceSettings


def test_every_key_lets_in_once() -> None:
    settings = ServiceSettings(api_key=("a", "b"), priority_api_key=("b", "c"))
    assert [key.key for key in settings.keys] == ["a", "b", "c"]
    assert ServiceSettings().keys == ()


def test_tenants_are_the_aliases_of_keys_each_once() -> None:
    settings = ServiceSettings(api_key=("team=a", "team=b", "c"), priority_api_key=("vip=d",))
    assert settings.tenants == ("team", "key3", "vip")
    assert ServiceSettings().tenants == ()


def test_load_runs_are_counted_by_name_where_they_can_be_started() -> None:
    assert ServiceSettings(api_key=("team=a",)).counted_keys == ("team", "loadtest")
    assert ServiceSettings(api_key=("team=a",), admin=False).counted_keys == ("team",)


def test_keys_that_contradict_each_other_are_refused_without_quoting_them() -> None:
    with pytest.raises(OptionError, match="--api-key: one key has two aliases") as caught:
        ServiceSettings(api_key=("a=sk-secret",), priority_api_key=("b=sk-secret",))
    assert "sk-secret" not in str(caught.value)


def test_a_model_is_named_after_its_directory_unless_names_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "llama"
    model.mkdir()
    monkeypatch.chdir(model)
    assert ServiceSettings().names(Path(".")) == ("llama",)
    assert ServiceSettings(served_model_name=("x", "y")).names(model) == ("x", "y")


def test_the_defaults_are_within_their_own_bounds() -> None:
    defaults = ServiceSettings()
    assert msgspec.convert(msgspec.to_builtins(defaults), ServiceSettings) == defaults


@pytest.mark.parametrize(
    "fields",
    [
        {"port": -1},
        {"port": 65536},
        {"receive_timeout": 0},
        {"max_choices": 0},
        {"max_body_bytes": 1},
        {"signing_key": "short"},
        {"unknown_fields": "drop"},
        {"log_level": "loud"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_value_beyond_its_bounds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(fields))):
        msgspec.convert(fields, ServiceSettings)
