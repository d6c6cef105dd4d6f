from __future__ import annotations

import threading

import pytest

import dashboard.probes
from dashboard.probes import Probes

A, B, C = ("http://a", "k"), ("http://b", "k"), ("http://c", "")


def test_all_are_asked_at_the_same_time_and_each_once() -> None:
    together = threading.Barrier(3, timeout=30)  # broken if one is asked after another

    def ask(url: str, key: str) -> str:
        together.wait()
        return url[-1] + key

    assert Probes(ask, 5.0).answers([A, B, C, A]) == ["ak", "bk", "c", "ak"]


def test_an_answer_counts_from_when_it_came() -> None:
    now, asked = [0.0], []

    def ask(url: str, key: str) -> int:
        asked.append(url)
        now[0] += 10.0  # it took longer than an answer counts
        return len(asked)

    probes = Probes(ask, 5.0, lambda: now[0])
    assert probes.answers([A]) == [1]
    now[0] += 4.9
    assert probes.answers([A]) == [1]
    now[0] += 0.2
    assert probes.answers([A]) == [2]


def test_what_is_being_asked_is_not_asked_again() -> None:
    begun, may_end, asked = threading.Event(), threading.Event(), []

    def ask(url: str, key: str) -> str:
        asked.append(url)
        begun.set()
        assert may_end.wait(30)
        return "answer"

    probes = Probes(ask, 5.0)
    got: list[str] = []
    visitors = [threading.Thread(target=lambda: got.extend(probes.answers([A]))) for _ in range(3)]
    visitors[0].start()
    assert begun.wait(30)
    for visitor in visitors[1:]:
        visitor.start()
    may_end.set()
    for visitor in visitors:
        visitor.join(30)
    assert got == ["answer"] * 3
    assert asked == ["http://a"]


def test_of_too_many_answers_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard.probes, "_MOST_KEPT", 2)
    asked: list[str] = []
    probes = Probes(lambda url, key: asked.append(url), 5.0)
    for name in (A, B, C, C, B, A):
        probes.answers([name])
    assert asked == ["http://a", "http://b", "http://c", "http://a"]


def test_a_fault_is_raised_and_not_kept() -> None:
    faults = iter([ValueError("once")])

    def ask(url: str, key: str) -> str:
        for fault in faults:
            raise fault
        return "answer"

    probes = Probes(ask, 5.0)
    with pytest.raises(ValueError, match="once"):
        probes.answers([A])
    assert probes.answers([A]) == ["answer"]
