"""Requests that the server sends to itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from service.admin.load import LoadPlan, request_body
from service.http.admin.load_sender import LOAD_CALLER, sender
from tests.service.http.apps import new_app


def test_a_request_goes_through_the_front_door_as_the_tenant(
    own_template: Path, tmp_path: Path
) -> None:
    app = new_app(own_template, tmp_path, api_key=("sk-user",), store_url="none")
    body = request_body(LoadPlan(), 7, 0, "own-template")
    record = asyncio.run(sender(app)(body))
    assert record is not None
    assert (record.key, record.client_address) == ("loadtest", "loadtest")
    # Admitted without a key, and refused because there is no engine.
    assert (record.status, record.outcome) == (503, "refused:loading")


def test_the_tenant_is_no_configured_key_and_goes_ahead_of_nobody() -> None:
    assert LOAD_CALLER.shares
    assert LOAD_CALLER.priority(-5) == 0
    assert len(bytes.fromhex(LOAD_CALLER.owner)) == 32
