"""Which waiting sequence is next, by class and tenant: simulated servers, in simulated time."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import SamplingParams
from engine.queueing import ServiceClass
from engine.schedule import waiting
from engine.schedule.tenant_queue import MOST_OUT_OF_TURN, TenantQueue
from engine.schedule.waiting import FLOORS, WaitingQueue
from engine.step.sequence import MOST_OVERTAKEN, Sequence

PARAMS = SamplingParams(max_tokens=1000)
INTERACTIVE, STANDARD, BATCH = ServiceClass


def sequence(
    uid: int,
    tenant: str = "",
    *,
    tokens: int = 10,
    weight: float = 1.0,
    priority: int = 0,
    service_class: ServiceClass = STANDARD,
    params: SamplingParams = PARAMS,
) -> Sequence:
    return Sequence(
        uid,
        f"r{uid}",
        [1] * tokens,
        tokens,
        params,
        priority=priority,
        tenant=tenant,
        weight=weight,
        service_class=service_class,
    )


@dataclass
class Server:
    """Runs ``slots`` sequences at once; each of its steps gives each of them a token."""

    slots: int
    queue: WaitingQueue = field(default_factory=WaitingQueue)
    running: dict[int, Sequence] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)  # by uid: tokens to generate
    admitted: list[Sequence] = field(default_factory=list)
    work: Counter[str] = field(default_factory=Counter)  # by tenant, as the queue counts it
    by_class: Counter[ServiceClass] = field(default_factory=Counter)
    uids: itertools.count[int] = field(default_factory=itertools.count)
    on_admitted: Callable[[Sequence], None] | None = None

    def submit(self, tenant: str, output: int = 5, **traits: object) -> Sequence:
        one = sequence(next(self.uids), tenant, **traits)  # type: ignore[arg-type]
        self.outputs[one.uid] = output
        self.queue.enter(one, self.running.values())
        return one

    def admit(self) -> None:
        if self.queue.is_shared:
            self.queue.settle(self.running.values())
        while len(self.running) < self.slots and self.queue.head() is not None:
            head = self.queue.head()
            one = self.queue.pop()
            assert one is head
            self.queue.charge(one)
            self._count(one, one.num_prompt_tokens * waiting.PROMPT_WORK)
            self.running[one.uid] = one
            self.admitted.append(one)
            if self.on_admitted is not None:
                self.on_admitted(one)

    def step(self) -> None:
        self.admit()
        for one in list(self.running.values()):
            one.token_ids.append(1)
            self._count(one, waiting.OUTPUT_WORK)
            if one.num_output_tokens >= self.outputs[one.uid]:
                del self.running[one.uid]
                self.queue.leave(one)

    def _count(self, one: Sequence, work: float) -> None:
        self.work[one.tenant] += work
        self.by_class[one.service_class] += work


TRAITS = st.fixed_dictionaries(
    {"uid": st.integers(0, 10_000), "priority": st.integers(-2, 2), "tokens": st.integers(1, 50)}
)


@given(st.lists(st.one_of(TRAITS, st.just("pop"), st.just("discard")), max_size=60))
def test_with_one_tenant_the_order_is_that_of_its_own_queue(events: list[object]) -> None:
    whole, single = WaitingQueue(), TenantQueue()
    members: dict[int, Sequence] = {}
    used: set[int] = set()
    for event in events:
        if isinstance(event, dict) and event["uid"] not in used:
            used.add(event["uid"])
            one = sequence(event["uid"], tokens=event["tokens"], priority=event["priority"])
            members[one.uid] = one
            whole.enter(one)
            single.push(one)
        elif event == "discard" and members:
            _, one = members.popitem()
            whole.discard(one)
            whole.leave(one)
            single.discard(one)
        elif event == "pop" and members:
            one = whole.pop()
            assert one is single.pop()
            del members[one.uid]
            whole.charge(one)
            whole.leave(one)
        assert whole.head() is single.head()
        assert len(whole) == len(single) == len(members)


def test_a_tenant_in_two_classes_has_one_share() -> None:
    server, rng = Server(slots=8), random.Random(7)
    wanted = [("a", STANDARD), ("a", BATCH), ("b", STANDARD), ("c", STANDARD), ("c", BATCH)]
    for _ in range(3000):
        waits = Counter((one.tenant, one.service_class) for one in server.queue._members.values())
        for tenant, kind in wanted:
            while waits[tenant, kind] < 4:
                waits[tenant, kind] += 1
                output, tokens = rng.randint(1, 40), rng.randint(1, 100)
                server.submit(tenant, output, tokens=tokens, service_class=kind)
        server.step()
    for tenant in "abc":
        assert server.work[tenant] / server.work.total() == pytest.approx(1 / 3, rel=0.05)
    floor = FLOORS[BATCH] * server.work.total()
    assert server.by_class[BATCH] >= 0.95 * floor


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 4.0, 1.0)])
def test_each_tenant_gets_its_weighted_share_though_one_sends_nearly_everything(
    weights: tuple[float, ...],
) -> None:
    server, rng = Server(slots=8), random.Random(7)
    tenants = dict(zip("abcd", weights, strict=True))
    for _ in range(2500):
        # Everybody has more to do than their share; the first sends nine in ten.
        while sum(one.tenant == "a" for one in server.queue._members.values()) < 90:
            server.submit("a", rng.randint(1, 40), tokens=rng.randint(1, 100))
        for tenant in "bcd":
            if sum(one.tenant == tenant for one in server.queue._members.values()) < 3:
                server.submit(
                    tenant,
                    rng.randint(1, 40),
                    tokens=rng.randint(1, 100),
                    weight=tenants[tenant],
                )
        server.step()
    total = sum(server.work.values())
    for tenant, weight in tenants.items():
        fair = weight / sum(weights)
        assert server.work[tenant] / total == pytest.approx(fair, rel=0.05)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), slots=st.integers(1, 6), tenants=st.integers(2, 6))
def test_no_tenant_waits_past_its_bound(seed: int, slots: int, tenants: int) -> None:
    """For each admission: what the other tenants were given of prompts while its tenant
    waited for its turn is at most what the module's docstring says."""
    server, rng = Server(slots), random.Random(seed)
    names = [f"t{number}" for number in range(tenants)]
    weights = {name: rng.choice([0.5, 1.0, 3.0]) for name in names}
    busy = {name: rng.random() for name in names}
    # By waiting tenant: its rivals' counters when it began to wait, and what they were given since.
    since: dict[str, tuple[dict[str, float], Counter[str]]] = {}
    largest: defaultdict[str, int] = defaultdict(int)

    def counters() -> dict[str, float]:
        server.queue.settle(server.running.values())
        known = server.queue._classes[STANDARD].tenants
        return {name: known[name].counter if name in known else 0.0 for name in names}

    def check(one: Sequence) -> None:
        begun, given_since = since[one.tenant]
        now = counters()
        for rival in names:
            if given_since[rival]:
                owed = weights[rival] * max(0.0, now[one.tenant] - begun[rival])
                assert given_since[rival] <= owed + largest[rival] + 1e-6
        for other, (_, given_to) in since.items():
            if other != one.tenant:
                given_to[one.tenant] += one.num_prompt_tokens
        del since[one.tenant]
        if any(other.tenant == one.tenant for other in server.queue._members.values()):
            since[one.tenant] = (now, Counter())

    server.on_admitted = check
    for _ in range(120):
        for name in names:
            if rng.random() < busy[name]:
                size = rng.randint(1, 200)
                largest[name] = max(largest[name], size)
                server.submit(name, rng.randint(1, 30), tokens=size, weight=weights[name])
                since.setdefault(name, (counters(), Counter()))
        server.step()
    assert server.admitted or not server.outputs


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), slots=st.integers(1, 6))
def test_no_class_waits_past_its_floor(seed: int, slots: int) -> None:
    """While a class has sequences waiting it is given its floor of all work, up to what all running
    ones can do, over every stretch of time."""
    server, rng = Server(slots), random.Random(seed)
    most_tokens, most_output = 60, 20
    slack = 2 * slots * (most_tokens + waiting.OUTPUT_WORK * most_output)
    busy = {each: rng.uniform(0.3, 1.0) for each in ServiceClass}
    starts: dict[ServiceClass, tuple[float, float]] = {}
    for _ in range(300):
        for each in ServiceClass:
            if rng.random() < busy[each]:
                server.submit(
                    rng.choice("ab"),
                    rng.randint(1, most_output),
                    tokens=rng.randint(1, most_tokens),
                    service_class=each,
                )
        server.admit()
        waits = {one.service_class for one in server.queue._members.values()}
        total = float(sum(server.by_class.values()))
        for each in ServiceClass:
            if each not in waits:
                starts.pop(each, None)
                continue
            own, all_before = starts.setdefault(each, (server.by_class[each], total))
            given_to = server.by_class[each] - own
            assert given_to >= FLOORS[each] * (total - all_before) - slack
        server.step()


def test_the_urgent_class_gets_what_the_floors_leave() -> None:
    server = Server(slots=4)
    for _ in range(1500):
        waits = Counter(one.service_class for one in server.queue._members.values())
        for each in ServiceClass:
            for _ in range(5 - waits[each]):
                server.submit("a", service_class=each)
        server.step()
    total = sum(server.by_class.values())
    assert server.by_class[BATCH] / total == pytest.approx(FLOORS[BATCH], rel=0.05)
    assert server.by_class[STANDARD] / total == pytest.approx(FLOORS[STANDARD], rel=0.05)


def test_a_class_that_was_alone_is_owed_nothing() -> None:
    server = Server(slots=1)
    for _ in range(50):
        server.submit("a", service_class=BATCH)
    for _ in range(100):
        server.step()
    urgent = [server.submit("b", service_class=INTERACTIVE) for _ in range(8)]
    before = len(server.admitted)
    while urgent[-1] not in server.admitted:
        server.step()
    ahead = [one for one in server.admitted[before:] if one.service_class is BATCH]
    assert len(ahead) <= 2


def test_idle_time_earns_nothing() -> None:
    server = Server(slots=1)
    server.submit("idle")
    for _ in range(40):
        server.submit("busy")
    while len(server.queue) > 20:
        server.step()
    for _ in range(20):
        server.submit("idle")
    before = len(server.admitted)
    for _ in range(60):
        server.step()
    taken = Counter(one.tenant for one in server.admitted[before:])
    assert abs(taken["idle"] - taken["busy"]) <= 2


def owed_to_batch(queue: WaitingQueue) -> tuple[Sequence, Sequence]:
    """Let an urgent class run until the turn is that of a batch sequence; return this one and an
    urgent one that waits."""
    batch = sequence(0, "a", service_class=BATCH)
    queue.enter(batch)
    for uid in itertools.count(1):
        queue.enter(urgent := sequence(uid, "b", service_class=INTERACTIVE))
        if queue.head() is batch:
            return batch, urgent
        queue.charge(queue.pop())
    raise AssertionError


def test_what_a_class_was_owed_is_void_once_nothing_of_it_waits() -> None:
    queue = WaitingQueue()
    batch, urgent = owed_to_batch(queue)
    queue.discard(batch)
    queue.enter(sequence(1000, "a", service_class=BATCH))
    assert queue.head() is urgent


def test_a_sequence_admitted_by_its_floor_or_overtaken_often_yields_no_more() -> None:
    queue = WaitingQueue()
    batch, urgent = owed_to_batch(queue)
    assert queue.pop() is batch
    queue.charge(batch)
    assert queue.yields_to(urgent, [batch]) is None
    other = WaitingQueue()
    other.enter(batch)
    other.charge(other.pop())
    other.enter(urgent)
    assert other.yields_to(urgent, [batch]) is batch
    batch.num_overtaken = MOST_OVERTAKEN
    assert other.yields_to(urgent, [batch]) is None


def test_tenants_with_sequences_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_MOST_IDLE", 4)
    queue = WaitingQueue()
    running = [sequence(uid, f"tenant-{uid}") for uid in range(8)]
    for one in running:
        queue.enter(one)
        queue.charge(queue.pop())
    for one in running:
        queue.put_back(one)
        assert queue.pop() is one
        queue.leave(one)


def test_a_sequence_that_has_begun_to_stream_comes_back_before_all_others() -> None:
    queue = WaitingQueue()
    streaming = sequence(0, "a", service_class=BATCH)
    queue.enter(streaming)
    queue.pop()
    queue.charge(streaming)
    streaming.token_ids += [1] * 500
    queue.enter(sequence(1, "b", service_class=INTERACTIVE), [streaming])
    queue.enter(sequence(2, "a", service_class=BATCH))
    queue.put_back(streaming)
    assert queue.pop() is streaming
    assert queue.pop().uid == 1


@pytest.mark.parametrize("returns", [(0, 1), (1, 0)])
def test_of_several_that_have_begun_to_stream_the_one_that_ranks_first_comes_back_first(
    returns: tuple[int, int],
) -> None:
    queue = WaitingQueue()
    both = [sequence(0, "a"), sequence(1, "b")]
    for one in both:
        queue.enter(one)
        queue.charge(queue.pop())
        one.token_ids.append(1)
    queue.enter(sequence(2, "c"), both)
    for uid in returns:
        queue.put_back(both[uid])
    assert [queue.pop().uid for _ in range(3)] == [0, 1, 2]


def test_a_head_that_waits_for_room_is_not_overtaken_by_another_tenant() -> None:
    server = Server(slots=2)
    large = server.submit("a", tokens=1000)
    server.submit("b")
    assert server.queue.head() is large
    # Its tenant's counter rises meanwhile, as a sequence of it runs.
    server.queue._classes[STANDARD].tenants["a"].counter += 10_000
    server.queue.settle([])
    assert server.queue.head() is large


def test_one_that_is_taken_early_leaves_the_head_its_turn() -> None:
    server = Server(slots=1)
    head = server.submit("a", tokens=1000)
    others = [server.submit(name) for name in "bc"]
    server.submit("b")
    assert list(server.queue.candidates(0)) == [head, *others]
    server.queue.pop_early(others[1])
    server.queue.charge(others[1])
    assert list(server.queue.candidates(0)) == [head, others[0]]
    assert server.queue.pop() is head


def test_a_later_one_of_the_head_s_tenant_leaves_the_head_its_turn() -> None:
    server = Server(slots=1)
    head = server.submit("a", tokens=1000)
    short, other = server.submit("a", tokens=5), server.submit("b", tokens=2000)
    assert list(server.queue.candidates(10)) == [head, short, other]
    server.queue.pop_early(short)
    server.queue.charge(short)
    assert list(server.queue.candidates(10)) == [head, other]
    assert server.queue.head() is head


def test_of_many_tenants_few_heads_are_looked_at() -> None:
    server = Server(slots=1)
    for number in range(100):
        server.submit(f"t{number}", tokens=100)
        server.submit(f"t{number}", tokens=5)
    assert len(list(server.queue.candidates(10))) <= 2 * waiting._MOST_TENANTS + 2


def test_cached_tokens_count_a_tenth() -> None:
    queue = WaitingQueue()
    one = sequence(0, "a", tokens=100, weight=2.0)
    queue.enter(one)
    queue.pop()
    one.num_cached_tokens = 80
    queue.charge(one)
    assert queue._classes[STANDARD].tenants["a"].counter == pytest.approx((20 + 8) / 2)


def test_prompt_tokens_with_logprobs_count_what_they_cost() -> None:
    queue = WaitingQueue(prompt_logprob_work=3.5)
    with_logprobs = SamplingParams(max_tokens=1, prompt_logprobs=0)
    for one in (sequence(0, "a"), sequence(1, "b", params=with_logprobs)):
        queue.enter(one)
        queue.pop()
        queue.charge(one)
    tenants = queue._classes[STANDARD].tenants
    assert [tenants[name].counter for name in "ab"] == [10, pytest.approx(35)]


def test_tenants_without_sequences_are_forgotten_but_not_what_they_had() -> None:
    queue = WaitingQueue()
    for number in range(5000):
        one = sequence(number, f"t{number}", tokens=number % 7 + 1)
        queue.enter(one)
        queue.pop()
        queue.charge(one)
        queue.leave(one)
    known = queue._classes[STANDARD].tenants
    assert len(known) <= waiting._MOST_IDLE
    one = sequence(5000, "t4999")
    queue.enter(one)
    assert known["t4999"].counter > 0


def test_an_old_sequence_of_low_priority_has_its_turn_within_its_tenant() -> None:
    server = Server(slots=1)
    old = server.submit("a", priority=5)
    for _ in range(100):
        server.submit("a", output=1)
        server.submit("b", output=1)
    while old not in server.admitted:
        server.step()
    ahead = Counter(one.tenant for one in server.admitted)
    assert ahead["a"] - 1 == MOST_OUT_OF_TURN
    assert ahead["b"] <= MOST_OUT_OF_TURN + 2
