"""Settings of stored requests and usage."""

from __future__ import annotations

from service.settings import ServiceSettings


def test_by_default_requests_are_kept_for_a_week_and_usage_for_a_year() -> None:
    settings = ServiceSettings()
    assert settings.store_requests
    assert (settings.store_max_requests, settings.store_request_days) == (1_000_000, 7.0)
    assert settings.store_usage_days == 400
