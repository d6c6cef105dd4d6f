"""An engine that is stopped under streams: health, metrics and log report the same, and the streams
continue when it does."""

from __future__ import annotations

import concurrent.futures
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.live.test_lifecycle import CHAT, LONG
from tests.service.running import RunningService, until

TIMEOUT = 3.0
STREAMS, SLOTS = 20, 4


@pytest.fixture
def stoppable(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    with RunningService(
        tiny_model,
        tmp_path,
        engine_args=("--max-num-seqs", str(SLOTS)),
        worker_args=("--engine-silence-timeout", str(TIMEOUT)),
    ) as service:
        yield service
        service.engine.popen.send_signal(signal.SIGCONT)  # or it could not end


def gauges(service: RunningService) -> dict[str, float]:
    """Those of the engine, by name without ``quire_``; a series that does not exist is missing."""
    lines = service.get("/metrics")[1].decode().splitlines()
    return {
        line.split("{")[0].removeprefix("quire_"): float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("quire_") and '{model="tiny"} ' in line
    }


def story(service: RunningService) -> tuple[str, dict[str, float], dict[str, Any]]:
    """What health and metrics say, at a moment at which health did not change."""
    while True:
        health, shown = json.loads(service.get("/health")[1]), gauges(service)
        again = json.loads(service.get("/health")[1])
        if health["status"] == again["status"]:
            return health["status"], shown, again


def logged(service: RunningService, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.worker.output().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] == event]


def agree(service: RunningService) -> str:
    """The status, once health and metrics are found to agree on it."""
    status, shown, health = story(service)
    assert shown["engine_ready"] == (status == "ok")
    assert (health["problem"] is None) == (status == "ok")
    if status == "silent":
        assert health["engine"]["silence_seconds"] > TIMEOUT
        assert shown["engine_silence_seconds"] > TIMEOUT
    return status


def test_a_stopped_engine_is_silent_in_health_metrics_and_log_until_it_continues(
    stoppable: RunningService,
) -> None:
    asks = [{**LONG, "stream": True, "seed": seed} for seed in range(STREAMS)]
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(stoppable.stream, CHAT, ask) for ask in asks]
        until(lambda: stoppable.engine_counts()["running"] == SLOTS, 30, "streams to run")
        until(lambda: gauges(stoppable)["longest_gap_seconds"] > 0, 30, "tokens")
        assert agree(stoppable) == "ok"
        stoppable.engine.popen.send_signal(signal.SIGSTOP)
        until(lambda: agree(stoppable) == "silent", 60, "health to call the engine silent")
        waiting = STREAMS - sum(stream.done() for stream in streams)
        [silent] = until(lambda: logged(stoppable, "the engine is silent"), 10, "a log line")
        assert silent["level"] == "warning"
        assert silent["sequences"] == waiting
        assert silent["silent_seconds"] >= TIMEOUT
        shown = gauges(stoppable)
        assert shown["oldest_waiting_seconds"] > TIMEOUT
        assert shown["longest_gap_seconds"] > TIMEOUT
        assert stoppable.get("/health/ready")[0] == 503
        status, reply = stoppable.post(CHAT, LONG)
        assert (status, reply["error"]["code"]) == (503, "engine_unavailable")

        stoppable.engine.popen.send_signal(signal.SIGCONT)
        until(lambda: agree(stoppable) == "ok", 30, "health to be ok again")
        [over] = until(lambda: logged(stoppable, "the engine's silence is over"), 10, "its end")
        assert over["silent_seconds"] > TIMEOUT
        assert (over["sequences"], over["status"]) == (waiting, "ok")
        for stream in streams:
            assert stream.result()[-1]["choices"][0]["finish_reason"] == "length"
    stoppable.wait_idle()
    shown = gauges(stoppable)
    assert (shown["oldest_waiting_seconds"], shown["longest_gap_seconds"]) == (0, 0)
    assert shown["predicted_wait_seconds"] == 0
    assert len(logged(stoppable, "the engine is silent")) == 1


def test_an_engine_that_is_stopped_while_idle_is_silent_too(stoppable: RunningService) -> None:
    stoppable.engine.popen.send_signal(signal.SIGSTOP)
    until(lambda: agree(stoppable) == "silent", 60, "health to call the engine silent")
    [silent] = until(lambda: logged(stoppable, "the engine is silent"), 10, "a log line")
    assert silent["sequences"] == 0
