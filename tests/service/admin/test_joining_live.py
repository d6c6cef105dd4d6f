"""One verdict of a server with several workers, with the figures of all, whichever is asked."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.http.admin.test_workers_live import KEY, ask, get
from tests.service.running import until
from tests.service.running_workers import RunningWorkers

pytestmark = pytest.mark.integration

LONG = {"input": "Hi", "max_output_tokens": 8000, "ignore_eos": True, "background": True}


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[RunningWorkers]:
    """Two requests run on the first worker and one on the second."""
    arguments = (
        *("--engine-restart-timeout=60", "--engine-silence-timeout=2"),
        f"--admin-key=operate:ann={KEY}",
    )
    with RunningWorkers(2, tmp_path, worker_args=arguments) as running:
        for worker in (running[0], running[0], running[1]):
            status, _, body = worker.exchange("POST", "/v1/responses", json.dumps(LONG).encode())
            assert status == 200, body
        until(lambda: get(running[0], "/overview")["running"] == 3, 20, "three sequences run")
        yield running
        running.engine.popen.send_signal(signal.SIGCONT)  # or it could not end


def until_all_say(workers: RunningWorkers, sentence: str) -> None:
    """Wait until every worker says a sentence, given as a pattern."""

    def agree() -> bool:
        said = [get(worker, "/overview")["verdict"]["sentence"] for worker in workers]
        return all(re.match(sentence, one) for one in said)

    until(agree, 15, f"every worker says {sentence!r}")


def test_every_worker_counts_the_requests_of_all_in_its_verdict(workers: RunningWorkers) -> None:
    ask(workers[1], "POST", "/drain")
    until_all_say(workers, "Draining: 3 requests in flight; no new ones are accepted")
    ask(workers[0], "POST", "/resume")
    workers.engine.popen.send_signal(signal.SIGSTOP)
    until_all_say(workers, r"Engine silent for [\d.]+ s with 3 sequences in flight")
    workers.engine.popen.kill()
    until_all_say(workers, r"No engine yet: .*\. 3 sequences in flight")
