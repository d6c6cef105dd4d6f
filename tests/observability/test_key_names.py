"""Aliases keep their numbers from worker to worker."""

from __future__ import annotations

import os

from observability.key_names import KeyNames
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger

LAYOUT = LedgerLayout(["m"], metrics=[], key_names=3)
FIXED = ("flag", "other")


def test_new_names_get_numbers_that_the_next_worker_has_too() -> None:
    descriptor = os.memfd_create("names-under-test")
    names = KeyNames(WorkerLedger(LAYOUT, os.dup(descriptor)), FIXED)
    assert [names.number_of(name) for name in ("flag", "b" * 32, "c", "other")] == [0, 2, 3, 1]
    following = KeyNames(WorkerLedger(LAYOUT, os.dup(descriptor)), FIXED)
    assert len(following) == 5
    assert [following.number_of(name) for name in ("c", "d", "b" * 32)] == [3, 4, 2]
    assert [following[number] for number in range(5)] == ["flag", "other", "b" * 32, "c", "d"]
    os.close(descriptor)


def test_without_a_number_left_a_name_is_the_rest() -> None:
    names = KeyNames(WorkerLedger(LAYOUT), FIXED)
    assert [names.number_of(name) for name in ("a", "b", "c", "d", "a")] == [2, 3, 4, 1, 2]
    assert names.number_of("x" * 33) == 1
    nothing = KeyNames(WorkerLedger(LedgerLayout(["m"], metrics=[])), FIXED)
    assert nothing.number_of("a") == 1
