"""The table of faults and its notation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.faults.table import (
    FAULTS,
    Fault,
    Place,
    faults_table,
    keys_table,
    parse_fault,
    parse_faults,
)
from engine.options import OptionError

ROOT = Path(__file__).resolve().parents[3]


def test_a_fault_is_read_with_its_keys() -> None:
    assert parse_fault("engine_kill") == Fault(name="engine_kill")
    read = parse_fault("slow_step:after=10:every=3:probability=0.5:times=7:seconds=0.1")
    assert read == Fault(name="slow_step", after=10, every=3, probability=0.5, times=7, seconds=0.1)
    assert parse_fault("clock_jump:seconds=-60").duration == -60
    assert parse_fault("store_down").duration == 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("engine_kil", "is not a fault that a server can inject. These are: engine_kill, "),
        ("slow_reader", "is not a fault that a server can inject"),
        ("engine_kill:seconds=3", "engine_kill has no 'seconds'. It has: after, every, "),
        ("store_down:max_tokens=3", "has no 'max_tokens'"),
        ("slow_step:name=engine_kill", "has no 'name'"),
        ("slow_step:after=1:after=2", "'after' twice"),
        ("slow_step:after", "Expected `int`"),
        ("slow_step:every=0", "Expected `int` >= 1"),
        ("slow_step:probability=1.5", "Expected `float` <= 1"),
        ("slow_step:seconds=-1", "may not be negative"),
        ("slow_step:seconds=nan", "Expected `float`"),
    ],
)
def test_what_is_not_a_fault_is_refused_with_what_is(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        parse_fault(text)


def test_a_fault_is_given_once() -> None:
    with pytest.raises(OptionError, match="slow_step is given twice"):
        parse_faults(("slow_step", "engine_kill", "slow_step:after=3"))


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
def test_each_fault_has_its_place_and_its_test(row: object) -> None:
    assert isinstance(row, type(FAULTS[0]))
    test = ROOT / row.test
    words = {"slow_reader": "slow-reader", "disconnect": "leave", "worker_kill": "kill_worker"}
    assert words.get(row.name, row.name) in test.read_text(encoding="utf-8")
    if row.place is not Place.CLIENT:
        assert parse_fault(row.name).row is row


def test_the_tables_of_the_documentation_have_every_row() -> None:
    assert [line.split("`")[1] for line in faults_table().splitlines()[2:]] == [
        row.name for row in FAULTS
    ]
    assert [line.split("`")[1] for line in keys_table().splitlines()[2:]] == [
        *("after", "every", "probability", "seed", "times", "seconds", "max_tokens", "output")
    ]
