"""A request's record as spans."""

from __future__ import annotations

from typing import Any

import pytest

from engine.messages import FinishReason
from observability import schema
from observability.admin_api import EventKind
from observability.schema import Attribute
from observability.tracing import FinishedSpan
from service.engine.happenings import Happening, LongStep
from service.telemetry.record import Flush, Interval, RequestRecord
from service.telemetry.requests import Telemetry
from service.telemetry.spans import phase_spans, server_span
from service.telemetry.steps import step_span
from tests.service.request_records import answered, sequence, started

RECEIVED = 5_000_000_000  # what ``answered`` records


def record(**changes: object) -> RequestRecord:
    return answered(Telemetry(["m"], version="1"), **changes)


def milliseconds(span: FinishedSpan) -> tuple[float, float]:
    """Begin and end, after receipt."""
    return (span.start_ns - RECEIVED) / 1e6, (span.end_ns - RECEIVED) / 1e6


def test_the_server_span_covers_the_request_and_says_what_it_was() -> None:
    span = server_span(record(key="team"))
    assert span.name == "chat m"
    assert milliseconds(span) == pytest.approx((0, 100))
    assert span.error is None
    expected = {
        schema.ATTR_OPERATION: "chat",
        schema.ATTR_PROVIDER: "quire",
        schema.ATTR_REQUEST_MODEL: "m",
        schema.ATTR_MAX_TOKENS: 100,
        schema.ATTR_TEMPERATURE: 0.5,
        schema.ATTR_TOP_P: 0.9,
        schema.ATTR_STREAM: True,
        schema.ATTR_CHOICES: 1,
        schema.ATTR_RESPONSE_ID: "chatcmpl-1",
        schema.ATTR_FINISH_REASONS: ("stop",),
        schema.ATTR_INPUT_TOKENS: 20,
        schema.ATTR_OUTPUT_TOKENS: 11,
        schema.ATTR_CACHED_TOKENS: 16,
        schema.ATTR_OUTCOME: "stop",
        schema.ATTR_REQUEST_ID: "req_1",
        schema.ATTR_KEY: "team",
        schema.ATTR_PREEMPTIONS: 0,
        schema.ATTR_HANDOVERS: 0,
        schema.ATTR_ERROR_TYPE: None,
        schema.ATTR_ERROR_CODE: None,
        schema.ATTR_ERROR_FIELD: None,
        schema.ATTR_RETRY_AFTER: None,
        schema.ATTR_WAITING: None,
        schema.ATTR_KEPT: None,
        schema.ATTR_HTTP_METHOD: "POST",
        schema.ATTR_HTTP_ROUTE: "/v1/chat/completions",
        schema.ATTR_HTTP_STATUS: 200,
    }
    assert span.attributes == expected


def test_a_call_of_grpc_is_told_in_its_own_words() -> None:
    span = server_span(record(http_route="/quire.v1.Quire/Chat", grpc_status=3))
    told = {a.name: value for a, value in span.attributes.items() if a.name.startswith("rpc.")}
    assert told == {
        "rpc.system": "grpc",
        "rpc.service": "quire.v1.Quire",
        "rpc.method": "Chat",
        "rpc.grpc.status_code": 3,
    }
    assert not [a for a in span.attributes if a.name.startswith("http.")]


BEFORE = ["receive", "admit", "render", "tokenize", "admit"]


def test_the_phases_follow_one_another_for_each_choice() -> None:
    spans = list(phase_spans(record(sequences=[sequence(), sequence(output_tokens=5)])))
    assert [span.name for span in spans] == [
        *BEFORE,
        *(("queue", "prefill", "decode") * 2),
        "flush",
    ]
    assert [milliseconds(span) for span in spans[:8]] == [
        pytest.approx(times)
        for times in ((0, 1), (1, 2), (2, 2.5), (2.5, 5), (5, 6), (6, 10), (10, 40), (40, 90))
    ]
    in_engine = spans[5:11]
    assert [span.attributes[schema.ATTR_CHOICE] for span in in_engine] == [0, 0, 0, 1, 1, 1]
    assert in_engine[1].attributes[schema.ATTR_CACHED_TOKENS] == 16
    assert in_engine[5].attributes[schema.ATTR_OUTPUT_TOKENS] == 5
    flush = spans[-1]
    assert milliseconds(flush) == pytest.approx((60, 93))
    assert flush.attributes == {schema.ATTR_FLUSH_SECONDS: 0.005}


def test_a_request_that_left_the_queue_by_being_aborted_ends_in_the_queue() -> None:
    aborted = sequence(
        reason=FinishReason.ABORT,
        output_tokens=0,
        first_scheduled_time=None,
        first_token_time=None,
        last_token_time=None,
        finished_time=1000.070,
    )
    gone = record(outcome="client_gone", sequences=[aborted], flush=Flush())
    spans = list(phase_spans(gone))
    assert [span.name for span in spans] == [*BEFORE, "queue"]
    assert milliseconds(spans[-1]) == pytest.approx((6, 70))


def test_a_request_aborted_while_prefilling_has_no_decode_span() -> None:
    aborted = sequence(first_token_time=None, last_token_time=None, finished_time=1000.030)
    gone = record(outcome="client_gone", sequences=[aborted], flush=Flush())
    spans = list(phase_spans(gone))
    assert [span.name for span in spans] == [*BEFORE, "queue", "prefill"]
    assert milliseconds(spans[-1]) == pytest.approx((10, 30))


def test_a_refused_request_has_the_phases_that_it_reached() -> None:
    changes: dict[str, Any] = {"outcome": "refused:invalid", "sequences": [], "flush": Flush()}
    too_long = list(phase_spans(record(**changes)))
    assert [span.name for span in too_long] == BEFORE
    assert milliseconds(too_long[-1]) == pytest.approx((5, 5.5))
    cut = record(**changes, intervals=[Interval("receive", 1000, 1000.1)], prepared_time=None)
    (receive,) = phase_spans(cut)
    assert milliseconds(receive) == pytest.approx((0, 100))


def test_a_request_that_waits_for_the_next_engine_is_not_in_its_queue() -> None:
    unsent = sequence(
        queued_time=None,
        first_scheduled_time=None,
        first_token_time=None,
        last_token_time=None,
    )
    waited = list(phase_spans(record(outcome="refused:engine", sequences=[unsent], flush=Flush())))
    assert [span.name for span in waited] == BEFORE
    assert milliseconds(waited[-1]) == pytest.approx((5, 100))


def test_a_refused_request_says_why() -> None:
    span = server_span(
        record(
            outcome="refused:overloaded",
            error="OverloadedError",
            status=429,
            error_code="overloaded",
            error_field="messages[0].content",
            retry_after=7,
            waiting=64,
        )
    )
    expected = {
        schema.ATTR_ERROR_TYPE: "refused:overloaded",
        schema.ATTR_ERROR_CODE: "overloaded",
        schema.ATTR_ERROR_FIELD: "messages[0].content",
        schema.ATTR_RETRY_AFTER: 7,
        schema.ATTR_WAITING: 64,
    }
    assert {attribute: span.attributes[attribute] for attribute in expected} == expected
    assert span.error is None  # the server did what it should


def test_failures_are_errors_and_a_client_that_left_is_none() -> None:
    failed = server_span(record(outcome="error:engine", error="EngineFailed", status=500))
    assert failed.error == "EngineFailed"
    assert failed.attributes[schema.ATTR_ERROR_TYPE] == "error:engine"
    gone = server_span(record(outcome="client_gone"))
    assert gone.error is None
    refused = server_span(record(outcome="refused:invalid", error="InvalidRequest", status=400))
    assert refused.error is None


def test_a_request_refused_before_it_named_a_model_still_has_a_span() -> None:
    telemetry = Telemetry(["m"], version="1")
    early = started(telemetry, outcome="refused:unauthorized", status=401)
    telemetry.request_finished(early)
    span = server_span(early)
    assert span.name == "chat_completions"
    assert span.attributes[schema.ATTR_REQUEST_MODEL] is None
    assert list(phase_spans(early)) == []


def test_a_request_that_has_not_ended_has_no_span_yet() -> None:
    with pytest.raises(ValueError, match="not ended"):
        server_span(record(ended_time=None))


def events_of(span: FinishedSpan) -> list[tuple[str, float, list[Any]]]:
    """Names, milliseconds after receipt and values."""
    return [
        (each.event.name, (each.time_ns - RECEIVED) / 1e6, list(each.attributes.values()))
        for each in span.events
    ]


HAPPENINGS = [
    (1, Happening(EventKind.PREEMPTED, 1000.070)),
    (0, Happening(EventKind.OUTPUT, 1000.040, 1)),
    (0, Happening(EventKind.GAP, 1000.080, 0.025)),
]


def test_events_are_on_the_decode_span_of_their_choice_or_on_the_requests() -> None:
    never_ran = sequence(first_token_time=None, last_token_time=None)
    subject = record(
        sequences=[sequence(), never_ran],
        happenings=[Happening(EventKind.CANCELLED, 1000.095)],
        choices_happenings=HAPPENINGS,
    )
    first, *others = [span for span in phase_spans(subject) if span.name == "decode"]
    assert not others
    assert events_of(first) == [("output", 40.0, [0, 1]), ("gap", 80.0, [0, 0.025])]
    assert events_of(server_span(subject)) == [("cancelled", 95.0, []), ("preempted", 70.0, [1])]


def test_no_event_of_a_token_comes_after_the_decode_span() -> None:
    subject = record(
        sequences=[sequence(last_token_time=1000.080)],
        choices_happenings=[
            (0, Happening(EventKind.GAP, 1000.08005, 0.025)),
            (0, Happening(EventKind.OUTPUT, 1000.08005, 2)),
            (0, Happening(EventKind.HANDED_OVER, 1000.085)),  # after its last token
        ],
    )
    [decode] = [span for span in phase_spans(subject) if span.name == "decode"]
    assert [event[:2] for event in events_of(decode)] == [
        ("gap", 80.0),
        ("output", 80.0),
        ("handed_over", 85.0),
    ]


def test_the_longest_waits_for_the_reader_are_on_the_flush_span() -> None:
    flush = Flush()
    flush.waited(1000.081, 1000.090)
    flush.waited(1000.060, 1000.065)
    *_, last = phase_spans(record(flush=flush))
    assert last.name == "flush"
    assert events_of(last) == [
        ("stalled", 60.0, [pytest.approx(0.005)]),
        ("stalled", 81.0, [pytest.approx(0.009)]),
    ]


def test_every_kind_of_event_has_the_attributes_that_are_declared() -> None:
    of_all = {EventKind.CANCELLED, EventKind.STALLED}
    flush = Flush()
    flush.waited(1000.060, 1000.065)
    subject = record(
        happenings=[Happening(EventKind.CANCELLED, 1000.05)],
        choices_happenings=[
            (0, Happening(kind, 1000.05, 3.0)) for kind in EventKind if kind not in of_all
        ],
        flush=flush,
    )
    spans = [server_span(subject), *phase_spans(subject)]
    events = [event for span in spans for event in span.events]
    assert {each.event for each in events} == set(schema.EVENTS.values())
    for each in events:
        assert set(each.attributes) == set(each.event.attributes)


def test_names_that_are_not_released_are_written_on_request() -> None:
    subject = record(reasoning_tokens=7)
    newest = server_span(subject, newest_names=True).attributes
    assert {each.name: newest[each] for each in schema.NEWEST_ATTRIBUTES} == {
        "gen_ai.response.model": "m",
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.041),
        "gen_ai.usage.reasoning.output_tokens": 7,
    }
    assert not set(schema.NEWEST_ATTRIBUTES) & set(server_span(subject).attributes)


def test_every_attribute_written_is_one_that_the_catalogue_gives_this_span() -> None:
    subject = record(sequences=[sequence()])
    by_grpc = record(http_route="/quire.v1.Quire/Chat", grpc_status=0)
    spans = [
        server_span(subject, newest_names=True),
        server_span(by_grpc),
        *phase_spans(subject),
        step_span(subject, LongStep(1000.05, 0.02, 100, 3)),
    ]
    assert {span.span for span in spans} == set(schema.SPANS)
    for kind in schema.SPANS:
        written: set[Attribute] = set()
        for span in spans:
            written |= set(span.attributes) if span.span is kind else set()
        assert written == set(kind.attributes)
