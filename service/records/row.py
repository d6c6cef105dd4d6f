"""A kept request as it lies in memory: what queries look at, and the rest encoded.

Ten thousand requests as objects would be a million objects for the garbage collector to look at,
and its pauses hold every stream up. A row has none of them.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from observability.admin_api import KeptRequest

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeptRequest)

# Of a row without its encoding: the struct, its numbers, its two ids.
_ROW_BYTES = 560


class Row(msgspec.Struct, frozen=True, gc=False):
    """``phase``: the longest one; of a live request, the one that it is in. The rest as in
    ``KeptRequest``, of which ``encoded`` has everything but its two ids."""

    request_id: str
    trace_id: str
    received: float
    ended: float | None
    total: float
    ttft: float | None
    itl_mean: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    key: str | None
    model: str
    route: str
    outcome: str
    phase: str | None
    encoded: bytes

    def request(self) -> KeptRequest:
        return decode_request(self.request_id, self.trace_id, self.encoded)

    def encode(self) -> bytes:
        return _encoder.encode(self)

    @property
    def size(self) -> int:
        """How many bytes of memory it takes, about."""
        return _ROW_BYTES + len(self.encoded)


def row_of(kept: KeptRequest) -> Row:
    return Row(
        request_id=kept.request_id,
        trace_id=kept.trace_id,
        received=kept.received,
        ended=kept.ended,
        total=kept.total,
        ttft=kept.ttft,
        itl_mean=kept.itl_mean,
        prompt_tokens=kept.prompt_tokens,
        output_tokens=kept.output_tokens,
        cached_tokens=kept.cached_tokens,
        key=kept.key,
        model=kept.model,
        route=kept.route,
        outcome=kept.outcome,
        phase=kept.phase if kept.live else longest_phase(kept.phases),
        encoded=_encoder.encode(replace(kept, request_id="", trace_id="")),
    )


def decode_request(request_id: str, trace_id: str, encoded: bytes | memoryview[int]) -> KeptRequest:
    """Raises msgspec.DecodeError for what is not ``Row.encoded``."""
    return replace(_decoder.decode(encoded), request_id=request_id, trace_id=trace_id)


def decode_row(encoded: bytes) -> Row:
    """Raises msgspec.DecodeError for what is not from ``Row.encode``."""
    return _row_decoder.decode(encoded)


def longest_phase(phases: dict[str, float]) -> str | None:
    """Return the phase that took longest; None if no phase was reached."""
    return max(phases, key=phases.__getitem__) if phases else None


_row_decoder = msgspec.msgpack.Decoder(Row)
