"""Aliases on the page have the sums of what they name."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from observability import catalogue
from observability.alias_exposition import AliasText, alias_texts
from observability.aliases import VLLM_ALIASES, Alias
from observability.catalogue import OTHER_MODEL
from observability.metrics import MetricRegistry


@pytest.fixture
def registry() -> MetricRegistry:
    return MetricRegistry(['a%"b', "other name"], aliases=VLLM_ALIASES)


def values(registry: MetricRegistry, name: str, accept: str = "") -> dict[frozenset[str], float]:
    """The samples of a name, by their labels' values."""
    page = registry.exposition(accept)[0].decode()
    parse = openmetrics if accept else plain
    return {
        frozenset(sample.labels.values()): sample.value
        for family in parse(page)
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_requests_of_all_names_are_summed_and_those_of_no_model_left_out(
    registry: MetricRegistry, accept: str
) -> None:
    requests = registry[catalogue.REQUESTS]
    for model, route, outcome, times in (
        ('a%"b', "chat_completions", "stop", 3),
        ("other name", "messages", "tool_calls", 2),
        ("other name", "chat_completions", "client_gone", 1),
        (OTHER_MODEL, "chat_completions", "refused:overloaded", 5),
        ('a%"b', "models", "stop", 7),
    ):
        requests.labels(model, route, outcome).inc(times)
    ended = values(registry, "vllm:request_success_total", accept)
    model = {"0", 'a%"b'}
    assert ended[frozenset(model | {"stop"})] == 5
    assert ended[frozenset(model | {"abort"})] == 1
    assert ended[frozenset(model | {"error"})] == 0
    answered = values(registry, "http_requests_total", accept)
    assert answered[frozenset({"/v1/chat/completions", "POST", "2xx"})] == 3
    assert answered[frozenset({"/v1/chat/completions", "POST", "4xx"})] == 5
    assert answered[frozenset({"/v1/messages", "POST", "2xx"})] == 2


def test_histograms_are_cumulative_sums_over_names(registry: MetricRegistry) -> None:
    first_tokens = registry[catalogue.TIME_TO_FIRST_TOKEN]
    for model, seconds in (('a%"b', 0.25), ("other name", 0.3), ("other name", 9)):
        first_tokens.labels(model).observe(seconds)
    name = "vllm:time_to_first_token_seconds"
    buckets = values(registry, f"{name}_bucket")
    labels = {"0", 'a%"b'}
    for bound, count in (("0.2", 0), ("0.25", 1), ("0.3", 2), ("7.5", 2), ("10.0", 3), ("+Inf", 3)):
        assert buckets[frozenset(labels | {bound})] == count
    assert values(registry, f"{name}_count") == {frozenset(labels): 3}
    assert values(registry, f"{name}_sum") == {frozenset(labels): 9.55}


def test_gauges_follow_what_they_name(registry: MetricRegistry) -> None:
    waiting = registry[catalogue.SEQUENCES_WAITING]
    for reason, count in (("slots", 2), ("constraint", 1)):
        waiting.labels('a%"b', reason).set(count)
    assert list(values(registry, "vllm:num_requests_waiting").values()) == [3]
    by_reason = values(registry, "vllm:num_requests_waiting_by_reason")
    assert by_reason[frozenset({"0", 'a%"b', "capacity"})] == 2
    waiting.labels('a%"b', "slots").set(0)
    assert list(values(registry, "vllm:num_requests_waiting").values()) == [1]


def test_an_engine_is_awake_while_it_is_ready_and_else_neither_awake_nor_asleep(
    registry: MetricRegistry,
) -> None:
    name = "vllm:engine_sleep_state"
    assert values(registry, name) == {}
    ready = registry[catalogue.ENGINE_READY].labels('a%"b')
    ready.set(1)
    shared = {"0", 'a%"b'}
    assert values(registry, name) == {
        frozenset({*shared, "awake"}): 1,
        frozenset({*shared, "weights_offloaded"}): 0,
        frozenset({*shared, "discard_all"}): 0,
    }
    ready.set(0)
    assert values(registry, name) == {}


def test_time_by_api_is_that_of_its_route(registry: MetricRegistry) -> None:
    registry[catalogue.ROUTE_SECONDS].labels("messages").observe(2.0)
    seconds = values(registry, "http_request_duration_seconds_sum")
    assert seconds[frozenset({"/v1/messages", "POST"})] == 2
    assert seconds[frozenset({"/v1/completions", "POST"})] == 0


def test_a_total_that_is_not_known_yet_is_absent(registry: MetricRegistry) -> None:
    registry[catalogue.GENERATED_TOKENS].labels('a%"b').hide()
    assert values(registry, "vllm:generation_tokens_total") == {}
    registry[catalogue.GENERATED_TOKENS].labels('a%"b').continue_at(12)
    assert list(values(registry, "vllm:generation_tokens_total").values()) == [12]


def test_facts_of_the_engine_become_labels_once_they_are_known(registry: MetricRegistry) -> None:
    assert values(registry, "vllm:cache_config_info") == {}
    registry[catalogue.ENGINE_INFO].info({"block_size": "16", "num_kv_blocks": "750"})
    assert values(registry, "vllm:cache_config_info") == {frozenset({"0", "16", "750"}): 1}


def test_a_page_without_changes_is_not_summed_again(registry: MetricRegistry) -> None:
    layouts = registry.ledger.layout.families
    aliases = [each for each in VLLM_ALIASES if isinstance(each, Alias)]
    texts = list(alias_texts(aliases, layouts, {}, registry.workers, "m"))
    assert len(texts) == len({alias.name for alias in aliases})
    for text in texts:
        assert isinstance(text, AliasText)
        assert text.text(openmetrics=False).endswith("\n")
    first = texts[0]
    assert isinstance(first, AliasText)
    kept = first._before[1]
    first.text(openmetrics=True)
    assert first._before[1] is kept


def test_without_aliases_the_page_has_none() -> None:
    page = MetricRegistry(["m"]).exposition("")[0]
    assert b"vllm:" not in page
    assert b"\nhttp_requests" not in page


def test_no_alias_is_a_sample_of_the_catalogue(registry: MetricRegistry) -> None:
    names = {sample.name for sample in registry.samples()}
    assert all(name.startswith("quire_") for name in names)
    assert not any(math.isnan(sample.value) for sample in registry.samples())
