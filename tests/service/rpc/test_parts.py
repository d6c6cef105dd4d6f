"""What a message comes to in memory is bounded before it is read."""

from __future__ import annotations

import time

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequestError
from service.rpc.decode import read_message
from service.rpc.parts import MAX_FIELDS, TooManyFieldsError, check_fields
from service.rpc.proto.quire.v1 import quire_pb2 as pb


def conversation(messages: int) -> bytes:
    """Of four fields a message: itself and three of its own."""
    message = pb.Message(role="user", content="Hi", name="n")
    return pb.ChatRequest(messages=[message] * messages).SerializeToString()


def one_call() -> pb.ToolCall:
    return pb.ToolCall(id="c", function=pb.FunctionCall(name="f", arguments="{}"))


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x00" * 4_000_000,  # messages, each empty
        b"\x9a\x00\x00" * 2_000_000,  # a field's number written longer than it need be
        pb.ChatRequest(messages=[pb.Message(tool_calls=[one_call()] * 70_000)]).SerializeToString(),
        pb.ChatRequest(
            sampling=pb.Sampling(logit_bias=dict.fromkeys(range(90_000), 1.0))
        ).SerializeToString(),
    ],
    ids=["messages", "long tags", "calls", "map"],
)
def test_fields_without_number_are_refused_within_a_moment(data: bytes) -> None:
    """In about the time that the most fields take which are not refused."""
    begin = time.process_time()
    read_message(pb.ChatRequest, conversation(MAX_FIELDS // 4))
    taken = time.process_time() - begin
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_FIELDS} fields"):
        read_message(pb.ChatRequest, data)
    assert time.process_time() - begin - taken < 5 * taken


def test_as_many_messages_as_http_takes_are_taken() -> None:
    assert len(read_message(pb.ChatRequest, conversation(16384)).messages) == 16384


def test_many_token_ids_are_one_field() -> None:
    data = pb.GenerateRequest(token_ids=pb.TokenIds(ids=range(1_000_000))).SerializeToString()
    assert len(read_message(pb.GenerateRequest, data).token_ids.ids) == 1_000_000


@given(st.binary(max_size=200))
def test_nothing_is_refused_that_protobuf_takes_but_groups(data: bytes) -> None:
    """Also: nothing but ValueError comes out, whatever goes in."""
    try:
        check_fields(data, pb.ChatRequest)
    except TooManyFieldsError:
        pytest.fail("so few bytes cannot hold so many fields")
    except ValueError as error:
        if "groups" not in str(error):
            with pytest.raises(DecodeError):
                pb.ChatRequest.FromString(data)
