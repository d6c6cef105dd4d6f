"""Limits are exact over several processes, and nothing leaks when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.errors import (
    LimitError,
    OverloadedError,
    QuotaError,
    RequestLimitError,
    RequestOverLimitError,
    TokenLimitError,
)
from service.tenants import limit_memory
from service.tenants.key_limits import KeyLimits
from service.tenants.limit_ledger import LimitLedger, LimitUse, MinuteUse
from service.tenants.limit_memory import LimitMemory
from service.tenants.tenant_cells import OPEN_LEASE, REQUESTS, TOKENS, USED, WINDOW

ROOT = Path(__file__).resolve().parents[3]
CHILD = Path(__file__).with_name("limit_child.py")
DAY = 86_400


class Time:
    """At noon of a day."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.day = 20_000 * DAY + DAY // 2

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.day + self.now - 1_000_000.0


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def ledger(time: Time) -> LimitLedger:
    return LimitLedger(clock=time.clock, wall=time.wall)


def test_a_minute_has_as_many_requests_as_the_limit(ledger: LimitLedger, time: Time) -> None:
    limits = KeyLimits(requests_per_minute=3)
    for _ in range(3):
        ledger.settle(ledger.enter("team", limits), 0)
        time.now += 1.0
    with pytest.raises(RequestLimitError) as refusal:
        ledger.enter("team", limits)
    # The first came three seconds ago.
    assert refusal.value.retry_after == WINDOW - 3
    assert refusal.value.state.requests_left == 0
    assert refusal.value.state.requests_reset == WINDOW - 1
    time.now += WINDOW - 3
    ledger.enter("team", limits)
    with pytest.raises(RequestLimitError):
        ledger.enter("team", limits)
    assert ledger.enter("other-team", limits).state.requests_left == 2


def test_tokens_are_reserved_and_then_settled(ledger: LimitLedger, time: Time) -> None:
    limits = KeyLimits(tokens_per_minute=100)
    use = ledger.enter("team", limits)
    ledger.take(use, 80)
    assert use.state.tokens_left == 20
    second = ledger.enter("team", limits)
    with pytest.raises(TokenLimitError) as refusal:
        ledger.take(second, 30)
    assert refusal.value.retry_after == 15, "requests in progress may end before the minute does"
    with pytest.raises(TokenLimitError) as refusal:
        ledger.take(second, 100)  # all that is reserved would be needed
    assert refusal.value.retry_after == 15
    ledger.settle(second, 0, counts=False)
    ledger.settle(use, 10)
    assert ledger.state("team", limits).tokens_left == 90
    third = ledger.enter("team", limits)
    ledger.take(third, 90)
    time.now += 1
    ledger.settle(third, 95)  # more than was reserved
    assert ledger.state("team", limits).tokens_left == 0
    time.now += WINDOW
    assert ledger.state("team", limits).tokens_left == 100


def test_who_retries_when_it_was_told_to_is_admitted(ledger: LimitLedger, time: Time) -> None:
    limits = KeyLimits(requests_per_minute=1)
    time.now += 0.5
    ledger.settle(ledger.enter("team", limits), 0)
    with pytest.raises(RequestLimitError) as refusal:
        ledger.enter("team", limits)
    assert refusal.value.retry_after is not None
    time.now += refusal.value.retry_after
    ledger.enter("team", limits)


def test_the_tokens_count_until_a_minute_after_the_last_and_the_requests_after_theirs(
    ledger: LimitLedger, time: Time
) -> None:
    limits = KeyLimits(requests_per_minute=9, tokens_per_minute=100)
    use = ledger.enter("team", limits)
    time.now += 5
    ledger.take(use, 80)
    assert use.state.requests_reset == WINDOW - 5
    assert use.state.tokens_reset == WINDOW


def test_the_end_of_a_request_longer_than_a_minute_changes_no_other_second(
    ledger: LimitLedger, time: Time
) -> None:
    limits = KeyLimits(requests_per_minute=9, tokens_per_minute=100)
    long, refused = ledger.enter("team", limits), ledger.enter("team", limits)
    ledger.take(long, 80)
    time.now += WINDOW
    ledger.take(ledger.enter("team", limits), 50)
    ledger.settle(long, 10)
    ledger.settle(refused, 0, counts=False)
    left = ledger.state("team", limits)
    assert (left.requests_left, left.tokens_left) == (8, 50)


def test_what_was_used_beyond_the_reservation_counts_from_the_end(
    ledger: LimitLedger, time: Time
) -> None:
    limits = KeyLimits(tokens_per_minute=100)
    use = ledger.enter("team", limits)
    ledger.take(use, 20)
    time.now += WINDOW - 1
    ledger.settle(use, 50)
    assert ledger.state("team", limits).tokens_left == 50
    time.now += 1
    assert ledger.state("team", limits).tokens_left == 70
    time.now += WINDOW - 1
    assert ledger.state("team", limits).tokens_left == 100


def test_what_others_used_is_forgotten_a_minute_after_it_was_last_heard(
    ledger: LimitLedger, time: Time
) -> None:
    limits = KeyLimits(requests_per_minute=10, tokens_per_minute=100)
    ledger.note_others({"team": MinuteUse(4, 30)}, ["team"])
    time.now += WINDOW - 1
    left = ledger.state("team", limits)
    assert (left.requests_left, left.tokens_left) == (6, 70)
    time.now += 1
    left = ledger.state("team", limits)
    assert (left.requests_left, left.tokens_left) == (10, 100)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (KeyLimits(tokens_per_minute=100), "100 per minute"),
        (KeyLimits(tokens_per_day=100), "100 per day"),
        (KeyLimits(tokens_per_minute=90, tokens_per_day=100), "90 per minute"),
    ],
    ids=["minute", "day", "both"],
)
def test_a_request_that_can_never_fit_is_to_be_made_smaller(
    ledger: LimitLedger, limits: KeyLimits, most: str
) -> None:
    # Neither what is used nor what is reserved matters.
    ledger.settle(ledger.enter("team", limits), 50)
    ledger.take(ledger.enter("team", limits), 20)
    use = ledger.enter("team", limits)
    with pytest.raises(RequestOverLimitError) as refusal:
        ledger.take(use, 101)
    assert refusal.value.message == (
        "This request may need 101 tokens for prompt and output, but this key may use "
        f"{most}; shorten the prompt or limit the output."
    )
    assert refusal.value.headers() == {
        "x-quire-reason": "refused:limit",
        "x-should-retry": "false",
    }
    assert refusal.value.state.tokens_left == max(0, (limits.tokens_per_minute or 0) - 70)


def test_a_refused_request_costs_nothing(ledger: LimitLedger) -> None:
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=100, concurrent_requests=1)
    for _ in range(5):
        use = ledger.enter("team", limits)
        with pytest.raises(RequestOverLimitError):
            ledger.take(use, 101)
        ledger.settle(use, 0, counts=False)
    assert ledger.state("team", limits).requests_left == 2


def test_as_many_run_at_once_as_the_limit(ledger: LimitLedger) -> None:
    limits = KeyLimits(concurrent_requests=2)
    first, _ = ledger.enter("team", limits), ledger.enter("team", limits)
    with pytest.raises(RequestLimitError) as refusal:
        ledger.enter("team", limits)
    assert refusal.value.retry_after is None  # it is not known when one ends
    ledger.settle(first, 0)
    ledger.enter("team", limits)


def test_a_day_has_its_budget(ledger: LimitLedger, time: Time) -> None:
    limits = KeyLimits(tokens_per_day=1000)
    use = ledger.enter("team", limits)
    ledger.take(use, 900)
    second = ledger.enter("team", limits)
    with pytest.raises(TokenLimitError, match="900 are reserved by requests in progress"):
        ledger.take(second, 200)
    ledger.settle(use, 850)
    with pytest.raises(QuotaError, match=r"1,000 tokens per day; 850 are used, .* 200\. Shorten"):
        ledger.take(second, 200)
    ledger.take(second, 150)
    ledger.settle(second, 150)
    assert ledger.used_today("team") == 1000
    with pytest.raises(QuotaError, match=r"are used\. Retry when") as refusal:
        ledger.enter("team", limits)
    assert refusal.value.headers() == {
        "x-quire-reason": "refused:limit",
        "x-should-retry": "false",
    }
    time.now += DAY // 2
    assert ledger.used_today("team") == 0
    ledger.enter("team", limits)


def test_a_tenant_for_whom_there_is_no_room_disturbs_nobody(
    ledger: LimitLedger, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 2)
    limits, day = KeyLimits(requests_per_minute=5), time.day // DAY
    first, second = ledger.enter("one", limits), ledger.enter("two", KeyLimits(tokens_per_day=9))
    with pytest.raises(OverloadedError, match="another key") as refused:
        ledger.enter("three", limits)
    assert refused.value.headers()["retry-after"] == "61"
    assert ledger.state("three", limits).requests_left == 5
    assert ledger.used_today("three") == 0
    ledger.note_day(day, {"three": 7, "two": 8})
    assert ledger.used_today("three") == 7
    assert ledger.used_today("two") == 8
    used = {"three": MinuteUse(5), "one": MinuteUse(4)}
    ledger.note_others(used, used)
    assert ledger.state("one", limits).requests_left == 0
    ledger.settle(first, 3)
    ledger.settle(second, 0)


def test_what_others_have_not_used_makes_no_tenant_known(ledger: LimitLedger) -> None:
    ledger.note_others({"two": MinuteUse(1)}, ["one", "two"])
    assert ledger.memory.aliases() == ["two"]


def test_a_tenant_whose_use_of_the_day_is_stored_gives_its_place_up(
    ledger: LimitLedger, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 1)
    limits, day = KeyLimits(tokens_per_day=1000), time.day // DAY
    ledger.settle(ledger.enter("one", limits), 600)
    time.now += WINDOW
    ledger.note_day(day, {"one": 500})  # of before the last request
    with pytest.raises(OverloadedError):
        ledger.enter("two", limits)
    time.now += 2
    ledger.note_day(day, {"one": 600})
    ledger.settle(ledger.enter("two", limits), 0)
    time.now += WINDOW
    use = ledger.enter("one", limits)
    assert ledger.used_today("one") == 600
    with pytest.raises(QuotaError):
        ledger.take(use, 401)


def test_a_tenant_whose_request_takes_minutes_keeps_its_place(
    ledger: LimitLedger, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_memory, "MOST_TENANTS", 1)
    limits = KeyLimits(concurrent_requests=1)
    long = ledger.enter("one", limits)
    time.now += 2 * WINDOW
    with pytest.raises(OverloadedError):
        ledger.enter("two", limits)
    ledger.settle(long, 0)
    time.now += 2
    ledger.settle(ledger.enter("two", limits), 0)


def test_what_others_have_in_progress_counts_as_long_as_they_report_it(
    ledger: LimitLedger, time: Time
) -> None:
    limits = KeyLimits(concurrent_requests=3)
    ledger.note_others({"team": MinuteUse(in_progress=3)}, ["team"])
    time.now += OPEN_LEASE - 1
    with pytest.raises(RequestLimitError):
        ledger.enter("team", limits)
    time.now += 1
    ledger.enter("team", limits)


def test_what_the_store_knows_of_the_day_counts(ledger: LimitLedger) -> None:
    limits = KeyLimits(tokens_per_day=1000)
    ledger.note_day(20_000, {"team": 1000})
    ledger.note_day(20_000, {"team": 10})  # older news
    with pytest.raises(QuotaError):
        ledger.enter("team", limits)
    ledger.note_day(19_999, {"other-team": 1000})  # of yesterday
    ledger.enter("other-team", limits)


@pytest.mark.parametrize("days", [1, -1, 400])
def test_tokens_count_in_their_own_day_after_a_clock_that_was_wrong(
    ledger: LimitLedger, time: Time, days: int
) -> None:
    limits = KeyLimits(tokens_per_day=100)

    def use(tokens: int) -> None:
        use = ledger.enter("team", limits)
        ledger.take(use, tokens)
        ledger.settle(use, tokens)

    today = time.day // DAY
    use(5)
    time.day += days * DAY
    use(1)
    ledger.note_day(today + days, {"team": 1})
    time.day -= days * DAY
    assert ledger.used_today("team") == 5
    use(90)
    ledger.note_day(today, {"team": 97})
    assert ledger.used_today("team") == 97
    time.day += days * DAY
    assert ledger.used_today("team") == 1
    ledger.note_day(today, {"team": 98})
    time.day -= days * DAY
    assert ledger.used_today("team") == 98


class Uses(RuleBasedStateMachine):
    """Whatever happens in whatever order, what is open and reserved is what has not ended, and no
    minute has more than its limit."""

    limits = KeyLimits(5, 200, 4, 2000)

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.ledger = LimitLedger(clock=self.time.clock, wall=self.time.wall)
        self.open: list[LimitUse] = []
        self.admitted: list[float] = []
        self.used = 0

    @rule(tokens=st.integers(1, 120))
    def begin(self, tokens: int) -> None:
        try:
            use = self.ledger.enter("team", self.limits)
        except LimitError:
            return
        try:
            self.ledger.take(use, tokens)
        except LimitError:
            self.ledger.settle(use, 0, counts=False)
            return
        self.open.append(use)
        self.admitted.append(self.time.now)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), share=st.sampled_from((0.0, 0.5, 1.0, 1.5)))
    def end(self, data: st.DataObject, share: float) -> None:
        use = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        used = int(use.tokens * share)
        self.ledger.settle(use, used)
        self.used += used

    @rule(seconds=st.sampled_from((0.0, 0.3, 1.0, 7.0, 30.0, 61.0, 200.0)))
    def wait(self, seconds: float) -> None:
        self.time.now += seconds

    @invariant()
    def nothing_leaks(self) -> None:
        with self.ledger.memory.lock():
            tenant = self.ledger.memory.tenant("team")
            assert tenant.open_requests == len(self.open)
            assert tenant.reserved == sum(use.tokens for use in self.open)
            assert tenant[USED] == self.used
            totals = tenant[REQUESTS], tenant[TOKENS]
            tenant.add_up()
            assert totals == (tenant[REQUESTS], tenant[TOKENS])
        for moment in self.admitted:
            within = [one for one in self.admitted if moment <= one < moment + 60]
            assert len(within) <= 5


TestUses = Uses.TestCase
TestUses.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


# --- several processes ----------------------------------------------------------------------------


class Child:
    def __init__(self, descriptor: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), str(descriptor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(descriptor,),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def tell(self, limits: KeyLimits, times: int, *, tokens: int = 0, used: int | None = 0) -> None:
        assert self.process.stdin is not None
        order = {"limits": limits._asdict(), "times": times, "tokens": tokens, "used": used}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()) and line[0] not in "{r":
            pass  # of its log
        return line

    def answer(self) -> int:
        said = json.loads(self.line())
        assert said["inexact"] == 0
        return int(said["admitted"])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def children(number: int) -> Iterator[tuple[list[Child], int]]:
    descriptor = os.memfd_create("limits-under-test")
    started = [Child(descriptor) for _ in range(number)]
    try:
        for child in started:
            assert child.line() == "ready\n"
        yield started, descriptor
    finally:
        for child in started:
            child.end()
        os.close(descriptor)


@pytest.mark.parametrize(
    ("limits", "tokens", "allowed"),
    [
        (KeyLimits(requests_per_minute=1501), 0, 1501),
        (KeyLimits(tokens_per_minute=7000), 7, 1000),
        (KeyLimits(concurrent_requests=997), 0, 997),
        (KeyLimits(tokens_per_day=9000), 9, 1000),
    ],
    ids=["requests", "tokens", "concurrent", "day"],
)
def test_four_processes_admit_exactly_the_limit(
    limits: KeyLimits, tokens: int, allowed: int
) -> None:
    with children(4) as (all_of_them, _):
        for child in all_of_them:
            child.tell(limits, 1000, tokens=tokens, used=None)
        assert sum(child.answer() for child in all_of_them) == allowed


def test_what_a_killed_process_had_open_is_free_again() -> None:
    limits = KeyLimits(concurrent_requests=10, tokens_per_day=1000)
    with children(3) as ((doomed, other, third), _):
        doomed.tell(limits, 10, tokens=100, used=None)
        assert doomed.answer() == 10
        other.tell(limits, 1, tokens=100, used=None)
        assert other.answer() == 0
        doomed.end()
        other.tell(limits, 20, tokens=100, used=None)
        third.tell(limits, 20, tokens=100, used=None)
        assert other.answer() + third.answer() == 10


def test_what_a_killed_process_had_reserved_of_the_day_is_free_again() -> None:
    limits = KeyLimits(tokens_per_day=1000)
    with children(2) as ((doomed, other), _):
        doomed.tell(limits, 9, tokens=100, used=None)
        assert doomed.answer() == 9
        doomed.end()
        other.tell(limits, 20, tokens=100, used=None)
        assert other.answer() == 10


def test_the_column_of_a_killed_process_can_be_taken_again() -> None:
    limits = KeyLimits(concurrent_requests=1)
    with children(2) as ((doomed, other), descriptor):
        doomed.tell(limits, 1, used=None)
        assert doomed.answer() == 1
        doomed.end()
        other.tell(limits, 1, used=None)
        assert other.answer() == 1  # it has swept
        assert LimitMemory(os.dup(descriptor))._column < 2


def test_a_process_killed_at_any_moment_leaves_right_totals() -> None:
    limits = KeyLimits(10**9, 10**9, 10**6, 10**12)
    for _ in range(8):
        with children(2) as ((doomed, other), descriptor):
            doomed.tell(limits, 10**9, tokens=50, used=20)
            other.tell(limits, 300, tokens=50, used=20)
            assert other.answer() == 300
            os.kill(doomed.process.pid, signal.SIGKILL)
            doomed.process.wait()
            ledger = LimitLedger(os.dup(descriptor))
            with ledger.memory.lock():
                ledger.memory.sweep()
                tenant = ledger.memory.tenant("team")
                totals = tenant[REQUESTS], tenant[TOKENS]
                tenant.add_up()
                assert totals == (tenant[REQUESTS], tenant[TOKENS])
                assert tenant.open_requests == tenant.reserved == 0
            other.tell(limits, 10, tokens=50, used=20)
            assert other.answer() == 10


def test_a_stopped_process_does_not_stop_the_others() -> None:
    """It may be stopped while it holds the lock."""
    limits = KeyLimits(requests_per_minute=10**9)
    for _ in range(8):
        with children(2) as ((stopped, other), _):
            stopped.tell(limits, 10**9)
            other.tell(limits, 10)
            other.line()
            os.kill(stopped.process.pid, signal.SIGSTOP)
            other.tell(limits, 50)
            assert json.loads(other.line())["admitted"] == 50
            os.kill(stopped.process.pid, signal.SIGCONT)


def test_words_agree_with_limits_of_one(ledger: LimitLedger, time: Time) -> None:
    one = KeyLimits(requests_per_minute=1)
    ledger.settle(ledger.enter("minute", one), 0)
    with pytest.raises(RequestLimitError, match="This key may send 1 request per minute, and has"):
        ledger.enter("minute", one)
    ledger.enter("at once", KeyLimits(concurrent_requests=1))
    with pytest.raises(RequestLimitError, match="1 request of this key is in progress"):
        ledger.enter("at once", KeyLimits(concurrent_requests=1))
    ledger.settle(ledger.enter("day", KeyLimits(tokens_per_day=1)), 1)
    with pytest.raises(QuotaError, match=r"may use 1 token per day; 1 is used\. Retry"):
        ledger.enter("day", KeyLimits(tokens_per_day=1))
