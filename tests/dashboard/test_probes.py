from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import dashboard.probes
from dashboard.probes import Probes

URL = "http://a"
A, B, C = ("http://a", "k"), ("http://b", "k"), ("http://c", "")


class Hung:
    """A server that does not answer until it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._goes = threading.Event()

    def __call__(self, url: str, key: str) -> str:
        self.asked.append(url + key)
        if url == URL:
            assert self._goes.wait(30)
        return f"answer to {key}"

    def let_go(self) -> None:
        self._goes.set()
        for thread in threading.enumerate():
            if thread.name == f"probe {URL}":
                thread.join(30)


@pytest.fixture
def hung() -> Iterator[Hung]:
    made = Hung()
    yield made
    made.let_go()


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


def test_what_is_being_asked_is_not_messages_again() -> None:
    begun, may_end, asked = threading.Event(), threading.Event(), []

    def ask(url: str, key: str) -> str:
        asked.append(url)
        begun.set()
        assert may_end.wait(30)
        return "answer"

    probes = Probes(ask, 5.0)
    got: list[str | None] = []
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


def test_a_page_of_more_servers_than_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard.probes, "_MOST_KEPT", 2)
    asked: list[str] = []
    probes = Probes(lambda url, key: asked.append(url), 5.0)
    for _ in range(2):
        assert probes.answers([A, B, C]) == [None] * 3
    assert sorted(asked) == ["http://a", "http://b", "http://c"]


def test_keys_that_strangers_try_do_not_take_the_answers_that_a_page_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard.probes, "_MOST_KEPT", 2)
    asked: list[str] = []
    probes = Probes(lambda url, key: asked.append(url + key), 5.0)
    probes.answers([A])
    for key in ("wrong", "wrong, too", "wrong again"):
        probes.answers([(URL, key)])
        probes.answers([A])
    assert asked.count("http://ak") == 1
    probes.answers([(URL, "wrong")])
    assert probes.answers([A, B]) == [None, None]
    assert asked.count("http://ak") == 1


def test_an_answer_that_becomes_too_old_while_others_are_sought_is_shown() -> None:
    now = iter([0.0, 0.0, 4.9])

    def clock() -> float:
        return next(now, 5.1)

    probes = Probes(lambda url, key: url, 5.0, clock)
    assert probes.answers([A]) == ["http://a"]
    assert probes.answers([A]) == ["http://a"]


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


def test_a_page_waits_for_one_that_hangs_only_so_long(
    monkeypatch: pytest.MonkeyPatch, hung: Hung
) -> None:
    monkeypatch.setattr(dashboard.probes, "_MOST_SECONDS", 0.01)
    probes = Probes(hung, 5.0)
    assert probes.answers([A]) == [None]
    monkeypatch.setattr(dashboard.probes, "_MOST_SECONDS", 30.0)
    assert probes.answers([A, B]) == [None, "answer to k"]  # counted from when it was asked
    hung.let_go()
    assert probes.answers([A]) == ["answer to k"]
    assert sorted(hung.asked) == ["http://ak", "http://bk"]


def test_one_that_hangs_takes_no_threads_from_the_others(
    monkeypatch: pytest.MonkeyPatch, hung: Hung
) -> None:
    monkeypatch.setattr(dashboard.probes, "_MOST_THREADS", 2)
    monkeypatch.setattr(dashboard.probes, "_MOST_SECONDS", 0.0)
    probes = Probes(hung, 5.0)
    keys = [(URL, key) for key in "123"]
    assert probes.answers(keys) == [None] * 3
    monkeypatch.setattr(dashboard.probes, "_MOST_SECONDS", 30.0)
    assert probes.answers([*keys, B]) == [None, None, None, "answer to k"]
    assert "http://a3" not in hung.asked
    hung.let_go()
    assert probes.answers(keys) == ["answer to 1", "answer to 2", "answer to 3"]


def test_a_thread_that_cannot_start_is_a_fault_of_that_page_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def no_start(thread: threading.Thread) -> None:
        if thread.name == f"probe {URL}":
            raise RuntimeError("can't start new thread")
        start(thread)

    probes = Probes(lambda url, key: url, 5.0)
    monkeypatch.setattr(dashboard.probes, "_MOST_THREADS", 1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_start)
        with pytest.raises(RuntimeError, match="can't start"):
            probes.answers([B, A, C])
    assert probes.answers([A, B, C]) == ["http://a", "http://b", "http://c"]
