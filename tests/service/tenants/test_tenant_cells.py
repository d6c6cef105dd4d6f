"""What a tenant has used of a minute is counted by the second."""

from __future__ import annotations

from service.tenants.limit_memory import LimitMemory
from service.tenants.tenant_cells import REQUESTS, SECOND, TOKENS, WINDOW


def test_what_was_counted_in_a_second_leaves_the_window_after_a_minute() -> None:
    memory = LimitMemory(None)
    with memory.lock():
        tenant = memory.tenant("team")
        tenant.advance(1000)
        for second in (1000, 1001, 1040):
            tenant.advance(second)
            tenant.count_requests(second, 2)
            tenant.count_tokens(second, 10)
        tenant.advance(1000 + WINDOW - 1)
        assert (tenant[REQUESTS], tenant[TOKENS]) == (6, 30)
        tenant.advance(1000 + WINDOW)
        assert (tenant[REQUESTS], tenant[TOKENS]) == (4, 20)
        assert not tenant.has(1000)
        assert tenant.has(1001)
        assert tenant.second_when_free(REQUESTS, 2) == 1001
        assert tenant.second_when_free(REQUESTS, 3) == 1040
        tenant.advance(900)  # another worker was later
        assert tenant[SECOND] == 1000 + WINDOW
        tenant.advance(5000)
        assert (tenant[REQUESTS], tenant[TOKENS]) == (0, 0)
