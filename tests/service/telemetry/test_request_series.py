"""Which ends of requests exist before they happened: all that can happen here, and few others."""

from __future__ import annotations

import msgspec

from observability import catalogue
from observability.metrics import MetricRegistry
from observability.outcomes import ROUTE_TABLE, Trait
from service.engine.link import EngineState, LinkPhase
from service.telemetry.request_series import create_request_series, unserved
from service.telemetry.requests import Telemetry
from tests.service.telemetry.watched import READY

Ends = set[tuple[str, str, str]]


def ends(metrics: MetricRegistry) -> Ends:
    return {
        (sample.labels["model"], sample.labels["route"], sample.labels["outcome"])
        for sample in metrics.samples()
        if sample.name == catalogue.REQUESTS.name
    }


def test_ends_are_those_that_a_route_can_have() -> None:
    metrics = MetricRegistry(["m", "alias"])
    create_request_series(metrics, without=Trait.NONE)
    found = ends(metrics)
    assert {route for _, route, _ in found} == {route.name for route in ROUTE_TABLE}
    for possible in (
        ("alias", "chat_completions", "tool_calls"),
        ("m", "grpc_generate", "deadline"),
        ("m", "responses", "error:store"),
        ("m", "chat_completions", "error:worker"),
        ("other", "chat_completions", "error:worker"),
        ("other", "chat_completions", "refused:unauthorized"),
        ("other", "responses_stored", "stop"),
        ("other", "models", "stop"),
        ("m", "models", "stop"),
    ):
        assert possible in found
    for impossible in (
        ("m", "completions", "tool_calls"),
        ("m", "chat_completions", "deadline"),
        ("m", "chat_completions", "refused:unauthorized"),
        ("other", "chat_completions", "stop"),
        ("m", "responses_stored", "stop"),
        ("m", "chat_completions", "error:store"),
        ("m", "tokenize", "error:engine"),
    ):
        assert impossible not in found


def test_routes_without_a_use_here_are_left_out() -> None:
    metrics = MetricRegistry(["m"])
    create_request_series(metrics, without=Trait.RPC | Trait.POOLS)
    routes = {route for _, route, _ in ends(metrics)}
    assert not any(route.startswith("grpc") for route in routes)
    assert "embeddings" not in routes
    assert "chat_completions" in routes


def test_a_model_serves_what_it_says() -> None:
    assert unserved(READY) is Trait.POOLS
    embeds = msgspec.structs.replace(READY, generates=False, embedding_size=8)
    assert unserved(embeds) is Trait.GENERATES
    both = msgspec.structs.replace(READY, num_scores=1)
    assert unserved(both) is Trait.NONE


def test_a_model_has_at_most_400_series() -> None:
    names = [f"m{number}" for number in range(8)]
    for serves_grpc in (True, False):
        telemetry = Telemetry(names, version="1", serves_grpc=serves_grpc)
        telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY))
        labels = [sample.labels for sample in telemetry.metrics.samples()]
        # The first name has the engine's numbers too.
        assert sum(each.get("model") == names[1] for each in labels) <= 400
    # Without gRPC: the first name's and the engine's, of requests for others, of the server itself.
    assert sum(each.get("model") not in names[1:] for each in labels) <= 850
