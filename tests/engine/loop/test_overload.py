"""Ten times what can be served, from four tenants of whom one sends nine tenths, in simulated
time: the whole engine but for the model."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.queueing import QueueBounds, ServiceClass
from engine.schedule.waiting import FLOORS
from tests.engine.checking_runner import CheckingRunner
from tests.engine.loop.listening import ALICE, tokens

STEP, SLOTS, OUTPUT = 0.05, 8, 32
CAPACITY = SLOTS / STEP  # tokens per second
BOUNDS = QueueBounds(64, 1_000_000)
TENANTS = ("greedy", "one", "two", "three")
MOST_TRIES = 5
SECONDS, WARM_UP = 180.0, 45.0


@dataclass(order=True)
class Arrival:
    at: float
    number: int
    tenant: str = field(compare=False)
    service_class: ServiceClass = field(compare=False)
    tries: int = field(default=1, compare=False)


class Overload:
    """``tokens``: of each tenant after the warm-up. ``longest_wait``: seconds from a submission
    that got a place to its first token. ``ended``: obedient requests, by whether they were
    served."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.tokens = Counter[str]()
        self.longest_wait = dict.fromkeys(ServiceClass, 0.0)
        self.ended = Counter[bool]()
        self._engine = EngineCore(
            CheckingRunner(vocab_size=1000, num_kv_blocks=512),
            max_num_seqs=SLOTS,
            max_num_batched_tokens=512,
            clock=lambda: self.now,
        )
        self._engine.connect(ALICE)
        self._arrivals = self._offered(random.Random(seed))
        self._live: dict[int, Arrival] = {}
        self._sent = 0

    def _offered(self, rng: random.Random) -> list[Arrival]:
        found: list[Arrival] = []
        at = 0.0
        while (at := at + rng.expovariate(10 * CAPACITY / OUTPUT)) < SECONDS:
            tenant = "greedy" if rng.random() < 0.9 else rng.choice(TENANTS[1:])
            kind = ServiceClass.BATCH if rng.random() < 0.1 else ServiceClass.STANDARD
            found.append(Arrival(at, len(found), tenant, kind))
        return found

    def run(self) -> None:
        while self.now < SECONDS:
            while self._arrivals and self._arrivals[0].at <= self.now:
                self._send(heapq.heappop(self._arrivals))
            outputs = self._engine.step().get(ALICE)
            self.now += STEP
            if outputs is None:
                continue
            for handle, _ in tokens(outputs):
                arrival = self._live[handle]
                self.tokens[arrival.tenant] += self.now > WARM_UP
                if arrival.at >= 0:
                    kind = arrival.service_class
                    self.longest_wait[kind] = max(self.longest_wait[kind], self.now - arrival.at)
                    arrival.at = -1.0  # its first token has come
            for finished in outputs.finished:
                arrival = self._live.pop(finished.handle)
                if finished.refusal is None:
                    self.ended[True] += arrival.tenant != "greedy"
                else:
                    self._refused(arrival, finished.refusal.retry_after)

    def _send(self, arrival: Arrival) -> None:
        self._sent += 1
        self._live[self._sent] = arrival
        self._engine.add(
            ALICE,
            Submit(
                handle=self._sent,
                request_id="r",
                prompt_token_ids=[1, 2, 3],
                task=Generate(SamplingParams(max_tokens=OUTPUT, ignore_eos=True)),
                arrival_time=self.now,
                tenant=arrival.tenant,
                service_class=arrival.service_class,
                bounds=BOUNDS,
            ),
        )

    def _refused(self, arrival: Arrival, retry_after: int | None) -> None:
        if arrival.tenant == "greedy":
            return
        if arrival.tries == MOST_TRIES:
            self.ended[False] += 1
        elif retry_after is not None:
            arrival.at = self.now + retry_after
            arrival.tries += 1
            heapq.heappush(self._arrivals, arrival)


@pytest.mark.parametrize("seed", range(2))
def test_each_tenant_has_its_share_and_who_obeys_is_served(seed: int) -> None:
    load = Overload(seed)
    load.run()
    served = load.tokens.total()
    assert served >= 0.95 * CAPACITY * (SECONDS - WARM_UP)
    for tenant in TENANTS:
        assert 0.9 <= load.tokens[tenant] / served * len(TENANTS) <= 1.1, load.tokens
    # A tenant alone may fill half of the queue; when the others come, it is served a quarter.
    drain = BOUNDS.sequences * OUTPUT / CAPACITY
    assert load.longest_wait[ServiceClass.STANDARD] <= drain / 2 / (0.25 * 0.9)
    assert load.longest_wait[ServiceClass.BATCH] <= drain / FLOORS[ServiceClass.BATCH]
    assert load.ended[True] >= 0.9 * load.ended.total()
    assert load.ended.total() > 100
