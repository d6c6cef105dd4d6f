"""What was meant by an unknown argument."""

from __future__ import annotations

import argparse

import pytest

from service.unknown_arguments import unknown_arguments


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (["--max-model-lenn", "3"], "--max-model-lenn (nearest: --max-model-len)"),
        (["--max-model-lenn=3"], "--max-model-lenn (nearest: --max-model-len)"),
        (["--api-keys=sk-1", "--api-keyes"], "--api-keys --api-keyes (nearest: --api-key)"),
        (["--zzz", "3"], "--zzz"),
        (["--zzz", "-S3cret"], "--zzz"),
        (["-z"], "-z"),
        (["second", "model"], "second model"),
    ],
)
def test_unknown_arguments_are_named_with_the_nearest_flag(rest: list[str], said: str) -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--max-model-len", "--max-num-seqs", "--api-key", "--host"):
        parser.add_argument(flag)
    assert unknown_arguments(parser, rest) == f"unknown arguments: {said}"


def test_what_may_be_a_secret_is_not_printed() -> None:
    said = unknown_arguments(argparse.ArgumentParser(), ["-S3cret"])
    assert said == "unknown arguments (not shown: they may be secrets)"
