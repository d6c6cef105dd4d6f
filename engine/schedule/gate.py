"""Decides whether a submission gets a place in the waiting queue, and when a refused one should
come back.

The queue is bounded in sequences and in tokens. A sequence counts from its submission until it
first runs; those for which a slot and KV blocks are free do not count. If several tenants share the
queue, each may fill its part: by weight, with one more part left free for the next tenant. A tenant
with nothing waiting always gets a place.

A refusal says when to come back, in whole seconds as in HTTP: once what is ahead has drained at
the measured pace, and after those that were refused before. While a tenant has such *promises*, the
last quarter of its places is kept for submissions that come at a promised time, so that a client
that waits does not find its place taken by one that did not. The rest of the queue stays open to
all, so that clients who do not return leave no capacity unused.
"""

from __future__ import annotations

import heapq
import math

from engine.messages import Generate, Submit
from engine.queueing import QueueBounds, Refusal, RefusalReason
from engine.schedule.expected import Amount, ExpectedParts
from engine.schedule.pace import DrainPace, PrefillPace
from engine.step.sequence import Sequence

# OpenAI's JavaScript client ignores longer times and returns within seconds.
MOST_RETRY_SECONDS = 60
# The most output tokens that a waiting sequence is expected to generate.
MOST_EXPECTED_OUTPUT = 1024
_GRACE_SECONDS = 1.0  # how late a client may return
_MOST_PROMISES = 4096  # for each tenant
_MOST_IDLE = 1024  # tenants
_NEWCOMERS = 0.75  # of the places, while there are promises
# Of the pace: a little is left, or the places kept for promises would fill and stay full.
_PROMISED = 0.85


def reserve_of(submit: Submit) -> int:
    """Return the tokens that one sequence of a submission counts for while it waits."""
    return len(submit.prompt_token_ids) + _expected_output(submit)


def _expected_output(submit: Submit) -> int:
    task = submit.task
    return min(task.params.max_tokens, MOST_EXPECTED_OUTPUT) if isinstance(task, Generate) else 0


def amount_of(submit: Submit) -> tuple[int, int]:
    """Return the sequences and tokens of a submission with all its copies and with what of the
    request follows it."""
    count = 1 + len(submit.copies)
    tokens = count * reserve_of(submit)
    following = submit.following
    if following is None:
        return count, tokens
    tokens += following.prompt_tokens + following.sequences * _expected_output(submit)
    return count + following.sequences, tokens


class _Tenant:
    """``sequences`` and ``tokens`` wait. ``promises``: a heap of when refused submissions will
    return; ``promised_until``: when the last of them has its turn."""

    __slots__ = ("pace", "promised_until", "promises", "sequences", "tokens", "weight")

    def __init__(self) -> None:
        self.sequences = 0
        self.tokens = 0
        self.weight = 1.0
        self.pace = DrainPace()
        self.promises: list[float] = []
        self.promised_until = 0.0


class Gate:
    """Ask ``judge`` before each submission, then ``enter`` its sequences; ``admitted`` or ``left``
    ends their waiting."""

    def __init__(self) -> None:
        self.prefill_pace = PrefillPace()
        self._pace = DrainPace()
        self._tenants: dict[str, _Tenant] = {}
        self._waiting: dict[int, int] = {}  # tokens, by uid
        self._tokens = 0
        self._prompt_tokens = 0
        self._queued: set[int] = set()  # uids of those that did not run at once
        self._keeps_promise_to: _Tenant | None = None  # whose submission is about to enter
        self._expected = ExpectedParts()

    def __len__(self) -> int:
        return len(self._waiting)

    def mean_prompt(self, submit: Submit) -> int:
        """Return the mean length of the waiting prompts and of this one, in tokens."""
        tokens = self._prompt_tokens + len(submit.prompt_token_ids)
        return -(-tokens // (len(self._waiting) + 1))

    # --- places -------------------------------------------------------------------------------

    def judge(self, submit: Submit, now: float, free_slots: int) -> Refusal | None:
        """Return why a submission gets no place now, with all its copies and what follows it; None
        if it does."""
        self._keeps_promise_to = None
        bounds = submit.bounds
        if bounds is None or submit.keeps_place:
            return None
        tenant = self._tenant(submit.tenant)
        tenant.weight = submit.weight
        while tenant.promises and tenant.promises[0] < now - _GRACE_SECONDS:
            heapq.heappop(tenant.promises)
        self._expected.lapse(now)
        own = tenant.sequences + self._expected.of(submit.tenant).sequences
        if not own:  # the queue drained sooner than was promised
            tenant.promised_until = now
        if not own or len(self._waiting) + self._expected.total.sequences < free_slots:
            return None
        count, tokens = amount_of(submit)
        returns = bool(tenant.promises) and tenant.promises[0] <= now
        part = 1.0 if returns or not tenant.promises else _NEWCOMERS
        found = self._exceeded(submit.tenant, tenant, bounds, count, tokens, part, free_slots)
        if found is None:
            self._keeps_promise_to = tenant if returns else None
            return None
        reason, sequences_over, tokens_over = found
        of_tenant = reason is RefusalReason.TENANT_SHARE
        waiting = tenant.sequences if of_tenant else len(self._waiting)
        retry_after = self._promise(tenant, sequences_over, tokens_over, count, now)
        return Refusal(reason, retry_after, waiting)

    def _exceeded(
        self,
        name: str,
        tenant: _Tenant,
        bounds: QueueBounds,
        count: int,
        tokens: int,
        part: float,
        free_slots: int,
    ) -> tuple[RefusalReason, int, int] | None:
        """Return the first bound that would be exceeded, and by how many sequences and tokens."""
        own = 1.0 if name == "" else self._part_of(tenant)
        places = max(1, int(bounds.sequences * part))
        room = max(1, int(bounds.tokens * part))
        if own < 1.0:
            expected = self._expected.of(name)
            over = tenant.sequences + expected.sequences + count - max(1, int(places * own))
            tokens_over = tenant.tokens + expected.tokens + tokens - max(1, int(room * own))
            if over > 0 or tokens_over > 0:
                return RefusalReason.TENANT_SHARE, over, tokens_over
        expected = self._expected.total
        over = len(self._waiting) + expected.sequences - free_slots + count - places
        tokens_over = self._tokens + expected.tokens + tokens - room
        if over > 0:
            return RefusalReason.QUEUE_REQUESTS, over, tokens_over
        if tokens_over > 0:
            return RefusalReason.QUEUE_TOKENS, over, tokens_over
        return None

    def _part_of(self, tenant: _Tenant) -> float:
        """Return the part of the queue that a tenant may fill, with one of weight 1 to come."""
        others = sum(one.weight for one in self._tenants.values() if one.sequences)
        return tenant.weight / (others + 1.0)

    def _promise(
        self, tenant: _Tenant, sequences: int, tokens: int, count: int, now: float
    ) -> int | None:
        """Return the seconds until this much has drained; None if the pace is unknown."""
        pace = self._pace_of(tenant, now)
        if pace is None:
            return None
        at = now + max(sequences / pace[0], tokens / pace[1], 0.0)
        if tenant.promises:
            at = max(at, tenant.promised_until + count / (_PROMISED * pace[0]))
        seconds = max(1, math.ceil(at - now))
        if seconds <= MOST_RETRY_SECONDS and len(tenant.promises) < _MOST_PROMISES:
            heapq.heappush(tenant.promises, now + seconds)
            tenant.promised_until = at
        return min(seconds, MOST_RETRY_SECONDS)

    def _pace_of(self, tenant: _Tenant, now: float) -> tuple[float, float] | None:
        """Return the sequences and tokens of this tenant that leave the queue each second."""
        own = tenant.pace.per_second(now, waits=bool(tenant.sequences))
        if own is not None:
            return own
        pace = self._pace.per_second(now, waits=bool(self._waiting))
        if pace is None:
            return None
        weights = sum(one.weight for one in self._tenants.values() if one.sequences)
        share = tenant.weight / max(weights, tenant.weight)
        return pace[0] * share, pace[1] * share

    # --- deadlines ------------------------------------------------------------------------------

    def misses_deadline(self, submit: Submit, now: float, free_slots: int, cached: int) -> bool:
        """True if the first token of a submission would come after its deadline: its tenant's
        sequences ahead of it at the measured pace, then its prompt, without the ``cached`` tokens.
        Never true if the pace is unknown. One with a negative priority may be next."""
        if submit.deadline is None or submit.keeps_place:
            return False
        seconds = 0.0
        tenant = self._tenants.get(submit.tenant)
        if tenant is not None and len(self._waiting) >= free_slots and submit.priority >= 0:
            pace = self._pace_of(tenant, now)
            if pace is not None:
                seconds = tenant.sequences / pace[0]
        prefill = self.prefill_pace.tokens_per_second
        if prefill is not None:
            seconds += (len(submit.prompt_token_ids) - cached) / prefill
        return now + seconds > submit.deadline

    # --- counting -------------------------------------------------------------------------------

    def accepted(self, submit: Submit, now: float) -> None:
        """Note that a submission gets a place: what follows it has places, too."""
        if submit.following is not None:
            count, tokens = amount_of(submit)
            own = 1 + len(submit.copies)
            following = Amount(count - own, tokens - own * reserve_of(submit))
            self._expected.add(submit.request_id, submit.tenant, following, now)
        elif submit.keeps_place:
            count, tokens = amount_of(submit)
            self._expected.arrived(submit.request_id, Amount(count, tokens))

    def cancelled(self, request_id: str) -> None:
        """Note that no more parts of a request will come."""
        self._expected.drop(request_id)

    def enter(self, sequence: Sequence, tokens: int, now: float) -> None:
        tenant = self._tenant(sequence.tenant)
        if self._keeps_promise_to is tenant:  # not before: its deadline may have been out of reach
            heapq.heappop(tenant.promises)
            self._keeps_promise_to = None
        if not tenant.sequences:
            tenant.pace.began(now)
        if not self._waiting:
            self._pace.began(now)
        tenant.sequences += 1
        tenant.tokens += tokens
        self._waiting[sequence.uid] = tokens
        self._tokens += tokens
        self._prompt_tokens += sequence.num_prompt_tokens

    def queued(self, sequence: Sequence) -> None:
        """Note that a sequence has to wait: it did not run in the first step."""
        self._queued.add(sequence.uid)

    def admitted(self, sequence: Sequence, now: float) -> None:
        """Note that a sequence runs for the first time."""
        tokens = self._leave(sequence)
        if sequence.uid in self._queued:
            self._queued.discard(sequence.uid)
            self._pace.note(now, tokens)
            self._tenants[sequence.tenant].pace.note(now, tokens)

    def left(self, sequence: Sequence) -> None:
        """Note the end of a sequence, which may have run."""
        if sequence.uid in self._waiting:
            self._leave(sequence)
            self._queued.discard(sequence.uid)

    def _leave(self, sequence: Sequence) -> int:
        tokens = self._waiting.pop(sequence.uid)
        tenant = self._tenants[sequence.tenant]
        tenant.sequences -= 1
        tenant.tokens -= tokens
        self._tokens -= tokens
        self._prompt_tokens -= sequence.num_prompt_tokens
        return tokens

    def _tenant(self, name: str) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            if len(self._tenants) >= _MOST_IDLE:
                idle = [each for each, one in self._tenants.items() if not one.sequences]
                for each in idle[: max(1, _MOST_IDLE // 2)]:
                    del self._tenants[each]
            tenant = self._tenants[name] = _Tenant()
        return tenant
