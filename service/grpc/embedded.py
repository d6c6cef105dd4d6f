"""Encodes the answer to Embed without creating a Python number for each element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from service.proto.quire.v1 import quire_pb2 as pb

_DELIMITED: Final = 2


def embed_response(vectors: Iterable[bytes], *, model: str, prompt_tokens: int) -> bytes:
    """Return a serialized EmbedResponse. ``vectors``: little-endian float32, which is also the
    encoding of a packed field of floats."""
    rest = pb.EmbedResponse(model=model, prompt_tokens=prompt_tokens).SerializeToString()
    pieces = [rest]
    for vector in vectors:
        values = _length_prefix(_VALUES, len(vector)) if vector else b""
        pieces += (_length_prefix(_EMBEDDINGS, len(values) + len(vector)), values, vector)
    return b"".join(pieces)


_EMBEDDINGS: Final[int] = pb.EmbedResponse.DESCRIPTOR.fields_by_name["embeddings"].number
_VALUES: Final[int] = pb.Embedding.DESCRIPTOR.fields_by_name["values"].number


def _length_prefix(number: int, size: int) -> bytes:
    """Return the prefix of a field whose value has ``size`` bytes."""
    return _varint(number << 3 | _DELIMITED) + _varint(size)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
