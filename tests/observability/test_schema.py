"""Spans and log fields have the names that OpenTelemetry gives them, each once and explained."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    http_attributes,
    rpc_attributes,
)

from observability import schema
from observability.admin_api import EventKind
from observability.schema import EVENTS, REQUEST_LOG_FIELDS, SPANS, Attribute, Span

STANDARD = {
    value
    for module in (error_attributes, gen_ai_attributes, http_attributes, rpc_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
ATTRIBUTES = [value for value in vars(schema).values() if isinstance(value, Attribute)]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda attribute: attribute.name)
def test_an_attribute_is_our_own_or_the_standard_s(attribute: Attribute) -> None:
    assert attribute.name.startswith("quire.") or attribute.name in STANDARD
    assert attribute.help


def test_every_attribute_is_of_a_span_or_an_event() -> None:
    bearers = (*SPANS, *EVENTS.values())
    assert {one.name for one in ATTRIBUTES} == {a.name for one in bearers for a in one.attributes}


def test_every_kind_of_event_is_declared() -> None:
    assert set(EVENTS) == set(EventKind)
    assert all(event.help for event in EVENTS.values())


@pytest.mark.parametrize("span", SPANS, ids=lambda span: span.name)
def test_a_span_has_each_attribute_once_and_one_sentence(span: Span) -> None:
    names = [attribute.name for attribute in span.attributes]
    assert len(names) == len(set(names))
    assert span.help.endswith(".")


def test_no_log_field_is_one_that_each_line_has_anyway() -> None:
    names = {field.name for field in REQUEST_LOG_FIELDS}
    assert not names & {"event", "level", "timestamp", "logger"}
    assert all(field.help for field in REQUEST_LOG_FIELDS)
