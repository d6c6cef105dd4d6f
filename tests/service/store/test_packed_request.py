"""A row is small, and has the whole record."""

from __future__ import annotations

import hashlib

import msgspec

from observability.admin_api import EventKind, KeptRequest, Neighbour, Prefill, RequestEvent
from service.records.row import row_of
from service.store import packed_request
from service.store.packed_request import pack_request, pack_requests, unpack_request
from tests.service.store.archived import kept


def unpacked(one: KeptRequest) -> KeptRequest:
    row = pack_request(row_of(one))
    return unpack_request(row["request_id"], row["trace_id"], row["record"])


def test_nothing_is_lost() -> None:
    neighbour = Neighbour(1.0, 0.5, 2048, 40, (Prefill("req_x", 2000),))
    for one in (
        kept(1),
        kept(2, neighbours=(neighbour,), user_agent="ünïcode", finish_reasons=("stop",)),
        KeptRequest(request_id="", received=0.0, route="none", ended=1.0),
    ):
        assert unpacked(one) == one


def test_a_row_is_small() -> None:
    one = kept(5, user_agent="OpenAI/Python 3.1.0", client_address="10.1.2.3", status=200)
    assert len(pack_request(row_of(one))["record"]) < 600


def test_a_long_record_is_compressed() -> None:
    event = RequestEvent(EventKind.GAP, 1.0, 0.5)
    one = kept(6, events=(event,) * 120)
    assert len(msgspec.msgpack.encode(one)) > 2000
    assert len(pack_request(row_of(one))["record"]) < 600
    assert unpacked(one) == one


def test_the_columns_are_those_of_the_record() -> None:
    row = pack_request(row_of(kept(3, phases={"queue": 0.1, "decode": 0.2, "flush": 0.05})))
    assert row["phase"] == "decode"
    assert row["total"] == kept(3).total
    assert pack_request(row_of(kept(3, phases={})))["phase"] is None
    without_end = KeptRequest(request_id="r", received=10.0, route="none", total=2.0)
    assert pack_request(row_of(without_end))["ended"] == 12.0


def test_what_another_version_wrote_does_not_keep_the_others_back() -> None:
    whole = row_of(kept(1)).encode()
    rows = pack_requests([b"not a record", whole, whole[:-1], b""])
    assert rows == [pack_request(row_of(kept(1)))]


def test_the_dictionary_never_changes() -> None:
    """Rows in databases need it as it is."""
    digest = hashlib.sha256(packed_request._WORDS).hexdigest()
    assert digest == "00a4d1396b7eb30cfd94ef99cd85ffb4bf6f29adbc496abfde2f26a7ca92bebb"
