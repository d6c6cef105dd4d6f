"""No grammar, however hostile, holds up another stream or stops the engine."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.messages import (
    Constraint,
    FinishReason,
    Generate,
    Ready,
    SamplingParams,
    StepOutputs,
    Submit,
)
from tests.engine.constraint.hostile import GRAMMARS
from tests.engine.engine_client import EngineClient, running_engine
from tests.service.tiny_model import MAX_MODEL_LEN, write_tiny_model

LONGEST_GAP_SECONDS = 0.1
ROW_ITEMS = 300  # what the service allows grammars of clients
CALM_SECONDS = 1.0
DEADLINE_SECONDS = 90.0
_PROMPT = [5, 6, 7]


@dataclass
class Watched:
    """A stream that is begun anew when it ends, and the gaps between its tokens in seconds, by the
    engine's own clock."""

    client: EngineClient
    handle: int = 0
    last: float | None = None
    gaps: list[float] = field(default_factory=list)

    def begin(self) -> None:
        self.handle += 1
        self.last = None
        self.client.submit(self.handle, _PROMPT, MAX_MODEL_LEN - len(_PROMPT) - 1)

    def listen(self) -> None:
        for message in self.client.hear():
            if not isinstance(message, StepOutputs):
                continue
            count = len(message.token_ids) // 4
            if self.handle in struct.unpack(f"<{count}q", message.handles):
                if self.last is not None:
                    self.gaps.append(message.time - self.last)
                self.last = message.time
        if self.handle in self.client.finished:
            self.begin()

    def worst(self) -> float:
        return max(self.gaps)


@pytest.fixture(scope="module")
def engine_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "engine.sock"
    model = write_tiny_model(folder / "model")
    argv = [sys.executable, "-m", "engine", "--model", str(model), "--socket", str(path)]
    argv += ["--load-format", "dummy", "--dtype", "float32", "--threads", "1"]
    with running_engine([*argv, "--max-num-seqs", "64"], path) as process:
        yield path
        assert process.poll() is None, "the engine ended"


def submit(client: EngineClient, handle: int, grammar: str) -> None:
    constraint = Constraint(grammar=grammar, row_items=ROW_ITEMS)
    client.send(
        Submit(
            handle=handle,
            request_id=f"hostile-{handle}",
            prompt_token_ids=_PROMPT,
            task=Generate(SamplingParams(max_tokens=300, seed=handle, constraint=constraint)),
            arrival_time=time.monotonic(),
        )
    )


def disturb(path: Path, grammars: list[str]) -> tuple[float, float, EngineClient]:
    """The stream's longest gap before, and while all of these run at once; and who sent them."""
    stream = Watched(EngineClient(path))
    stream.client.wait(Ready)
    stream.begin()
    calm_until = time.monotonic() + CALM_SECONDS
    while time.monotonic() < calm_until:
        stream.listen()
    calm = stream.worst()
    stream.gaps.clear()
    sender = EngineClient(path)
    for handle, grammar in enumerate(grammars, start=1):
        submit(sender, handle, grammar)
    deadline = time.monotonic() + DEADLINE_SECONDS
    sender.socket.settimeout(0.001)
    while len(sender.finished) < len(grammars):
        assert time.monotonic() < deadline, "not all of them came to an end"
        stream.listen()
        try:
            sender.hear()
        except TimeoutError:
            continue
    stream.client.close()
    return calm, stream.worst(), sender


def assert_undisturbed(calm: float, worst: float) -> None:
    print(f"longest gap: {calm * 1e3:.1f} ms calm, {worst * 1e3:.1f} ms with hostile grammars")
    # What the machine itself does to a stream is not the grammars' doing.
    assert worst <= LONGEST_GAP_SECONDS + calm


@pytest.mark.slow  # judged by the clock: no test for a machine that does other work
def test_all_hostile_grammars_at_once_delay_no_other_stream(engine_socket: Path) -> None:
    calm, worst, sender = disturb(engine_socket, list(GRAMMARS.values()))
    assert_undisturbed(calm, worst)
    for handle, name in enumerate(GRAMMARS, start=1):
        finished = sender.finished[handle]
        if finished.reason is FinishReason.ERROR:
            assert str(finished.error).startswith("constraint: "), name
            assert finished.is_refusal, name
        else:
            assert finished.reason in (FinishReason.STOP, FinishReason.LENGTH), name
    sender.close()


@pytest.mark.slow
def test_a_crowd_of_slow_grammars_delays_no_other_stream(engine_socket: Path) -> None:
    slow = [GRAMMARS["exponential automaton on any text"], GRAMMARS["right recursion, twice"]]
    crowd = [f"{grammar}// {number}\n" for number in range(12) for grammar in slow]
    calm, worst, sender = disturb(engine_socket, crowd)
    assert_undisturbed(calm, worst)
    sender.close()


def test_the_engine_still_answers_after_a_crowd_of_hostile_grammars(engine_socket: Path) -> None:
    _, _, sender = disturb(engine_socket, list(GRAMMARS.values()))
    sender.close()
    client = EngineClient(engine_socket)
    client.wait(Ready)
    submit(client, 1, '%llguidance {}\nstart: "yes" | "no"\n')
    client.wait_finished(1)
    assert client.finished[1].reason is FinishReason.STOP
    assert len(client.tokens[1]) == client.finished[1].output_tokens
    client.close()
    assert os.path.exists(engine_socket)
