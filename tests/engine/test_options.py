"""Flags and environment variables out of a settings struct."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from engine.config import EngineConfig
from engine.options import (
    OptionError,
    add_arguments,
    environment_defaults,
    from_namespace,
    options,
    secret_environment,
    setting,
    to_argv,
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One field of each kind."""

    name: Annotated[str, Meta(min_length=1, description="A name.")]
    port: Annotated[int, Meta(ge=1, le=65535, description="A port.")] = 8000
    share: Annotated[float, Meta(gt=0, le=1, description="100 % is one.")] = 0.5
    limit: Annotated[int, Meta(ge=1, description="A bound.")] | None = None
    kind: Annotated[Literal["fast", "slow"], Meta(description="A kind.")] = "fast"
    size: Annotated[Literal[8, 16], Meta(description="A size.")] = 8
    on: Annotated[bool, Meta(description="A switch.")] = True
    api_key: Annotated[list[str], Meta(description="Keys.")] = msgspec.field(default_factory=list)


def parse(*argv: str, environ: dict[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser, Settings)
    parser.set_defaults(**environment_defaults(Settings, environ or {}))
    return from_namespace(Settings, parser.parse_args(argv))


def help_text(struct_type: type[msgspec.Struct], group: str | None = None) -> str:
    parser = argparse.ArgumentParser()
    add_arguments(parser, struct_type, group)
    return " ".join(parser.format_help().split())


def test_a_flag_that_is_not_given_leaves_the_structs_default() -> None:
    assert parse("--name=x") == Settings(name="x")


def test_each_kind_of_field_is_read_with_its_type() -> None:
    settings = parse(
        *["--name", "x", "--port", "1", "--share", "0.25", "--limit", "9", "--kind", "slow"],
        *["--size", "16", "--no-on", "--api-key", "a,b"],
    )
    assert settings == Settings(
        name="x",
        port=1,
        share=0.25,
        limit=9,
        kind="slow",
        size=16,
        on=False,
        api_key=["a", "b"],
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "0"], "--port: Expected `int` >= 1 .*got '0'"),
        (["--port", "65536"], "--port: Expected `int` <= 65535"),
        (["--port", "many"], "--port: Expected `int`, got `str` .*got 'many'"),
        (["--share", "0"], "--share: Expected `float` > 0"),
        (["--share", "nan"], "--share: Expected `float`"),
        (["--limit", "0"], "--limit: Expected `int` >= 1"),
        (["--kind", "odd"], r"--kind: must be fast or slow \(got 'odd'\)"),
        (["--size", "9"], r"--size: must be 8 or 16 \(got '9'\)"),
    ],
)
def test_a_wrong_value_is_refused_with_its_flag_and_bound(argv: list[str], message: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=message):
        parse("--name=x", *argv)


def test_a_missing_required_flag_is_named_with_its_variable() -> None:
    with pytest.raises(OptionError, match=r"--name \(or QUIRE_NAME\) is required"):
        parse()


def test_the_environment_sets_defaults_and_flags_win() -> None:
    environ = {
        "QUIRE_NAME": "env",
        "QUIRE_PORT": "81",
        "QUIRE_ON": "false",
        "QUIRE_API_KEY": "a, b",
    }
    assert parse(environ=environ) == Settings(name="env", port=81, on=False, api_key=["a", "b"])
    assert parse("--port=82", "--on", environ=environ).port == 82
    assert parse("--port=82", "--on", environ=environ).on


def test_a_list_flag_takes_one_word_and_may_come_again() -> None:
    environ = {"QUIRE_API_KEY": "old"}
    keys = parse("--name=x", "--api-key", "a,b", "--api-key=c", environ=environ).api_key
    assert keys == ["a", "b", "c"]


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(OptionError, match="QUIRE_PORT: Expected `int` >= 1"):
        parse(environ={"QUIRE_PORT": "0"})


def test_a_value_out_of_bounds_in_a_namespace_is_refused() -> None:
    with pytest.raises(OptionError, match="--port: Expected `int` >= 1"):
        from_namespace(Settings, argparse.Namespace(name="x", port=0))


def test_attributes_that_are_not_fields_are_ignored() -> None:
    assert from_namespace(Settings, argparse.Namespace(name="x", command="serve")).name == "x"


@given(
    st.builds(
        Settings,
        name=st.text(min_size=1),
        port=st.integers(1, 65535),
        share=st.floats(0, 1, exclude_min=True),
        limit=st.none() | st.integers(1, 2**40),
        kind=st.sampled_from(["fast", "slow"]),
        size=st.sampled_from([8, 16]),
        on=st.booleans(),
        api_key=st.lists(st.text(alphabet="abc123_", min_size=1)),
    )
)
def test_arguments_made_from_settings_give_the_same_settings_back(settings: Settings) -> None:
    assert parse(*to_argv(settings)) == settings


def test_arguments_name_only_what_differs_from_the_defaults() -> None:
    assert to_argv(Settings(name="-x", on=False)) == ["--name=-x", "--no-on"]


def test_help_shows_meaning_bounds_default_and_variable_under_a_heading() -> None:
    text = help_text(Settings, "wide settings")
    assert "wide settings:" in text
    assert "A port. (>= 1, <= 65535; default: 8000; QUIRE_PORT)" in text
    assert "100 % is one. (> 0, <= 1; default: 0.5; QUIRE_SHARE)" in text
    assert "A name. (required; QUIRE_NAME)" in text
    assert "{fast,slow}" in text


def test_every_engine_setting_is_described_and_can_be_given_as_a_flag() -> None:
    assert all(option.description for option in options(EngineConfig))
    text = help_text(EngineConfig)
    for option in options(EngineConfig):
        assert option.flag in text
    assert [option.flag for option in options(EngineConfig)][:2] == ["--model", "--load-format"]


def test_a_setting_of_two_types_is_refused_when_it_is_declared() -> None:
    class Unclear(msgspec.Struct):
        port: int | str = 1

    with pytest.raises(TypeError, match="several types"):
        list(options(Unclear))


def test_no_flag_is_called_required_whose_description_has_a_default() -> None:
    class Given(msgspec.Struct):
        model: Annotated[str, setting("Model", "A model. Default: a small one.")]

    assert "A model. Default: a small one. (QUIRE_MODEL)" in help_text(Given)


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings some of which are secret."""

    port: Annotated[int, Meta(description="A port.")] = 1
    keys: Annotated[tuple[str, ...], setting("Keys", "Keys.", secret=True)] = ()
    seal: Annotated[str, setting("Keys", "A seal.", secret=True, min_length=8)] | None = None


def test_secrets_go_by_environment_and_everything_else_by_arguments() -> None:
    settings = Guarded(port=2, keys=("one", "two"), seal="=8 bytes or more")
    assert to_argv(settings) == ["--port=2"]
    environ = secret_environment(settings)
    assert environ == {"QUIRE_KEYS": "one,two", "QUIRE_SEAL": "=8 bytes or more"}
    assert Guarded(port=2, **environment_defaults(Guarded, environ)) == settings
    assert secret_environment(Guarded()) == {}


def test_a_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one,two\nthree\n")
    (tmp_path / "seal").write_text("a long seal\n")
    environ = {
        "QUIRE_KEYS_FILE": str(tmp_path / "keys"),
        "QUIRE_SEAL_FILE": str(tmp_path / "seal"),
        "QUIRE_PORT_FILE": "/not/read",  # no secret
    }
    found = environment_defaults(Guarded, environ)
    assert found == {"keys": ("one", "two", "three"), "seal": "a long seal"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"short", "QUIRE_SEAL_FILE: Expected `str` of length >= 8"),
        (b"a seal with \xff in it", "is not UTF-8 text"),
        (b"a seal with \0 in it", "holds a NUL character"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_not_quoted(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "seal"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=message) as raised:
        environment_defaults(Guarded, {"QUIRE_SEAL_FILE": str(path)})
    assert "QUIRE_SEAL_FILE" in str(raised.value)
    assert content is None or content.decode(errors="replace") not in str(raised.value)


def test_a_variable_and_its_file_together_are_refused() -> None:
    with pytest.raises(OptionError, match="QUIRE_SEAL or QUIRE_SEAL_FILE, not both"):
        environment_defaults(Guarded, {"QUIRE_SEAL": "a long seal", "QUIRE_SEAL_FILE": "/x"})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"QUIRE_KEYS": ""}, r"^QUIRE_KEYS: must not be empty; give it a value or leave it unset"),
        ({"QUIRE_KEYS": " ,\n"}, r"^QUIRE_KEYS: must not be empty"),
        ({"QUIRE_SEAL": ""}, r"^QUIRE_SEAL: must not be empty"),
        ({"QUIRE_KEYS_FILE": ""}, r"^QUIRE_KEYS_FILE: must not be empty"),
        ({"QUIRE_KEYS_FILE": "keys"}, r"^QUIRE_KEYS_FILE: keys is empty; .*, or unset QUIRE_KEYS"),
    ],
)
def test_an_empty_secret_is_refused(
    environ: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(OptionError, match=message):
        environment_defaults(Guarded, environ)


@pytest.mark.parametrize("flag", ["--keys=", "--keys=,", "--seal="])
def test_so_is_a_flag_with_an_empty_one(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Guarded)
    with pytest.raises(SystemExit):
        parser.parse_args([flag])
    assert "must not be empty; give it a value or leave it unset" in capsys.readouterr().err


def test_no_message_quotes_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Guarded)
    with pytest.raises(SystemExit):
        parser.parse_args(["--seal=canary"])
    with pytest.raises(OptionError) as from_variable:
        environment_defaults(Guarded, {"QUIRE_SEAL": "canary"})
    with pytest.raises(OptionError) as checked:
        from_namespace(Guarded, argparse.Namespace(seal="canary"))
    by_flag = capsys.readouterr().err
    assert "--seal" in by_flag
    for said in (by_flag, str(from_variable.value), str(checked.value)):
        assert "canary" not in said
