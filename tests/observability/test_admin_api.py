"""The admin API's types survive the way over the wire."""

from __future__ import annotations

import msgspec

from observability.admin_api import EventKind, KeptRequest, PrefixReport, RequestEvent, RequestPage


def test_a_page_of_requests_is_the_same_after_json() -> None:
    request = KeptRequest(
        request_id="req_1",
        received=1.5,
        route="chat_completions",
        phases={"prefill": 0.25},
        prefix=PrefixReport(matched=16, of=40, stopped="diverged", at_message=3),
        events=(RequestEvent(EventKind.GAP, 0.5, 0.125),),
    )
    page = RequestPage((request,), cursor="2")
    assert msgspec.json.decode(msgspec.json.encode(page), type=RequestPage) == page
