"""Parts of requests that have a place in the queue and have not arrived: a request of many
prompts is judged by its first, and the others come once that has a place."""

from __future__ import annotations

from typing import NamedTuple

# Parts come within a step or two. What has not come by then no longer counts: its request may have
# ended, or its parts went to other engines.
LAPSE_SECONDS = 5.0


class Amount(NamedTuple):
    sequences: int
    tokens: int


class _Request:
    __slots__ = ("lapses", "sequences", "tenant", "tokens")

    def __init__(self, tenant: str, amount: Amount, lapses: float) -> None:
        self.tenant = tenant
        self.sequences, self.tokens = amount
        self.lapses = lapses


_NOTHING = Amount(0, 0)


class ExpectedParts:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}  # by id, in order of their lapse
        self._by_tenant: dict[str, Amount] = {}
        self.total = _NOTHING

    def of(self, tenant: str) -> Amount:
        return self._by_tenant.get(tenant, _NOTHING)

    def add(self, request_id: str, tenant: str, amount: Amount, now: float) -> None:
        """Expect these parts of a request."""
        self.drop(request_id)
        self._requests[request_id] = _Request(tenant, amount, now + LAPSE_SECONDS)
        self._count(tenant, *amount)

    def arrived(self, request_id: str, amount: Amount) -> None:
        """Note that a part is here and counts as waiting."""
        request = self._requests.get(request_id)
        if request is None:
            return
        sequences = min(amount.sequences, request.sequences)
        tokens = min(amount.tokens, request.tokens)
        request.sequences -= sequences
        request.tokens -= tokens
        self._count(request.tenant, -sequences, -tokens)
        if not request.sequences:
            self.drop(request_id)

    def lapse(self, now: float) -> None:
        """Expect no longer what should have come by now."""
        while self._requests:
            request_id, request = next(iter(self._requests.items()))
            if request.lapses > now:
                return
            self.drop(request_id)

    def drop(self, request_id: str) -> None:
        """Expect no more parts of a request."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._count(request.tenant, -request.sequences, -request.tokens)

    def _count(self, tenant: str, sequences: int, tokens: int) -> None:
        self.total = Amount(self.total.sequences + sequences, self.total.tokens + tokens)
        own = self.of(tenant)
        left = Amount(own.sequences + sequences, own.tokens + tokens)
        if left == _NOTHING:
            self._by_tenant.pop(tenant, None)
        else:
            self._by_tenant[tenant] = left
