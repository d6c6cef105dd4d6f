"""Half a minute of the soak, with faults: it is exact, and finds nothing wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.soak.answers import Said
from bench.soak.ledger import Ledger, compared, problems
from bench.soak.questions import SOAKED
from tests.e2e.quire_server import ROOT

METRICS = {
    f'quire_requests_total{{model="{SOAKED}",route="messages",outcome="stop"}}': 1.0,
    f'quire_requests_total{{model="{SOAKED}",route="messages",outcome="error:internal"}}': 1.0,
    'quire_requests_total{model="left",route="messages",outcome="stop"}': 9.0,
    f'quire_key_tokens_total{{key="{SOAKED}",kind="output"}}': 12.0,
}


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.answer("messages", "message", Said("Hi", "stop", 7), Said("Hi", "stop", 7))
    made.failed["messages"] += 1
    return made


def test_counts_that_agree_are_not_reported(ledger: Ledger) -> None:
    assert compared(ledger, METRICS, {}) == []
    assert problems(ledger, {"parser_error": 1}) == []


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ('quire_requests_total{model="soaked",route="messages",outcome="stop"}', "2 counted"),
        ('quire_requests_total{model="soaked",route="x",outcome="stop"}', "0 answered"),
        ('quire_requests_total{model="soaked",route="x",outcome="error:engine"}', "3 failures"),
        ('quire_key_tokens_total{key="soaked",kind="output"}', "2 output tokens"),
    ],
)
def test_a_count_that_differs_is_reported(ledger: Ledger, series: str, words: str) -> None:
    [wrong] = compared(ledger, {**METRICS, series: 2.0}, {})
    assert words in wrong


def test_what_a_fault_explains_is_not_reported(ledger: Ledger) -> None:
    ledger.answer("messages", "message", Said("Hi", "stop", 0), Said("Hi", "stop", 0))
    series = 'quire_requests_total{model="soaked",route="messages",outcome="error:%s"}'
    for end, fault in (("worker", "worker_kill"), ("store", "store_full")):
        metrics = {**METRICS, series % end: 1.0}
        assert compared(ledger, metrics, {fault: 1}) == []
        assert len(compared(ledger, metrics, {})) >= 1


def test_a_worker_may_be_killed_between_the_count_and_the_last_bytes(ledger: Ledger) -> None:
    ledger.cut["messages"] += 1
    series = 'quire_requests_total{model="soaked",route="messages",outcome="stop"}'
    assert compared(ledger, {**METRICS, series: 2.0}, {"worker_kill": 1}) == []
    assert len(compared(ledger, {**METRICS, series: 3.0}, {"worker_kill": 1})) == 1
    assert len(compared(ledger, {**METRICS, series: 2.0}, {})) >= 1


def test_a_worker_may_be_killed_between_a_refusal_and_its_count(ledger: Ledger) -> None:
    ledger.refused[503] += 2
    ledger.cut["messages"] += 1
    series = 'quire_requests_total{model="soaked",route="messages",outcome="%s"}'
    counts = {series % "error:worker": 2.0, series % "refused:overloaded": 1.0}
    assert compared(ledger, {**METRICS, **counts}, {"worker_kill": 1}) == []
    more = {**counts, series % "error:worker": 3.0}
    assert len(compared(ledger, {**METRICS, **more}, {"worker_kill": 1})) == 1
    all_refused = {**counts, series % "refused:overloaded": 2.0}
    assert len(compared(ledger, {**METRICS, **all_refused}, {"worker_kill": 1})) == 1


def test_what_no_fault_explains_is_reported(ledger: Ledger) -> None:
    ledger.cut["messages"] += 1
    ledger.answer("messages", "message", Said("Ho", "stop", 7), Said("Hi", "stop", 7))
    assert len(problems(ledger, {"parser_error": 1})) == 2
    assert len(problems(ledger, {"worker_kill": 1, "parser_error": 1})) == 1
    assert len(problems(ledger, {"worker_kill": 1})) == 2


@pytest.mark.timeout(300)
def test_half_a_minute_of_everything_with_faults_is_exact() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.soak", "--minutes", "0.5", "--no-write"),
            *("--faults", "--fault-seconds", "2.4", "--clients", "12"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker_kill " in done.stdout
    assert "nan_logits " in done.stdout
