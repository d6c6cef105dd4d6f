"""Under the chart's own probes: an engine that computes one step for minutes is left alone, and the
same engine is taken out of the Service when it stops."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chart.conftest import component, server_container
from tests.chart.helms import Helm4, Manifest, objects
from tests.e2e.quire_server import QuireServer, engine_of, stopped, until
from tests.service.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.one_process

MOST_TOKENS = 60_000
STOPPED_SECONDS = 45
SILENCE_SECONDS = 5  # the default of --engine-silence-timeout
SHORT_SILENCE_SECONDS = 2
# Some 100 million parameters without training: a step of thousands of tokens takes minutes.
SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 1,  # so that the default KV cache holds a long prompt
    "head_dim": 64,
    "max_position_embeddings": MOST_TOKENS,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def container(helm4: Helm4) -> Manifest:
    values = {
        "model": {"path": "/models/big", "existingClaim": "models"},
        "engine": {"maxModelLen": MOST_TOKENS, "maxNumBatchedTokens": MOST_TOKENS},
    }
    return server_container(component(objects(helm4.render(values)), "Deployment", "server"))


def arguments(container: Manifest, model: Path) -> list[str]:
    """The pod's, with the test's own model, address and ports."""
    words = [str(model) if word == "/models/big" else word for word in container["args"][1:]]
    for flag in ("--host", "--port", "--admin-port"):
        at = words.index(flag)
        del words[at : at + 2]
    return [*words, "--load-format", "dummy"]


class Probe(threading.Thread):
    """Asks as the kubelet does, and keeps the answers: (seconds since the start, status; 0: none
    within the timeout)."""

    def __init__(self, probe: Manifest, url: str, *, faster: float) -> None:
        super().__init__(daemon=True)
        self._url = url + probe["httpGet"]["path"]
        self._period = probe["periodSeconds"] / faster
        self._timeout = probe["timeoutSeconds"]
        self.began = time.monotonic()
        self.answers: list[tuple[float, int]] = []
        self._over = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=self._timeout) as client:
            while not self._over.wait(self._period):
                try:
                    status = client.get(self._url).status_code
                except httpx.TransportError:
                    status = 0
                self.answers.append((time.monotonic() - self.began, status))

    def end(self) -> list[int]:
        self._over.set()
        self.join()
        return [status for _, status in self.answers]


@contextmanager
def probed(container: Manifest, url: str, *, faster: float) -> Iterator[dict[str, Probe]]:
    probes = {
        name: Probe(container[f"{name}Probe"], url, faster=faster)
        for name in ("liveness", "readiness")
    }
    for probe in probes.values():
        probe.start()
    try:
        yield probes
    finally:
        for probe in probes.values():
            probe.end()


def complete(server: QuireServer, tokens: int, mark: str) -> float:
    """Return the seconds that a prompt of so many tokens takes, all in one step. ``mark``: a letter
    with which no other prompt begins, so that nothing of it is cached."""
    began = time.monotonic()
    body = {"model": "big", "prompt": mark * tokens, "max_tokens": 1}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=3000)
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    assert usage["prompt_tokens"] >= tokens
    return time.monotonic() - began


def in_a_step(server: QuireServer) -> bool:
    """Whether the engine has computed the current step for a while."""
    return (json.loads(server.get("/health")[1])["engine"]["step_seconds"] or 0) > 0.5


def survives(
    container: Manifest, model: Path, *, seconds: float, silence: float, faster: float
) -> None:
    """A step takes ``seconds`` or longer, and no probe fails meanwhile; then the engine is stopped
    in such a step. ``silence``: seconds after which an engine that reports nothing is not ready;
    ``faster``: how many times as often as the chart says the probes ask."""
    words = [*arguments(container, model), "--served-model-name", "big"]
    words += ["--engine-silence-timeout", str(silence)]
    words += ["--cpu-path", "torch"]  # our C code computes long prompts in short steps
    with QuireServer(*words) as server:
        tokens, mark = 256, iter("abcdefghijklmnop")
        while True:
            before = server.total("quire_step_seconds_count", phase="prefill")
            with probed(container, server.url, faster=faster) as probes:
                took = complete(server, tokens, next(mark))
            steps = server.total("quire_step_seconds_count", phase="prefill") - before
            live, ready = probes["liveness"].end(), probes["readiness"].end()
            assert steps == 1
            assert set(live) <= {200}
            assert set(ready) <= {200}
            if took >= seconds:
                break
            longer = min(8.0, max(1.5, 1.2 * seconds / took))
            tokens = min(round(tokens * longer), MOST_TOKENS - 10)
        print(
            f"one step of {tokens} tokens took {took:.0f} s: {len(live)} liveness and "
            f"{len(ready)} readiness probes, all 200"
        )
        assert took > 3 * silence
        assert len(live) >= took * faster / 10 / 2  # on a busy machine each waits for its turn
        # The same engine in the same kind of step, but its process is stopped.
        asking = threading.Thread(target=lambda: _ignore(complete, server, tokens, next(mark)))
        asking.start()
        until(lambda: in_a_step(server), 60, "the step")
        with probed(container, server.url, faster=faster) as probes:
            with stopped(engine_of(server)):
                readiness = probes["readiness"]
                until(
                    lambda: 503 in [status for _, status in readiness.answers],
                    STOPPED_SECONDS,
                    "a readiness probe of a stopped engine to fail",
                )
            after = next(when for when, status in readiness.answers if status == 503)
        print(f"503 {after:.1f} s after the engine was stopped")
        assert after <= STOPPED_SECONDS
    asking.join(60)


def _ignore(act: Any, *arguments: Any) -> None:
    """The server is ended under the last request."""
    try:
        act(*arguments)
    except (AssertionError, httpx.TransportError):
        return


@pytest.mark.proves("long-step", "chart")
@pytest.mark.chart
def test_a_long_step_is_no_failure_but_a_stopped_engine_is(
    container: Manifest, tmp_path: Path
) -> None:
    model = write_tiny_checkpoint(tmp_path / "big", **SIZES)
    survives(container, model, seconds=7, silence=SHORT_SILENCE_SECONDS, faster=10)


@pytest.mark.proves("long-step", "chart")
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_step_of_three_minutes_under_the_charts_own_timings(
    container: Manifest, tmp_path: Path
) -> None:
    model = write_tiny_checkpoint(tmp_path / "big", **SIZES)
    survives(container, model, seconds=180, silence=SILENCE_SECONDS, faster=1)
