"""What routes of the admin API receive."""

from __future__ import annotations

import msgspec

from service.http.admin.call import approach_of, json_answer


def test_the_gate_sees_address_and_headers() -> None:
    scope = {
        "client": ("10.0.0.7", 1),
        "headers": [(b"host", b"a"), (b"origin", b"b"), (b"authorization", b"Bearer c")],
    }
    approach = approach_of(scope)  # type: ignore[arg-type]
    assert approach.address == "10.0.0.7"
    assert (approach.host, approach.origin, approach.authorization) == (b"a", b"b", b"Bearer c")


def test_without_an_address_a_client_is_from_nowhere() -> None:
    assert approach_of({"method": "GET", "client": None, "headers": []}).address == ""  # type: ignore[typeddict-item]


def test_answers_are_not_cached() -> None:
    reply = json_answer({"a": 1}, {"etag": '"x"'})
    assert msgspec.json.decode(reply.content) == {"a": 1}
    assert reply.headers == {"cache-control": "no-store", "etag": '"x"'}
