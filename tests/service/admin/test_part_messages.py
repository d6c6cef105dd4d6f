"""Messages between workers arrive as they were sent."""

from __future__ import annotations

import msgspec
import pytest

from observability.admin_api import KeptRequest
from service.admin import part_messages
from service.admin.part_messages import CancelPart, DrainPart, FoundPart, RowsPart, SettingsPart
from service.records.row import row_of

KEPT = KeptRequest(request_id="req_a", received=1.0, ended=2.0, route="completions", key="ann")


@pytest.mark.parametrize(
    "message",
    [
        CancelPart("req_a", "cancelled", "completions of ann", is_complete=True),
        DrainPart(is_held=True, is_ending=False, in_flight=3),
        FoundPart(KEPT),
        FoundPart(None),
        RowsPart([row_of(KEPT)], "cursor", is_complete=False),
        SettingsPart("revision", {"slo_ttft": (0.5, "ann"), "log_level": ("info", "bob")}),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: msgspec.Struct) -> None:
    sent = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(sent, type=type(message)) == message


def test_every_message_can_be_decoded() -> None:
    """Annotations that cannot be resolved show when a decoder is made."""
    found = [
        one
        for one in vars(part_messages).values()
        if isinstance(one, type) and issubclass(one, msgspec.Struct)
    ]
    assert len(found) > 10
    for one in found:
        msgspec.msgpack.Decoder(one)
