"""Clients that take all connections of the public port: verdict, metrics and log say so."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.service.live.test_connections import HALF_A_BODY
from tests.service.running import RunningService, until

MOST = 96  # of 256 files, less 128, less a quarter for the admin API


class FewFiles(RunningService):
    worker_module = "tests.service.few_files_worker"


@pytest.fixture
def service(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    with FewFiles(tiny_model, tmp_path, worker_args=("--receive-timeout", "120")) as running:
        yield running


def verdict(service: RunningService) -> dict[str, Any]:
    url = f"http://127.0.0.1:{service.admin_port}/admin/v1/overview"
    with urllib.request.urlopen(url, timeout=60) as reply:
        found: dict[str, Any] = json.loads(reply.read())["verdict"]
    return found


def gauges(service: RunningService) -> tuple[float, ...]:
    page = dict(
        line.rsplit(" ", 1)
        for line in service.metrics_page().splitlines()
        if line.startswith(("quire_open_connections", "quire_connection_limit"))
    )
    return tuple(float(page[f"quire_{name}"]) for name in ("open_connections", "connection_limit"))


def logged(service: RunningService, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.worker.output().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] == event]


def test_connections_held_by_bodies_that_do_not_arrive_are_the_verdict(
    service: RunningService,
) -> None:
    until(lambda: gauges(service)[1] == MOST, 20, "the limit to be known")
    with ExitStack() as clients:
        for _ in range(MOST + 20):
            address = ("127.0.0.1", service.port)
            client = clients.enter_context(socket.create_connection(address, timeout=60))
            client.sendall(HALF_A_BODY)
        until(lambda: verdict(service)["condition"] == "connections", 30, "the condition")
        found = verdict(service)
        assert found["sentence"] == (
            f"Connections: {MOST} of {MOST} are in use, and new ones wait; {MOST} requests are "
            "still arriving."
        )
        assert [figure["value"] for figure in found["figures"]] == [MOST] * 3
        assert gauges(service) == (MOST, MOST)
        [line] = logged(service, "all connections of this API worker are in use")
        assert (line["level"], line["port"], line["connections"]) == ("warning", service.port, MOST)
    until(lambda: logged(service, "accepting connections again"), 30, "the end of the pause")
    assert service.get("/health/ready")[0] == 200
    assert gauges(service)[0] < MOST
    assert len(logged(service, "all connections of this API worker are in use")) == 1
