"""What was meant by an unknown argument."""

from __future__ import annotations

import argparse

import pytest

from service.unknown_arguments import CommandParser, unknown_arguments

KNOWN = ("--max-model-len", "--max-num-seqs", "--api-key", "--host")


def said_of(given: list[str]) -> str:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model", nargs="?")
    for flag in KNOWN:
        parser.add_argument(flag)
    namespace, rest = parser.parse_known_args(given)
    return unknown_arguments(parser, namespace, rest, ["serve", *given])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--max-model-lenn", "3"], "--max-model-lenn (nearest: --max-model-len)"),
        (["--max-model-lenn=3"], "--max-model-lenn (nearest: --max-model-len)"),
        (["--api-keys=sk-1", "--api-keyes"], "--api-keys --api-keyes (nearest: --api-key)"),
        (["--zzz", "3"], "--zzz"),
        (["--zzz", "-S3cret"], "--zzz"),
        (["-z"], "-z"),
        (["second", "model"], "second model"),
        (["second", "--zzz", "3"], "second --zzz"),
        (["-api-key", "sk-1"], "-api-key (nearest: --api-key)"),
        (["-api-key=sk-1"], "-api-key (nearest: --api-key)"),
    ],
)
def test_unknown_arguments_are_named_with_the_nearest_flag(given: list[str], said: str) -> None:
    assert said_of(["pocket", *given]) == f"unknown arguments: {said}"


@pytest.mark.parametrize(
    "dash",
    ["\u2010", "\u2011", "\u2013", "\u2014", "\u2015", "\u2212", "\uff0d", "\u2013-"],
    ids=["hyphen", "unbroken", "en", "em", "bar", "minus", "full width", "en and hyphen"],
)
def test_a_flag_with_other_dashes_is_one_also_where_it_was_taken_for_a_model(dash: str) -> None:
    flag = f"{dash}api-key"
    said = f"unknown arguments: {flag} (nearest: --api-key)"
    assert said_of(["pocket", flag, "sk-1"]) == said
    assert said_of([flag, "sk-1"]) == said
    assert said_of([f"{flag}=sk-1"]) == said


def test_a_flag_s_value_may_begin_with_a_dash() -> None:
    assert said_of(["pocket", "--host", "\u2014api-key"]) == ""
    assert said_of(["--", "-api-key"]) == ""


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        (["-S3cret"], ""),
        (["pocket", "-api-keyy", "sk-1"], "; nearest: --api-key"),
        (["pocket", "--api-key", "sk-1", "sk-2"], ""),
        (["\u2014zzz", "sk-1"], ""),
        (["\u2010zzz=sk-1"], ""),
    ],
    ids=["one hyphen", "nearly a flag", "a second value", "another dash", "taken for a model"],
)
def test_what_may_be_a_secret_is_not_printed(given: list[str], nearest: str) -> None:
    said = f"unknown arguments (not shown: they may be secrets{nearest})"
    assert said_of(given) == said


def test_known_arguments_are_no_problem() -> None:
    assert said_of(["pocket", "--api-key", "sk-1"]) == ""


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        (["-api-key", "sk-1", "serve"], ""),
        (["\u2014api-key=sk-1", "serve"], ""),
        (["srve"], " (nearest: serve)"),
    ],
    ids=["after a flag", "a flag with a dash", "misspelt"],
)
def test_an_unknown_command_is_not_printed(
    given: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = CommandParser(prog="quire")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name in ("serve", "keys"):
        commands.add_parser(name)
    with pytest.raises(SystemExit):
        parser.parse_known_args(given)
    said = f"unknown{nearest}; it must be one of serve, keys; flags follow it"
    assert capsys.readouterr().err.endswith(f"quire: error: argument COMMAND: {said}\n")
