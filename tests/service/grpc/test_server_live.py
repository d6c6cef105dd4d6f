"""Loading, keys, readers that do not read, engine death and shutdown, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import queue
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc._cython import cygrpc
from grpc_health.v1.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
)
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from service.grpc import server as server_module
from service.grpc.health import HealthServicer
from service.grpc.server import _options
from service.grpc.standard import MOST_OPEN_OF_A_CONNECTION, SmallMessages, health_handlers
from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from service.serving.connection_limits import ConnectionLimits
from service.settings import ServiceSettings
from tests.service.grpc.clients import GrpcService, chat, put_together, trailing
from tests.service.running import RunningService, until

Metadata = tuple[tuple[str, str], ...]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
ALONE = [("grpc.use_local_subchannel_pool", 1)]  # on a connection of this channel only
SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING


def long_chat(n: int = 4, **fields: Any) -> pb.ChatRequest:
    return pb.ChatRequest(
        messages=[pb.Message(role="user", content="Hi")],
        max_tokens=480,
        sampling=pb.Sampling(ignore_eos=True, n=n),
        **fields,
    )


def failure_of(call: Any) -> grpc.RpcError:
    """How a stream ends that must not succeed."""
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    return caught.value


@pytest.fixture
def own(tiny_model: Path, tmp_path: Path) -> Iterator[GrpcService]:
    """A service of this test's own, to be ended or broken."""
    with GrpcService(tiny_model, tmp_path) as running:
        yield running


def test_health_follows_loading_readiness_and_drain(tiny_model: Path, tmp_path: Path) -> None:
    service = GrpcService(tiny_model, tmp_path)
    health = HealthStub(service.channel)
    names = ("", "quire.v1.Quire")
    try:
        service.start_worker()
        watches = [
            health.Watch(HealthCheckRequest(service=name), wait_for_ready=True, timeout=60)
            for name in names
        ]
        assert [next(watch).status for watch in watches] == [NOT_SERVING] * 2
        error = failure_of(service.stub.Chat(long_chat()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert trailing(error)["quire-error-code"] == "model_loading"
        service.stub.ListModels(pb.ListModelsRequest())

        service.start_engine()
        assert [next(watch).status for watch in watches] == [SERVING] * 2
        for name in names:
            assert health.Check(HealthCheckRequest(service=name)).status == SERVING
        listed = health.List(HealthListRequest()).statuses
        assert {name: listed[name].status for name in listed} == dict.fromkeys(names, SERVING)

        # It may send more.
        described = ServerReflectionStub(service.channel).ServerReflectionInfo(
            itertools.chain(
                [ServerReflectionRequest(list_services="")], iter(queue.Queue().get, None)
            )
        )
        assert next(described).list_services_response.service
        running = [service.stub.Chat(long_chat()) for _ in range(3)]
        firsts = [next(call) for call in running]
        service.worker.popen.send_signal(signal.SIGTERM)
        assert [next(watch).status for watch in watches] == [NOT_SERVING] * 2
        assert not _answers(service.stub)
        for first, call in zip(firsts, running, strict=True):
            answer = put_together([first, *call])
            assert [said.finished.reason for said in answer.choices if said.finished] == (
                ["length"] * 4
            )
        # None of those who watch keeps it from ending.
        assert service.worker.popen.wait(4) == 0
        assert [list(call) for call in (*watches, described)] == [[], [], []]
    finally:
        service.__exit__()


def test_health_of_an_unknown_service_follows_the_protocol(
    service: GrpcService,
) -> None:
    health = HealthStub(service.channel)
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(HealthCheckRequest(service="other"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = health.Watch(HealthCheckRequest(service="other"))
    assert next(watch).status == HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


async def test_connections_are_limited_and_idle_ones_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes a descriptor, which HTTP clients then cannot have. Clients connect again."""
    limits = ConnectionLimits(http=0, admin=0, grpc=3)
    monkeypatch.setattr(ConnectionLimits, "of", lambda _: limits)
    settings = ServiceSettings(grpc_port=9000, idle_timeout=1.0, receive_timeout=1.0)
    server = grpc.aio.server(options=_options(settings))
    health = HealthServicer(lambda: True, ())
    handlers = health_handlers(health, SmallMessages(1024), 1)
    name = "grpc.health.v1.Health"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    open_ones = []
    async with asyncio.timeout(60), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = HealthStub(channel)
        assert (await stub.Check(HealthCheckRequest())).status == SERVING
        for sent in (PREFACE, b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            open_ones.append((reader, writer))
        refused, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await refused.read() == b""
        writer.close()
        for reader, writer in open_ones:
            await reader.read()
            writer.close()
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert (await stub.Check(HealthCheckRequest())).status == SERVING
        await server.stop(0)


def test_each_option_is_one_that_the_library_has() -> None:
    """It ignores the others without a word."""
    library = Path(cygrpc.__file__).read_bytes()
    names = [name for name, _ in _options(ServiceSettings(grpc_port=9000))]
    assert [name for name in names if name.encode() + b"\0" not in library] == []


PING, GOAWAY, ACK = 6, 7, 1


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, int, bytes]]:
    """Type, flags and payload of each HTTP/2 frame."""
    while True:
        head = await reader.readexactly(9)
        yield head[3], head[4], await reader.readexactly(int.from_bytes(head[:3]))


@pytest.mark.parametrize(("interval", "kept"), [(0.3, True), (0.0, False)], ids=["rare", "many"])
async def test_a_client_may_send_keepalive_pings_but_not_too_many(
    monkeypatch: pytest.MonkeyPatch, interval: float, kept: bool
) -> None:
    monkeypatch.setattr(server_module, "LEAST_PING_SECONDS", 0.25)
    server = grpc.aio.server(options=_options(ServiceSettings(grpc_port=9000)))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE)
    refused = False
    async with asyncio.timeout(60), contextlib.aclosing(frames(reader)) as received:
        for _ in range(6):  # more than it forgives
            writer.write(b"\0\0\x08" + bytes([PING, 0]) + bytes(4) + b"pingpong")
            async for kind, flags, _payload in received:
                refused = refused or kind == GOAWAY
                if refused or (kind == PING and flags & ACK):
                    break
            if refused:
                break
            await asyncio.sleep(interval)  # since the answer to the last one
    writer.close()
    await server.stop(0)
    assert refused is not kept


def test_a_dead_engine_fails_its_streams(own: GrpcService) -> None:
    health = HealthStub(own.channel)
    watch = health.Watch(HealthCheckRequest(), timeout=60)
    assert next(watch).status == SERVING
    calls = [
        own.stub.Chat(long_chat(16)),
        own.stub.Generate(
            pb.GenerateRequest(
                text="Hi", max_tokens=480, sampling=pb.Sampling(ignore_eos=True, n=16)
            )
        ),
    ]
    for call in calls:
        next(call)
    own.engine.end(signal.SIGKILL)
    for call in calls:
        error = failure_of(call)
        assert error.code() is grpc.StatusCode.INTERNAL
        assert trailing(error)["x-quire-reason"] == "error:engine"
    assert next(watch).status == NOT_SERVING
    error = failure_of(own.stub.Chat(long_chat()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert own.outcomes("grpc_chat") == {"error:engine": 1, "refused:engine": 1}
    assert own.outcomes("grpc_generate") == {"error:engine": 1}
    own.start_engine()
    assert next(watch).status == SERVING
    watch.cancel()
    put_together(own.stub.Chat(long_chat()))


def test_a_stream_cut_by_the_end_of_the_drain_says_so(tiny_model: Path, tmp_path: Path) -> None:
    with GrpcService(tiny_model, tmp_path, "--drain-timeout", "0.05") as service:
        call = service.stub.Chat(long_chat(16))
        next(call)
        service.worker.popen.send_signal(signal.SIGTERM)
        error = failure_of(call)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert trailing(error)["x-quire-reason"] == "error:shutdown"
        assert service.worker.popen.wait(20) == 0
        assert '"outcome":"error:shutdown"' in service.worker.output()


def test_a_server_that_drains_sends_its_clients_to_another_one(
    own: GrpcService, service: GrpcService
) -> None:
    """Even while a long call keeps the connection open, which is whole in the end."""
    with grpc.insecure_channel(f"ipv4:{own.target},{service.target}") as channel:
        health, stub = HealthStub(channel), QuireStub(channel)
        watch = health.Watch(HealthCheckRequest(), wait_for_ready=True)
        assert next(watch).status == SERVING
        running = stub.Chat(long_chat(16))
        first = next(running)
        own.engine.popen.send_signal(signal.SIGSTOP)  # until other calls have been answered
        try:
            own.worker.popen.send_signal(signal.SIGTERM)
            assert [answer.status for answer in watch] == [NOT_SERVING]
            answered = service.outcomes("grpc_chat").get("length", 0)
            until(lambda: _answers(stub), 20, "a call to be answered")
            assert [_answers(stub) for _ in range(10)] == [True] * 10
            assert service.outcomes("grpc_chat")["length"] == answered + 11
            assert own.worker.popen.poll() is None
        finally:
            own.engine.popen.send_signal(signal.SIGCONT)
        assert len(put_together([first, *running]).choices) == 16
    assert own.worker.popen.wait(20) == 0
    assert "connections were cut" not in own.worker.output()


def _answers(stub: QuireStub) -> bool:
    """True if a short call succeeds, False if the server is going."""
    try:
        answer = put_together(stub.Chat(chat(max_tokens=1)))
    except grpc.RpcError as failure:
        if failure.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            raise
        return False
    return [said.finished.reason for said in answer.choices if said.finished] == ["length"]


def test_calls_are_served_until_the_delay_before_the_drain_is_over(
    tiny_model: Path, tmp_path: Path
) -> None:
    with GrpcService(tiny_model, tmp_path, "--drain-delay", "60") as service:
        watch = HealthStub(service.channel).Watch(HealthCheckRequest())
        assert next(watch).status == SERVING
        service.worker.popen.send_signal(signal.SIGTERM)
        assert next(watch).status == NOT_SERVING
        with grpc.insecure_channel(service.target, options=ALONE) as another:
            assert _answers(service.stub)
            assert _answers(QuireStub(another))
        service.worker.popen.send_signal(signal.SIGTERM)
        assert service.worker.popen.wait(20) == 0
        assert not list(watch)


# --- one service with all its guards up -----------------------------------------------------------

ONE, TWO = (("authorization", "Bearer key-one"),), (("x-api-key", "key-two"),)
FIRST = (("authorization", "Bearer key-first"),)


@pytest.fixture(scope="module")
def guarded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcService]:
    """It runs 16 sequences at once, lets one wait, and requires a key and a quick reader."""
    with GrpcService(
        tiny_model,
        tmp_path_factory.mktemp("guarded"),
        *("--api-key", "key-one,key-two", "--slow-reader-timeout", "0.3"),
        *("--max-waiting-requests", "1", "--priority-api-key", "key-first"),
        engine_args=("--max-num-seqs", "16"),
    ) as running:
        yield running


def test_a_key_is_required_and_calls_of_another_key_are_not_accessible(
    guarded: GrpcService,
) -> None:
    stub = guarded.stub
    for wrong in ((), (("authorization", "Bearer key-three"),), (("x-api-key", ""),)):
        with pytest.raises(grpc.RpcError) as caught:
            stub.ListModels(pb.ListModelsRequest(), metadata=wrong)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert trailing(caught.value)["quire-error-code"] == "invalid_api_key"
    assert stub.ListModels(pb.ListModelsRequest(), metadata=TWO).models
    assert guarded.outcomes("grpc_models") == {"refused:unauthorized": 3, "stop": 1}
    assert HealthStub(guarded.channel).Check(HealthCheckRequest()).status == SERVING

    call = stub.Chat(long_chat(16), metadata=ONE)
    request_id = next(call).events[0].started.request_id
    with pytest.raises(grpc.RpcError) as caught:
        stub.Abort(pb.AbortRequest(request_id=request_id), metadata=TWO)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    stub.Abort(pb.AbortRequest(request_id=request_id), metadata=ONE)
    assert failure_of(call).code() is grpc.StatusCode.CANCELLED


def test_a_client_that_does_not_read_is_cut_and_its_blocks_are_freed(
    guarded: GrpcService,
) -> None:
    narrow = [("grpc.http2.lookahead_bytes", 1 << 16), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(guarded.target, options=narrow) as channel:
        request = long_chat(16, logprobs=True, top_logprobs=20)
        call = QuireStub(channel).Chat(request, metadata=ONE)
        next(call)
        until(lambda: guarded.outcomes("grpc_chat").get("client_slow") == 1, 30, "the cut")
        guarded.wait_idle()
        error = failure_of(call)  # not mistaken for a complete answer
        assert error.code() is grpc.StatusCode.CANCELLED
        assert trailing(error)["x-quire-reason"] == "client_slow"


def test_too_many_waiting_are_refused(guarded: GrpcService) -> None:
    guarded.wait_idle()
    running = guarded.stub.Chat(long_chat(16), metadata=ONE)
    until(lambda: guarded.engine_counts()["running"] == 16, 10, "sixteen to run")
    waiting = guarded.stub.Chat(long_chat(1), metadata=ONE)
    assert next(waiting).events[0].started.request_id  # for Abort: it is sent at once
    error = failure_of(guarded.stub.Chat(long_chat(1), metadata=ONE))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailing(error)["quire-error-code"] == "overloaded"
    # Another key has nothing waiting: its place is not for the first one to take.
    others = guarded.stub.Chat(long_chat(1), metadata=TWO)
    assert next(others).events[0].started.request_id
    for call in (running, waiting, others):
        call.cancel()
    guarded.wait_idle()


def test_reflection_asks_for_a_key(guarded: GrpcService) -> None:
    stub = ServerReflectionStub(guarded.channel)

    def listed(key: Metadata) -> set[str]:
        asked = iter([ServerReflectionRequest(list_services="")])
        (answer,) = stub.ServerReflectionInfo(asked, metadata=key)
        return {service.name for service in answer.list_services_response.service}

    for wrong in ((), (("authorization", "Bearer key-three"),)):
        with pytest.raises(grpc.RpcError) as caught:
            listed(wrong)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert listed(ONE) == listed(TWO) >= {"quire.v1.Quire", "grpc.health.v1.Health"}


_NO_PLACE = "Too many health watches are open: at most 256 in all. Close one, or try again later."


def test_watches_are_bounded_and_take_no_calls_place(guarded: GrpcService) -> None:
    """Also those that never say what they watch, and on however many connections."""

    def raw_watch(channel: grpc.Channel) -> Any:
        # Its message is never sent.
        return channel.stream_stream("/grpc.health.v1.Health/Watch")(iter(queue.Queue().get, None))

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(grpc.insecure_channel(guarded.target, options=ALONE))
        health = HealthStub(first)
        open_ones = [health.Watch(HealthCheckRequest()) for _ in range(MOST_OPEN_OF_A_CONNECTION)]
        assert [next(watch).status for watch in open_ones] == [SERVING] * len(open_ones)
        error = failure_of(health.Watch(HealthCheckRequest()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "at most 16 on this connection" in (error.details() or "")
        assert failure_of(raw_watch(first)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        def all_taken() -> bool:
            """One more connection with as many as it may have."""
            channel = stack.enter_context(grpc.insecure_channel(guarded.target, options=ALONE))
            more = [HealthStub(channel).Watch(HealthCheckRequest()) for _ in range(16)]
            open_ones.extend(more)
            refusals = set()
            for watch in more:
                try:
                    next(watch)
                except grpc.RpcError as failure:
                    refusals.add((failure.code(), failure.details()))
            assert refusals <= {(grpc.StatusCode.RESOURCE_EXHAUSTED, _NO_PLACE)}
            return bool(refusals)

        until(all_taken, 60, "all places to be taken")
        # Calls, and checks, are served as ever.
        assert health.Check(HealthCheckRequest()).status == SERVING
        assert QuireStub(first).ListModels(pb.ListModelsRequest(), metadata=ONE).models
        for watch in open_ones:
            watch.cancel()

    def watches_again() -> bool:
        watch = HealthStub(guarded.channel).Watch(HealthCheckRequest())
        try:
            return bool(next(watch).status == SERVING)
        except grpc.RpcError:
            return False
        finally:
            watch.cancel()

    until(watches_again, 20, "a place to be given back")


PROMPT = "What one key asked is told to no other by the time that it takes. " * 3
PARTS = {"model": "tiny", "max_tokens": 1}
MESSAGES = [{"role": "user", "content": PROMPT}]


def _usage_of_chat(guarded: GrpcService, **fields: Any) -> Callable[[Metadata], int]:
    def ask(key: Metadata) -> int:
        request = pb.ChatRequest(
            messages=[pb.Message(role="user", content=PROMPT)],
            max_tokens=1,
            sampling=pb.Sampling(**fields),
        )
        return put_together(guarded.stub.Chat(request, metadata=key)).usage.cached_tokens

    return ask


def _usage_of_generate(guarded: GrpcService) -> Callable[[Metadata], int]:
    def ask(key: Metadata) -> int:
        request = pb.GenerateRequest(text=PROMPT, max_tokens=1)
        events = [e for r in guarded.stub.Generate(request, metadata=key) for e in r.events]
        return int(events[-1].completed.usage.cached_tokens)

    return ask


def _usage_over_http(
    guarded: GrpcService, path: str, body: dict[str, Any], *where: str
) -> Callable[[Metadata], int]:
    def ask(key: Metadata) -> int:
        sent = {name: value for name, value in {**PARTS, **body}.items() if value is not None}
        status, _, reply = guarded.exchange("POST", path, json.dumps(sent).encode(), dict(key))
        assert status == 200, reply
        found = json.loads(reply)["usage"]
        for name in where:
            found = found[name]
        return int(found)

    return ask


def test_the_tier_of_a_request_is_its_class_and_the_answer_names_it(guarded: GrpcService) -> None:
    for asked, used in (("flex", "flex"), ("auto", "default"), ("", "")):
        sampling = pb.Sampling(cache_salt="tiers", **({"service_tier": asked} if asked else {}))
        message = pb.Message(role="user", content=PROMPT)
        for call in (
            guarded.stub.Chat(
                pb.ChatRequest(messages=[message], max_tokens=1, sampling=sampling), metadata=ONE
            ),
            guarded.stub.Generate(
                pb.GenerateRequest(text=PROMPT, max_tokens=1, sampling=sampling), metadata=ONE
            ),
        ):
            started = next(call).events[0].started
            assert started.service_tier == used
            assert started.HasField("service_tier") is bool(asked)
            assert dict(call.initial_metadata()).get("x-quire-ignored") is None
            list(call)


def test_a_cache_hit_never_reveals_another_keys_prompt(guarded: GrpcService) -> None:
    guarded.wait_idle()
    cached = "cached_tokens"
    # Each has a separate salt, so that it finds nothing that another API cached.
    apis = {
        "chat": _usage_over_http(
            guarded,
            "/v1/chat/completions",
            {"messages": MESSAGES, "cache_salt": "chat"},
            *("prompt_tokens_details", cached),
        ),
        "completions": _usage_over_http(
            guarded,
            "/v1/completions",
            {"prompt": PROMPT, "cache_salt": "completions"},
            *("prompt_tokens_details", cached),
        ),
        "beams": _usage_over_http(
            guarded,
            "/v1/completions",
            {"prompt": PROMPT, "cache_salt": "beams", "use_beam_search": True, "n": 2},
            *("prompt_tokens_details", cached),
        ),
        "messages": _usage_over_http(
            guarded, "/v1/messages", {"messages": MESSAGES}, "cache_read_input_tokens"
        ),
        "responses": _usage_over_http(
            guarded,
            "/v1/responses",
            {"input": f"Here: {PROMPT}", "max_tokens": None, "max_output_tokens": 16},
            *("input_tokens_details", cached),
        ),
        "grpc chat": _usage_of_chat(guarded, cache_salt="grpc"),
        "grpc generate": _usage_of_generate(guarded),
    }
    seen = {name: [ask(key) for key in (ONE, TWO, ONE, TWO)] for name, ask in apis.items()}
    for name, (first, of_another, again, anothers_again) in seen.items():
        assert first == of_another == 0, (name, seen)
        assert again == anothers_again > 0, (name, seen)


def test_a_key_goes_ahead_of_others_only_where_it_may(guarded: GrpcService) -> None:
    guarded.wait_idle()
    asked = {**PARTS, "messages": MESSAGES}
    for key, priority, ignored in [
        (ONE, -1, "priority"),
        (ONE, 5, None),
        (FIRST, -1, None),
    ]:
        body = json.dumps({**asked, "priority": priority}).encode()
        status, headers, _ = guarded.exchange("POST", "/v1/chat/completions", body, dict(key))
        assert status == 200
        assert headers.get("x-quire-ignored") == ignored
    chat = pb.ChatRequest(
        messages=[pb.Message(role="user", content="Hi")],
        max_tokens=1,
        sampling=pb.Sampling(priority=-1),
    )
    for key, ignored in [(TWO, "priority"), (FIRST, None)]:
        call = guarded.stub.Chat(chat, metadata=key)
        list(call)
        assert dict(call.initial_metadata()).get("x-quire-ignored") == ignored


# --- what keeps it from starting ------------------------------------------------------------------


def test_a_port_in_use_is_reported_at_the_start(service: GrpcService, tmp_path: Path) -> None:
    second = RunningService(
        service.model, tmp_path, worker_args=("--grpc-port", str(service.grpc_port))
    )
    worker = second.start_worker()
    assert worker.popen.wait(30) == 1
    assert f"cannot listen on {service.target} for gRPC" in worker.output()
