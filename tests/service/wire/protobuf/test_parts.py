"""What a message comes to in memory is bounded before it is read."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequestError
from service.proto.quire.v1 import quire_pb2 as pb
from service.wire.protobuf.decode import read_message
from service.wire.protobuf.parts import MAX_FIELDS, TooManyFieldsError, check_fields


def conversation(messages: int) -> bytes:
    """Four fields per message: itself and three fields."""
    message = pb.Message(role="user", content="Hi", name="n")
    return pb.ChatRequest(messages=[message] * messages).SerializeToString()


def one_call() -> pb.ToolCall:
    return pb.ToolCall(id="c", function=pb.FunctionCall(name="f", arguments="{}"))


def calls_made(act: Callable[[], object]) -> int:
    """How many functions ``act`` calls, in Python and in C."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    previous = sys.getprofile()
    gc.disable()  # its callbacks and finalizers, of whatever ran before, are calls too
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(previous)
        gc.enable()
    return calls


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
def test_fields_without_number_are_refused_before_one_is_read(data: bytes) -> None:
    class Unread:
        DESCRIPTOR = pb.ChatRequest.DESCRIPTOR

        @staticmethod
        def FromString(_data: bytes) -> NoReturn:  # noqa: N802  # protobuf's name
            pytest.fail("read before its fields were counted")

    def refuse() -> None:
        with pytest.raises(InvalidRequestError, match=f"at most {MAX_FIELDS} fields"):
            read_message(Unread, data)

    most = conversation(MAX_FIELDS // 4)
    # No more work than for the most fields that are not refused, however many there are.
    assert calls_made(refuse) < 2 * calls_made(lambda: check_fields(most, pb.ChatRequest))


def test_as_many_messages_as_http_takes_are_taken() -> None:
    assert len(read_message(pb.ChatRequest, conversation(16384)).messages) == 16384


def test_many_token_ids_are_one_field() -> None:
    data = pb.GenerateRequest(token_ids=pb.TokenIds(ids=range(1_000_000))).SerializeToString()
    assert len(read_message(pb.GenerateRequest, data).token_ids.ids) == 1_000_000


@given(st.binary(max_size=200))
def test_everything_that_protobuf_accepts_is_accepted_except_groups(data: bytes) -> None:
    """Also: nothing but ValueError comes out, whatever goes in."""
    try:
        check_fields(data, pb.ChatRequest)
    except TooManyFieldsError:
        pytest.fail("so few bytes cannot hold so many fields")
    except ValueError as error:
        if "groups" not in str(error):
            with pytest.raises(DecodeError):
                pb.ChatRequest.FromString(data)
