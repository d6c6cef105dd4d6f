"""Spans of every fate of a request, as a collector receives them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.fates import Driven, driven
from tests.e2e.quire_server import until
from tests.observability.otlp_receiver import (
    Receiver,
    attributes_of,
    grpc_receiver,
    http_receiver,
)

pytestmark = pytest.mark.one_process

IN_ENGINE = ["queue", "prefill", "decode"]


class Tree:
    """A request's span and the spans below it."""

    def __init__(self, server: Span, phases: list[Span]) -> None:
        self.server = server
        self.attributes = attributes_of(server)
        self.phases = sorted(phases, key=lambda span: span.start_time_unix_nano)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.phases]

    @property
    def events(self) -> list[str]:
        return [event.name for span in (self.server, *self.phases) for event in span.events]

    @property
    def outcome(self) -> str:
        return str(self.attributes["quire.outcome"])

    @property
    def by_grpc(self) -> bool:
        return "rpc.system" in self.attributes


def trees(spans: list[Span]) -> list[Tree]:
    below = defaultdict(list)
    for span in spans:
        below[span.parent_span_id].append(span)
    servers = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER]
    return [Tree(span, below[span.span_id]) for span in servers]


def steps(spans: list[Span]) -> dict[tuple[bytes, bytes], Span]:
    return {(span.trace_id, span.span_id): span for span in spans if span.name == "step"}


def wait_for(receiver: Receiver, traced: int) -> list[Span]:
    """Wait until so many requests' spans came, which are sent once a second."""
    until(lambda: len(trees(list(receiver.spans))) >= traced, 30, f"{traced} traces")
    return list(receiver.spans)


def request_lines(driving: Driven) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]] | None:
        lines = [line for line in driving.server.log_lines() if line["event"] == "request"]
        return lines if len(lines) >= driving.begun else None

    return until(found, 30, "the log lines of all requests")


@pytest.fixture(params=["grpc", "http/protobuf"])
def receiver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    start = grpc_receiver if request.param == "grpc" else http_receiver
    with start() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        yield running


@pytest.mark.timeout(240)
def test_every_fate_has_its_tree(receiver: Receiver) -> None:
    with driven() as driving:
        driving.every_fate()
        lines = request_lines(driving)
        spans = wait_for(receiver, driving.begun)
    found = trees(spans)
    assert len(found) == len(lines)
    by_trace = {tree.server.trace_id.hex(): tree for tree in found}
    for line in lines:
        assert by_trace[line["trace_id"]].outcome == line["outcome"]

    finished = [tree for tree in found if tree.outcome == "length"]
    for tree in finished:
        assert [name for name in tree.names if name in IN_ENGINE] == IN_ENGINE
        assert tree.events.count("output") >= 5  # tokens 1, 2, 4, 8, 16
    assert {tree.by_grpc for tree in finished} == {False, True}

    left = [tree for tree in found if tree.outcome == "client_gone"]
    assert {tree.by_grpc for tree in left} == {False, True}
    assert all("decode" in tree.names for tree in left)

    refused = [tree for tree in found if tree.outcome.startswith("refused:")]
    assert {tree.by_grpc for tree in refused} == {False, True}
    for tree in refused:
        assert tree.attributes["error.type"] == tree.outcome
        assert not set(tree.names) & set(IN_ENGINE)
    overloaded = [tree.attributes for tree in refused if tree.outcome == "refused:overloaded"]
    # Four may wait, or fewer while places are kept for those that got a time to retry.
    assert max(attributes["quire.waiting"] for attributes in overloaded) >= 3
    # The first refusals may come before the pace of the queue is known.
    assert any(attributes.get("quire.retry_after", 0) > 0 for attributes in overloaded)

    preempted = [tree for tree in found if tree.attributes["quire.preemptions"]]
    assert preempted
    assert all({"preempted", "resumed"} <= set(tree.events) for tree in preempted)

    over = [tree for tree in found if tree.attributes["quire.handovers"]]
    assert {tree.by_grpc for tree in over} == {False, True}
    assert all("handed_over" in tree.events for tree in over)

    known = steps(spans)
    links = [(link.trace_id, link.span_id) for tree in found for link in tree.server.links]
    assert links
    assert set(links) == set(known), "each linked step is exported, and no other"
    assert max(len(tree.server.links) for tree in found) <= 3
    request_ids = {tree.attributes["quire.request_id"] for tree in found}
    for span in known.values():
        assert set(attributes_of(span).get("quire.step.prefill.requests", ())) <= request_ids


@pytest.mark.timeout(240)
def test_what_went_wrong_is_kept_at_ratio_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    with http_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        with driven() as driving:
            driving.every_fate()
            lines = request_lines(driving)
            page = driving.server.get(
                "/metrics", {"accept": "application/openmetrics-text; version=1.0.0"}
            )[1].decode()
            driving.server.terminate()  # sends what is queued
        found = {tree.server.trace_id.hex(): tree for tree in trees(list(receiver.spans))}
    for line in lines:
        kept = found.get(line["trace_id"])
        wrong = (
            line["outcome"].startswith(("refused:", "error:"))
            or line["preemptions"]
            or line["handovers"]
        )
        slow = (line["ttft_ms"] or 0) > 2000
        assert (kept is not None) == bool(wrong or slow), line
        if kept is not None:
            assert kept.attributes["quire.kept"] in (
                *("error", "refused", "preempted", "handed_over", "slow"),
            )
    exemplars = {line.split('trace_id="')[1][:32] for line in page.splitlines() if " # {" in line}
    assert exemplars <= set(found), "exemplars name only traces that are kept"
    assert exemplars
