"""Aliases name facts that exist, once each."""

from __future__ import annotations

import pytest

from observability import catalogue
from observability.aliases import (
    ALIASES,
    HTTP_HANDLERS,
    STATUS_OUTCOMES,
    VLLM_ALIASES,
    Alias,
    InfoAlias,
    alias_labels,
    info_labels,
)
from observability.metric_kinds import MetricKind
from observability.outcomes import OUTCOMES, ROUTES, OutcomeGroup
from service import errors
from service.errors import QuireError
from service.http.openapi import OPERATIONS

SUMS = [alias for alias in VLLM_ALIASES if isinstance(alias, Alias)]


@pytest.mark.parametrize("alias", SUMS, ids=lambda alias: alias.name)
def test_the_source_has_the_labels_and_values_that_an_alias_sums(alias: Alias) -> None:
    assert alias.kind is alias.source.kind
    labels = {label.name: label.values for label in alias.source.labels}
    for name, values in alias.where.items():
        allowed = labels[name]
        assert values
        assert allowed is not None
        assert set(values) <= set(allowed)
    assert alias.name.endswith("_total") or alias.kind is not MetricKind.COUNTER


def test_no_series_is_defined_twice_and_no_name_is_ours() -> None:
    series = [(alias.name, tuple(sorted(alias_labels(alias, "m").items()))) for alias in SUMS]
    assert len(set(series)) == len(series)
    ours = {metric.name for metric in catalogue.METRICS}
    assert not {alias.name for alias in VLLM_ALIASES} & ours


def test_vllms_series_have_its_labels() -> None:
    for alias in SUMS:
        labels = alias_labels(alias, "llama")
        if alias.name.startswith("vllm:"):
            assert (labels["model_name"], labels["engine"]) == ("llama", "0")
        else:
            of_counter = alias.kind is MetricKind.COUNTER
            assert set(labels) == {"handler", "method", *(["status"] if of_counter else [])}
    (info,) = (alias for alias in VLLM_ALIASES if isinstance(alias, InfoAlias))
    facts = {"block_size": "16", "num_kv_blocks": "750", "dtype": "float32"}
    assert info_labels(info, facts) == {"block_size": "16", "num_gpu_blocks": "750", "engine": "0"}
    known = {label.name for label in info.source.labels}
    assert set(info.facts.values()) <= known


def test_each_part_of_a_total_is_in_one_alias_only() -> None:
    for name, label in (
        ("vllm:num_requests_waiting_by_reason", "reason"),
        ("vllm:prompt_tokens_by_source_total", "source"),
        ("vllm:request_success_total", "outcome"),
    ):
        parts = [value for alias in SUMS if alias.name == name for value in alias.where[label]]
        assert len(parts) == len(set(parts))


def test_statuses_are_those_of_the_errors() -> None:
    kinds = [
        each.kind
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, QuireError) and hasattr(each, "kind")
    ]
    assert len(kinds) > 10
    of_outcome = {name: status for status, names in STATUS_OUTCOMES.items() for name in names}
    for kind in kinds:
        if kind.outcome in of_outcome:
            assert of_outcome[kind.outcome] == f"{kind.status // 100}xx", kind
    left = {outcome.name for outcome in OUTCOMES if outcome.group is OutcomeGroup.LEFT}
    assert set(of_outcome) == {outcome.name for outcome in OUTCOMES} - left


def test_handlers_are_paths_of_the_api() -> None:
    paths = {(operation.method.upper(), operation.path) for operation in OPERATIONS}
    assert set(HTTP_HANDLERS.values()) <= paths
    assert set(HTTP_HANDLERS) <= set(ROUTES)


def test_the_setting_has_a_value_for_each_set_of_aliases() -> None:
    assert set(ALIASES) == {"none", "vllm"}
    assert ALIASES["none"] == ()
