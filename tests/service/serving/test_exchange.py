"""One request from first byte to last: what it holds, what its record says, how it ends."""

from __future__ import annotations

import asyncio

import pytest

from engine.messages import (
    Admitted,
    FinishReason,
    SamplingParams,
    TokenLogprobs,
    packed_top,
)
from engine.queueing import Refusal, RefusalReason
from service.admission.drain import Drain
from service.engine.refusals import refused
from service.errors import (
    EngineFailedError,
    InvalidRequestError,
    OperatorCancelError,
    OverloadedError,
    SlowReaderError,
)
from service.generation.request import Generation, GenerationRequest
from service.pooling.inputs import Input
from service.pooling.request import PooledTexts, PoolingRequest
from service.serving.exchange import Exchange, OpenExchanges
from service.serving.services import Services
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from service.telemetry.usage import usage_of_request
from service.tenants.caller import Caller
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from tests.service.serving.by_hand import give_vectors, loaded, record, say, services
from tests.service.wire.chat.test_answer import finish


class Heard(NoTelemetry):
    """What telemetry receives."""

    def __init__(self) -> None:
        self.first: list[float | None] = []
        self.finished: list[str] = []

    def first_token(self, record: RequestRecord) -> None:
        self.first.append(record.first_token_time)

    def request_finished(self, record: RequestRecord) -> None:
        self.finished.append(record.outcome)


def test_headers_name_the_request_and_what_of_it_did_nothing() -> None:
    exchange = Exchange(record(), NoTelemetry())
    assert exchange.headers == {"x-request-id": "req_1", "request-id": "req_1"}
    exchange.ignored.add("logit_bais", "user")
    exchange.ignored.meant["logit_bais"] = "logit_bias"
    exchange.record.trace_id = "ab" * 16
    assert exchange.headers["x-quire-ignored"] == "logit_bais, user"
    assert "logit_bias" in exchange.headers["x-quire-hint"]
    assert exchange.headers["x-trace-id"] == "ab" * 16


def test_who_has_no_outcome_by_its_end_has_left() -> None:
    heard = Heard()
    exchange = Exchange(record(), heard)
    exchange.close()
    assert heard.finished == ["client_gone"]
    assert exchange.record.ended_time is not None


def test_a_refusal_leaves_the_queue_that_it_met_in_the_record() -> None:
    exchange = Exchange(record(), Heard())
    exchange.record.waiting = 1  # when it arrived
    exchange.fail(OverloadedError("This stream has too many readers."))
    assert exchange.record.waiting == 1
    exchange.cut(refused(Refusal(RefusalReason.QUEUE_REQUESTS, 2, 7)))
    assert (exchange.record.waiting, exchange.record.retry_after) == (7, 2)


def test_the_first_failure_stays_and_only_a_cut_replaces_a_success() -> None:
    failed = Exchange(record(), NoTelemetry())
    failed.fail(InvalidRequestError("no"))
    failed.fail(EngineFailedError("later"))
    assert (failed.record.outcome, failed.record.error) == (
        "refused:invalid",
        "InvalidRequestError",
    )
    done = Exchange(record(), NoTelemetry())
    done.succeed("stop")
    done.fail(EngineFailedError("too late"))
    assert (done.record.outcome, done.record.error) == ("stop", None)
    done.cut(SlowReaderError("not read"))
    assert (done.record.outcome, done.record.error) == ("client_slow", "SlowReaderError")


def test_a_first_token_is_told_once() -> None:
    heard = Heard()
    exchange = Exchange(record(), heard)
    exchange.note_first_token(3.0)
    exchange.note_first_token(4.0)
    assert heard.first == [3.0]


def test_work_that_goes_on_ends_the_exchange_when_it_ends() -> None:
    drain, room, heard = Drain(1.0), UploadRoom(1000), Heard()
    drain.enter()
    exchange = Exchange(record(), heard, drain=drain, answer_room=room)
    exchange.hold(FREE_BYTES + 5)
    end = exchange.detach()
    exchange.close()
    assert (drain.in_flight, room.held, heard.finished) == (1, 5, [])
    end()
    assert (drain.in_flight, room.held, heard.finished) == (0, 0, ["client_gone"])


async def test_a_search_that_a_client_leaves_costs_what_its_beams_generated() -> None:
    desk = loaded()
    of = services(desk)
    exchange = Exchange(record(), Heard())
    params = SamplingParams(max_tokens=8)
    request = GenerationRequest("req_1", [[1, 2, 3]], params, 0.0, n=2, length_penalty=1.0)
    generation = await of.generator.start(request, Caller("0a" * 32))
    exchange.began(generation)
    likely = [(400, -0.1), (401, -2.0), (402, -3.0), (403, -4.0)]
    while len(desk.sequences) < 5:  # the third step has begun
        for sequence in desk.sequences[-2:]:
            sequence.admit(Admitted(sequence.handle, 1.0, 0))
            sequence.logprobs = [TokenLogprobs(-0.1, 1, packed_top(likely))]
            finish(sequence, 1, FinishReason.LENGTH)
        generation.collect()
    exchange.close()
    assert exchange.record.outcome == "client_gone"
    _, figures = usage_of_request(exchange.record, 0.0)
    assert (figures.prompt_tokens, figures.output_tokens) == (3, 3)


async def test_the_record_says_what_was_asked_for_and_what_it_cost() -> None:
    desk = loaded()
    of = services(desk)
    exchange = Exchange(record(), Heard())
    exchange.caller = Caller("0a" * 32, shares=True, may_hurry=False)
    request = GenerationRequest(
        "req_1",
        [[1, 2, 3]],
        SamplingParams(max_tokens=8, temperature=0.5, top_p=0.9),
        arrival_time=0.0,
        priority=-5,
    )
    exchange.describe(request)
    generation = await of.generator.start(request, exchange.caller)
    exchange.began(generation)
    say(of, desk, "Hello.")
    while not generation.done:
        await generation.advance()
    exchange.succeed("stop")
    exchange.close()
    told = exchange.record
    assert (told.choices, told.max_tokens, told.temperature, told.top_p) == (1, 8, 0.5, 0.9)
    assert (told.prompt_tokens, told.finish_reasons) == (3, ["stop"])
    assert told.output_tokens == len(generation.choices[0].tokens) > 0
    assert len(told.sequences) == 1
    assert told.ignored == "priority"  # which this key may not raise


async def test_vectors_are_no_generation() -> None:
    desk = loaded()
    exchange = Exchange(record(), NoTelemetry())
    request = PoolingRequest("req_1", [Input([1, 2])], 0.0, most_open=4, most_open_tokens=99)
    exchange.began_pooling(PooledTexts(desk, request, exchange.caller))
    assert not exchange.record.generates
    assert exchange.pooled is not None
    waiting = exchange.pooled.vectors()
    waiting.send(None)
    give_vectors(desk, [1.0, 2.0])
    with pytest.raises(StopIteration):
        waiting.send(None)
    exchange.close()
    assert exchange.record.prompt_tokens == 2
    assert [one.reason for one in exchange.record.sequences] == [FinishReason.STOP]


def test_open_exchanges_are_found_by_request_and_trace() -> None:
    exchanges = OpenExchanges()
    exchange = Exchange(record(), NoTelemetry(), exchanges=exchanges)
    exchange.record.trace_id = "abc"
    assert exchanges.find(exchange.record.request_id) is exchanges.find("abc") is exchange
    assert exchanges.find("other") is None
    exchange.close()
    assert len(exchanges) == 0
    assert exchanges.find("abc") is None


async def begun(of: Services) -> tuple[Exchange, Generation]:
    exchange = Exchange(record(), NoTelemetry())
    request = GenerationRequest("req_1", [[1, 2, 3]], SamplingParams(max_tokens=8), 0.0)
    generation = await of.generator.start(request, exchange.caller)
    exchange.began(generation)
    return exchange, generation


async def test_cancelling_ends_the_generation_and_frees_its_sequences() -> None:
    exchange, generation = await begun(services(loaded()))
    assert exchange.cancel(OperatorCancelError("It was cancelled."))
    with pytest.raises(OperatorCancelError) as caught:
        await generation.advance()
    exchange.fail(caught.value)
    exchange.close()
    assert exchange.record.outcome == "cancelled"
    assert not exchange.cancel(OperatorCancelError("It was cancelled twice."))


async def test_what_is_complete_and_only_has_to_be_sent_is_not_cancelled() -> None:
    desk = loaded()
    of = services(desk)
    exchange, generation = await begun(of)
    say(of, desk, "Hello.")
    while not generation.done:
        await generation.advance()
    assert not exchange.cancel(OperatorCancelError("It was cancelled."))
    exchange.succeed("stop")
    exchange.close()
    assert exchange.record.outcome == "stop"


def test_a_cancelled_request_ends_as_that_also_if_its_client_does_not_read_or_leaves() -> None:
    for error in (SlowReaderError("It did not read."), None):
        exchange, informed = Exchange(record(), NoTelemetry()), []
        exchange.on_cancel = lambda informed=informed: informed.append(True)
        assert exchange.cancel(OperatorCancelError("It was cancelled."))
        assert informed == [True]
        if error is not None:
            exchange.fail(error)
        exchange.close()
        assert (exchange.record.outcome, exchange.record.error) == (
            "cancelled",
            "OperatorCancelError",
        )


async def test_a_request_cancelled_before_the_engine_has_it_ends_when_it_would_begin() -> None:
    desk = loaded()
    of = services(desk)
    exchange = Exchange(record(), NoTelemetry())
    assert exchange.cancel(OperatorCancelError("It was cancelled."))
    with pytest.raises(OperatorCancelError):
        exchange.check_cancelled()
    request = GenerationRequest("req_1", [[1, 2, 3]], SamplingParams(max_tokens=8), 0.0)
    generation = await of.generator.start(request, exchange.caller)
    exchange.began(generation)  # it was being submitted meanwhile
    with pytest.raises(OperatorCancelError):
        await generation.advance()


async def test_cancelling_ends_vectors_too() -> None:
    desk = loaded()
    exchange = Exchange(record(), NoTelemetry())
    request = PoolingRequest("req_1", [Input([1, 2])], 0.0, most_open=4, most_open_tokens=99)
    exchange.began_pooling(PooledTexts(desk, request, exchange.caller))
    assert exchange.pooled is not None
    vectors = asyncio.ensure_future(exchange.pooled.vectors())
    await asyncio.sleep(0)
    assert exchange.cancel(OperatorCancelError("It was cancelled."))
    with pytest.raises(OperatorCancelError):
        await vectors
