"""How a call begins, is refused, ends before its time and is counted."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from service.grpc.call import peer_address
from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.grpc.clients import GrpcService, chat, long_chat, put_together, trailing
from tests.service.grpc.conftest import MAX_BODY_BYTES
from tests.service.running import until


def test_ids_and_trace_context_go_in_and_out(service: GrpcService) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    metadata = (
        ("traceparent", f"00-{trace_id}-b7ad6b7169203331-01"),
        ("x-request-id", "of-the-caller"),
    )
    call = service.stub.Chat(
        chat(max_tokens=2, sampling=pb.Sampling(ignore_eos=True)), metadata=metadata
    )
    answer = put_together(call)
    headers = dict(call.initial_metadata())
    assert headers["x-request-id"] == answer.started.request_id
    assert headers["x-trace-id"] == trace_id
    assert headers["traceresponse"].startswith(f"00-{trace_id}-")

    def lines() -> list[dict[str, Any]]:
        written = service.worker.output().splitlines()
        parsed = [json.loads(line) for line in written if line.startswith("{")]
        return [line for line in parsed if line.get("request_id") == answer.started.request_id]

    until(lines, 5, "the log line")
    [line] = lines()
    assert line["client_request_id"] == "of-the-caller"
    assert (line["route"], line["outcome"], line["status"]) == ("grpc_chat", "length", 200)
    assert (line["trace_id"], line["output_tokens"]) == (trace_id, 2)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:5012", "10.0.0.7"),
        ("ipv6:%5B::1%5D:5012", "::1"),
        ("ipv6:[fe80::1]:5012", "fe80::1"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:5012", "10.0.0.7"),
        ("unix:/run/quire.sock", None),
        ("", None),
    ],
)
def test_an_address_is_read_off_a_peer(peer: str, address: str | None) -> None:
    assert peer_address(peer) == address


def request_line(service: GrpcService, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    def lines() -> list[dict[str, Any]]:
        written = service.worker.output().splitlines()
        parsed = [json.loads(line) for line in written if line.startswith("{")]
        return [line for line in parsed if line["event"] == "request" and wanted(line)]

    (line,) = until(lines, 5, "the log line")
    return line


def test_a_call_goes_through_the_phases_of_a_request(service: GrpcService) -> None:
    answer = put_together(
        service.stub.Chat(chat(max_tokens=2, sampling=pb.Sampling(ignore_eos=True)))
    )
    line = request_line(service, lambda line: line["request_id"] == answer.started.request_id)
    engine = ("queue", "prefill", "decode")
    for phase in ("receive", "render", "tokenize", "admit", *engine):
        assert line[f"{phase}_ms"] >= 0, phase


def test_a_wrong_field_is_named_and_its_call_is_counted_under_its_model(
    service: GrpcService,
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(service.stub.Chat(chat(model="tiny", sampling=pb.Sampling(temperature=-5))))
    request_id = trailing(caught.value)["x-request-id"]
    line = request_line(service, lambda line: line["request_id"] == request_id)
    assert (line["route"], line["model"], line["status"]) == ("grpc_chat", "tiny", 400)
    assert line["error_field"] == "temperature"


def test_a_method_that_does_not_exist_is_counted_and_logged(service: GrpcService) -> None:
    path = "/quire.v1.Quire/Chatt"
    with pytest.raises(grpc.RpcError) as caught:
        list(service.channel.stream_stream(path)(iter([b"canary"])))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert path in (caught.value.details() or "")
    assert trailing(caught.value)["x-request-id"].startswith("req_")
    line = request_line(service, lambda line: line["path"] == path)
    assert (line["route"], line["outcome"], line["status"]) == ("none", "refused:invalid", 405)
    assert service.outcomes("none") == {"refused:invalid": 1}


def raw_call(service: GrpcService, *messages: bytes, **options: Any) -> grpc.RpcError:
    """How a call of Chat with these bytes as its messages ends."""
    method = service.channel.stream_stream("/quire.v1.Quire/Chat")
    with pytest.raises(grpc.RpcError) as caught:
        list(method(iter(messages), **options))
    return caught.value


def test_bytes_that_are_not_a_request_are_refused(service: GrpcService) -> None:
    assert raw_call(service, b"\xff\xff").code() is grpc.StatusCode.INVALID_ARGUMENT
    error = raw_call(service)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "without a message" in (error.details() or "")


def test_a_message_that_is_too_large_is_refused_and_counted(service: GrpcService) -> None:
    before = service.outcomes("grpc_chat")
    error = raw_call(service, bytes(MAX_BODY_BYTES + 1))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailing(error)["x-quire-reason"] == "refused:too_large"
    # gRPC refuses this one itself, which to us looks as if the client had left.
    error = raw_call(service, bytes(2 * MAX_BODY_BYTES))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    def both_are_counted() -> bool:
        after = service.outcomes("grpc_chat")
        names = ("refused:too_large", "client_gone")
        return [after.get(name, 0) - before.get(name, 0) for name in names] == [1, 1]

    until(both_are_counted, 5, "one of each to be counted")


def test_calls_that_are_cancelled_at_once_are_counted_as_such(service: GrpcService) -> None:
    service.wait_idle()
    before = service.outcomes("grpc_chat")
    for _ in range(50):
        service.stub.Chat(long_chat()).cancel()
    # Counted in their order, as calls of one connection begin.
    put_together(service.stub.Chat(chat(max_tokens=1)))
    service.wait_idle()
    after = service.outcomes("grpc_chat")
    changed = {name for name in after if after[name] != before.get(name, 0)}
    assert changed <= {"client_gone", "length"}


def test_packed_messages_are_refused_for_what_they_may_unpack_to(service: GrpcService) -> None:
    error = raw_call(service, b"\0" * 1_000_000, compression=grpc.Compression.Gzip)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in (error.details() or "")


def cancel(service: GrpcService, call: Any, answer: pb.ChatResponse) -> None:
    call.cancel()


def abort(service: GrpcService, call: Any, answer: pb.ChatResponse) -> None:
    request_id = answer.events[0].started.request_id
    service.stub.Abort(pb.AbortRequest(request_id=request_id))


@pytest.mark.parametrize("end", [cancel, abort])
def test_a_call_that_is_cancelled_or_aborted_frees_its_blocks(
    service: GrpcService, end: Callable[[GrpcService, Any, pb.ChatResponse], None]
) -> None:
    service.wait_idle()
    before = service.outcomes("grpc_chat").get("client_gone", 0)
    calls = [service.stub.Chat(long_chat()) for _ in range(4)]
    firsts = [next(call) for call in calls]
    for call, first in zip(calls, firsts, strict=True):
        end(service, call, first)
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
    service.wait_idle(seconds=2)
    until(
        lambda: service.outcomes("grpc_chat").get("client_gone", 0) == before + 4,
        2,
        "four to be counted",
    )


def test_a_request_that_is_not_running_cannot_be_aborted(service: GrpcService) -> None:
    ended = put_together(service.stub.Chat(chat(max_tokens=1))).started.request_id
    for request_id in (ended, "", "req_of_nobody"):
        with pytest.raises(grpc.RpcError) as caught:
            service.stub.Abort(pb.AbortRequest(request_id=request_id))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert trailing(caught.value)["quire-error-param"] == "request_id"


def test_a_deadline_ends_the_call_and_frees_its_blocks(service: GrpcService) -> None:
    # On a slow machine, some cannot begin by then: they expire, or are refused at the pace so far.
    ends = ("deadline", "refused:expired", "refused:deadline")
    codes = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def ended() -> float:
        outcomes = service.outcomes("grpc_chat")
        return sum(outcomes.get(one, 0) for one in ends)

    service.wait_idle()
    before = ended()
    # More than can be generated in the time.
    request = chat(max_tokens=490, sampling=pb.Sampling(ignore_eos=True, n=16))
    calls = [service.stub.Chat(request, timeout=0.4) for _ in range(6)]
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() in codes
    service.wait_idle(seconds=2)
    until(lambda: ended() == before + 6, 2, "six to be counted")


def test_each_call_is_counted_once(service: GrpcService) -> None:
    def total() -> float:
        routes = ("grpc_chat", "grpc_generate", "grpc_models", "grpc_embed", "grpc_abort")
        return sum(sum(service.outcomes(route).values()) for route in routes)

    service.wait_idle()
    before = total()
    put_together(service.stub.Chat(chat(max_tokens=2)))
    put_together(service.stub.Generate(pb.GenerateRequest(text="Hi", max_tokens=2)))
    service.stub.ListModels(pb.ListModelsRequest())
    with pytest.raises(grpc.RpcError):
        list(service.stub.Chat(pb.ChatRequest()))
    running = service.stub.Chat(long_chat())
    next(running)
    running.cancel()
    until(lambda: total() >= before + 5, 5, "five to be counted")
    service.wait_idle()
    assert total() == before + 5
    metrics = service.get("/metrics")[1].decode().splitlines()
    in_progress = [line for line in metrics if line.startswith("quire_requests_in_progress")]
    assert {line.rsplit(" ", 1)[1] for line in in_progress if "grpc" in line} == {"0.0"}


def test_a_refused_call_does_not_keep_its_message(tiny_model: Path, tmp_path: Path) -> None:
    text = "x " * 2_000_000
    with GrpcService(tiny_model, tmp_path) as large:

        def refused() -> None:
            with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
                list(large.stub.Generate(pb.GenerateRequest(text=text)))

        refused()  # starts what prepares it
        before = resident_bytes(large.worker.popen.pid)
        for _ in range(16):
            refused()
        assert resident_bytes(large.worker.popen.pid) - before < 8 * len(text)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
