"""Who gets a place in the queue, and when the others should come back, in simulated time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import Copy, Embed, Generate, SamplingParams, Submit
from engine.queueing import Following, QueueBounds, Refusal, RefusalReason
from engine.schedule import gate as gate_module
from engine.schedule.gate import MOST_EXPECTED_OUTPUT, MOST_RETRY_SECONDS, Gate, reserve_of
from engine.step.sequence import Sequence

PARAMS = SamplingParams(max_tokens=10)
BOUNDS = QueueBounds(8, 10_000)
_handles = itertools.count(1)


def submit(tenant: str = "", **fields: object) -> Submit:
    asked: dict[str, object] = {
        "handle": next(_handles),
        "request_id": "r",
        "prompt_token_ids": [1] * 10,
        "task": Generate(PARAMS),
        "arrival_time": 0.0,
        "tenant": tenant,
        "bounds": BOUNDS,
        **fields,
    }
    return Submit(**asked)  # type: ignore[arg-type]


def enter(gate: Gate, one: Submit, now: float = 0.0) -> Sequence:
    size = len(one.prompt_token_ids)
    sequence = Sequence(one.handle, "r", [1] * size, size, PARAMS, tenant=one.tenant)
    gate.enter(sequence, reserve_of(one), now)
    return sequence


def refused(gate: Gate, one: Submit, now: float = 0.0, free: int = 0) -> RefusalReason | None:
    refusal = gate.judge(one, now, free)
    if refusal is None:
        enter(gate, one, now)
        return None
    return refusal.reason


def test_a_reserve_is_the_prompt_and_a_bounded_part_of_the_output() -> None:
    assert reserve_of(submit()) == 20
    long = submit(task=Generate(SamplingParams(max_tokens=100_000)))
    assert reserve_of(long) == 10 + MOST_EXPECTED_OUTPUT
    assert reserve_of(submit(task=Embed())) == 10


def test_as_many_sequences_wait_as_may_and_those_with_a_free_slot_do_not_count() -> None:
    gate = Gate()
    found = [refused(gate, submit(), free=3) for _ in range(13)]
    assert found == [None] * 11 + [RefusalReason.QUEUE_REQUESTS] * 2


def test_what_waits_is_bounded_in_tokens() -> None:
    gate = Gate()
    bounds = QueueBounds(100, 50)
    found = [refused(gate, submit(bounds=bounds)) for _ in range(3)]
    assert found == [None, None, RefusalReason.QUEUE_TOKENS]


def test_a_request_of_many_choices_is_judged_whole_but_never_when_nothing_waits() -> None:
    gate = Gate()
    choices = [Copy(next(_handles), 0) for _ in range(7)]
    assert gate.judge(submit(copies=[*choices, *choices]), 0.0, 0) is None
    enter(gate, submit())
    assert gate.judge(submit(copies=choices), 0.0, 0) is not None
    assert gate.judge(submit(copies=choices[:6]), 0.0, 0) is None


def test_a_request_of_many_prompts_is_judged_whole_by_the_first_of_them() -> None:
    gate = Gate()
    enter(gate, submit())
    refusal = gate.judge(submit(following=Following(7, 70)), 0.0, 0)
    assert refusal is not None
    assert refusal.reason is RefusalReason.QUEUE_REQUESTS
    assert gate.judge(submit(following=Following(6, 60)), 0.0, 0) is None
    few = QueueBounds(8, 89)  # 20 wait; 20, and 2 * 20 + 10 with what follows
    assert gate.judge(submit(bounds=few, following=Following(2, 30)), 0.0, 0) is not None
    assert gate.judge(submit(bounds=few, following=Following(2, 29)), 0.0, 0) is None


def test_what_follows_an_accepted_part_has_its_places_until_it_comes() -> None:
    gate = Gate()
    enter(gate, submit())
    first = submit(request_id="many", following=Following(5, 50))
    assert gate.judge(first, 0.0, 0) is None
    gate.accepted(first, 0.0)
    enter(gate, first)
    assert refused(gate, submit()) is None  # the eighth
    assert gate.judge(submit(), 0.0, 0) is not None
    part = submit(request_id="many", keeps_place=True)
    gate.accepted(part, 0.0)
    enter(gate, part)  # it takes the place that it had
    assert gate.judge(submit(), 0.0, 0) is not None
    assert gate.judge(submit(), 4.9, 0) is not None
    assert gate.judge(submit(), 5.1, 0) is None  # the other four do not come


def test_what_a_cancelled_request_would_have_sent_has_no_places() -> None:
    gate = Gate()
    enter(gate, submit())
    first = submit(request_id="many", following=Following(6, 60))
    gate.accepted(first, 0.0)
    enter(gate, first)
    assert gate.judge(submit(), 0.0, 0) is not None
    gate.cancelled("many")
    gate.cancelled("another")
    assert gate.judge(submit(), 0.0, 0) is None


def test_tenants_have_shares_by_weight_and_one_with_nothing_waiting_has_a_place() -> None:
    gate = Gate()
    assert [refused(gate, submit("a")) for _ in range(5)] == [None] * 4 + [
        RefusalReason.TENANT_SHARE
    ]
    # b weighs three: of 8 places, 3 parts of 5.
    found = [refused(gate, submit("b", weight=3.0)) for _ in range(5)]
    assert found == [None] * 4 + [RefusalReason.TENANT_SHARE]
    assert refused(gate, submit("c")) is None
    assert refused(gate, submit("c")) is RefusalReason.TENANT_SHARE


def test_without_bounds_and_for_what_was_accepted_before_there_is_always_a_place() -> None:
    gate = Gate()
    for _ in range(20):
        enter(gate, submit())
    assert gate.judge(submit(bounds=None), 0.0, 0) is None
    assert gate.judge(submit(keeps_place=True), 0.0, 0) is None
    late = submit(keeps_place=True, deadline=-1.0)
    assert not gate.misses_deadline(late, 0.0, 0, 0)


def test_without_a_measured_pace_nobody_is_told_when_to_return_or_refused_for_a_deadline() -> None:
    gate = Gate()
    for _ in range(8):
        enter(gate, submit())
    refusal = gate.judge(submit(), 0.0, 0)
    assert refusal == Refusal(RefusalReason.QUEUE_REQUESTS, None, 8)
    assert not gate.misses_deadline(submit(deadline=0.001), 0.0, 0, 0)


def drained(gate: Gate, *, seconds: float, count: int = 4) -> None:
    """Make one sequence leave each so many seconds, the last at time 0."""
    waiting = [enter(gate, submit(), -count * seconds) for _ in range(count)]
    for number, one in enumerate(waiting, 1):
        gate.queued(one)
        gate.admitted(one, (number - count) * seconds)


def test_what_comes_too_late_is_refused_before_its_prefill() -> None:
    gate = Gate()
    drained(gate, seconds=2.0)
    for _ in range(5):
        enter(gate, submit())
    assert gate.misses_deadline(submit(deadline=9.0), 0.0, 0, 0)
    assert not gate.misses_deadline(submit(deadline=11.0), 0.0, 0, 0)
    assert not gate.misses_deadline(submit(deadline=9.0), 0.0, 6, 0)  # there are free slots
    assert not gate.misses_deadline(submit(deadline=9.0, priority=-1), 0.0, 0, 0)
    gate.prefill_pace.note(5, 1.0)
    assert gate.misses_deadline(submit(deadline=11.0), 0.0, 0, 0)
    assert not gate.misses_deadline(submit(deadline=11.0), 0.0, 0, 9)  # cached


def test_refused_ones_are_told_to_return_one_after_the_other_up_to_a_limit() -> None:
    gate = Gate()
    drained(gate, seconds=2.0)
    for _ in range(8):
        enter(gate, submit())
    told = [gate.judge(submit(), 0.0, 0) for _ in range(200)]
    seconds = [refusal.retry_after for refusal in told if refusal is not None]
    # The second is not promised a place that is kept for the first.
    assert seconds[:4] == [2, 6, 9, 11]
    assert max(filter(None, seconds)) == MOST_RETRY_SECONDS == seconds[-1]


def test_a_promise_is_kept_for_a_submission_that_is_refused_for_another_reason() -> None:
    gate = Gate()
    drained(gate, seconds=2.0)
    waiting = [enter(gate, submit()) for _ in range(8)]
    assert gate.judge(submit(), 0.0, 0) is not None  # come back in two seconds
    gate.left(waiting[0])
    assert gate.judge(submit(), 2.0, 0) is None  # it returns, but misses its deadline
    assert len(gate._tenants[""].promises) == 1
    assert refused(gate, submit(), now=2.0) is None  # and again
    assert gate._tenants[""].promises == []


def test_promises_that_nobody_returns_for_leave_no_capacity_unused() -> None:
    gate = Gate()
    drained(gate, seconds=2.0)
    waiting = [enter(gate, submit()) for _ in range(8)]
    for _ in range(50):
        gate.judge(submit(), 0.0, 0)
    for one in waiting[:3]:
        gate.left(one)
    assert refused(gate, submit(), now=0.5) is None  # 5 wait, and 6 places are open to all
    assert refused(gate, submit(), now=0.5) is not None
    assert refused(gate, submit(), now=400.0) is None  # all promises have lapsed
    assert refused(gate, submit(), now=400.0) is None


def test_after_a_burst_the_next_one_is_not_sent_away_for_longer() -> None:
    """Those that were refused do not return, and between bursts the server is idle."""
    gate, longest = Gate(), []
    for burst in range(10):
        now = burst * 4.0
        gate.admitted(enter(gate, submit(), now), now)
        waiting, retries = [], []
        for _ in range(6):
            one = submit(bounds=QueueBounds(2, 10**9))
            refusal = gate.judge(one, now, 0)
            if refusal is None:
                waiting.append(enter(gate, one, now))
            else:
                retries.append(refusal.retry_after or 0)
        for number, sequence in enumerate(waiting, 1):
            gate.queued(sequence)
            gate.admitted(sequence, now + 0.5 * number)
        longest.append(max(retries))
    assert longest[0] == 0  # nothing is known yet
    assert max(longest[1:]) <= 4  # five places, at two a second


@dataclass
class Overload:
    """Tenants' clients at a server that runs ``slots`` sequences of ``seconds`` each."""

    slots: int = 4
    seconds: float = 1.0
    bounds: QueueBounds = field(default_factory=lambda: QueueBounds(32, 10**9))
    gate: Gate = field(default_factory=Gate)
    events: list[tuple[float, int, str, str]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)
    queue: deque[tuple[Sequence, str]] = field(default_factory=deque)
    running: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    returned: Counter[tuple[str, bool]] = field(default_factory=Counter)  # by tenant and success

    def at(self, moment: float, kind: str, tenant: str) -> None:
        heapq.heappush(self.events, (moment, next(self.order), kind, tenant))

    def run(self, until: float, *, obey: dict[str, bool]) -> None:
        while self.events and self.events[0][0] < until:
            now, _, kind, tenant = heapq.heappop(self.events)
            if kind == "end":
                self.running -= 1
                self.at(now, "new", tenant)
            else:
                self._arrive(now, kind, tenant, obey=obey[tenant])
            self._fill(now)

    def _arrive(self, now: float, kind: str, tenant: str, *, obey: bool) -> None:
        one = submit(tenant, bounds=self.bounds)
        refusal = self.gate.judge(one, now, self.slots - self.running)
        if kind == "returned":
            self.returned[tenant, refusal is None] += 1
        if refusal is None:
            sequence = enter(self.gate, one, now)
            if self.running >= self.slots:
                self.gate.queued(sequence)
            self.queue.append((sequence, tenant))
        elif obey and refusal.retry_after is not None:
            self.at(now + refusal.retry_after, "returned", tenant)
        else:
            self.refused[tenant] += 1
            self.at(now + 1.0, "new", tenant)

    def _fill(self, now: float) -> None:
        while self.queue and self.running < self.slots:
            sequence, tenant = self.queue.popleft()
            self.gate.admitted(sequence, now)
            self.running += 1
            self.at(
                now + self.seconds * random.Random(sequence.uid).uniform(0.5, 1.5), "end", tenant
            )


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_client_that_obeys_retry_after_is_admitted_nine_times_in_ten(seed: int) -> None:
    """Ten times as many clients as can be served; one tenant sends most and obeys nothing."""
    server, rng = Overload(), random.Random(seed)
    for tenant, clients in {"wild": 60, "b": 20, "c": 20, "d": 20}.items():
        for _ in range(clients):
            server.at(rng.uniform(0, 5), "new", tenant)
    obey = {"wild": False, "b": True, "c": True, "d": True}
    server.run(60.0, obey=obey)  # until the pace is known
    server.returned.clear()
    server.run(180.0, obey=obey)
    came = [server.returned[tenant, True] for tenant in "bcd"]
    lost = [server.returned[tenant, False] for tenant in "bcd"]
    assert sum(came) > 50
    assert sum(came) >= 0.9 * (sum(came) + sum(lost))


def test_all_clients_of_one_tenant_that_obey_are_admitted_nine_times_in_ten() -> None:
    server, rng = Overload(), random.Random(3)
    for _ in range(150):
        server.at(rng.uniform(0, 5), "new", "")
    server.run(60.0, obey={"": True})
    server.returned.clear()
    server.run(300.0, obey={"": True})
    assert server.returned["", True] > 200
    share = server.returned["", True] / server.returned.total()
    assert share >= 0.9


def test_idle_tenants_are_forgotten() -> None:
    gate = Gate()
    for number in range(5000):
        one = enter(gate, submit(f"t{number}"))
        gate.left(one)
    assert len(gate._tenants) <= gate_module._MOST_IDLE
    assert len(gate) == 0
