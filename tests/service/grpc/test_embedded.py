"""The answer to Embed, as protobuf's own code reads it."""

from __future__ import annotations

import struct

import pytest

from service.grpc.embedded import embed_response
from service.proto.quire.v1 import quire_pb2 as pb


@pytest.mark.parametrize("size", [0, 1, 31, 32, 4096])
def test_vectors_are_read_as_they_were_made(size: int) -> None:
    numbers = [[number / 3 - index for number in range(size)] for index in range(3)]
    vectors = [struct.pack(f"<{size}f", *vector) for vector in numbers]
    written = embed_response(vectors, model="m", prompt_tokens=7)
    expected = pb.EmbedResponse(
        model="m", prompt_tokens=7, embeddings=[pb.Embedding(values=each) for each in numbers]
    )
    assert pb.EmbedResponse.FromString(written) == expected
