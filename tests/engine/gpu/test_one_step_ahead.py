"""Each kind of step is launched before the last one's tokens are read, and nothing in between makes
the host wait for the device: on a GPU torch says so, elsewhere a device that records order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.loop.core import EngineCore
from engine.messages import Embed, Generate, SamplingParams, Submit, token_mask
from engine.run.model_runner import ModelRunner
from tests.engine.driving import CONNECTION, Engine, Output, load_runner
from tests.engine.gpu.waiting import FakeDevice, watch
from tests.engine.tiny_models import VOCABULARY

SETTINGS: dict[str, Any] = {
    "block_size": 8,
    "num_kv_blocks": 64,
    "max_num_seqs": 4,
    "max_model_len": 80,
    "max_num_batched_tokens": 16,
}
STREAMS = [
    SamplingParams(max_tokens=16, temperature=0.0),
    SamplingParams(max_tokens=16, seed=3, temperature=1.3, top_p=0.9),
]
# What a third request requires, which comes while two plain streams run. Its prompt takes two
# steps, each of them with the streams' tokens.
KINDS: dict[str, SamplingParams | None] = {
    "steady": None,
    "mixed": SamplingParams(max_tokens=3, seed=4, top_k=9),
    "logprobs": SamplingParams(max_tokens=5, seed=5, logprobs=2),
    "penalties": SamplingParams(
        max_tokens=5, temperature=0.0, repetition_penalty=1.4, presence_penalty=1.0
    ),
    "bias": SamplingParams(max_tokens=5, temperature=0.0, logit_bias={3: 2.0, 7: -100.0}),
    "bad_words": SamplingParams(max_tokens=5, seed=6, bad_words_token_ids=((5,), (1, 2))),
    "min_tokens": SamplingParams(max_tokens=5, seed=7, min_tokens=4, stop_token_ids={1, 2}),
    "allowed": SamplingParams(max_tokens=5, seed=8, allowed_tokens=token_mask(range(40))),
    "prompt_logprobs": SamplingParams(max_tokens=3, temperature=0.0, prompt_logprobs=1),
}
# How many steps the prompt takes; its tokens take more of a step's budget with logprobs.
PROMPT_PARTS = {"steady": 0, "prompt_logprobs": 3}


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


@pytest.fixture(scope="module")
def runner(one_layer: Path, device: torch.device) -> ModelRunner:
    return load_runner(
        one_layer, device=device.type, gpu_path="triton", async_scheduling=True, **SETTINGS
    )


class Ahead:
    """An engine over the runner, with two streams in it."""

    def __init__(self, runner: ModelRunner) -> None:
        self.core = EngineCore(runner, max_num_seqs=4, max_num_batched_tokens=16)
        self.core._uids = _UIDS  # the runner remembers sequences by them
        self.core.connect(CONNECTION)
        self.outputs: list[Output] = []
        for number, params in enumerate(STREAMS):
            self.add(prompt(5 + number, number), Generate(params))
        for _ in range(4):
            self.step()

    def add(self, prompt_ids: list[int], task: Generate | Embed) -> None:
        handle = len(self.outputs)
        self.outputs.append(Output())
        self.core.add(
            CONNECTION,
            Submit(
                handle=handle,
                request_id=f"r{handle}",
                prompt_token_ids=prompt_ids,
                task=task,
                arrival_time=0.0,
            ),
        )

    def step(self) -> None:
        Engine.collect(self, self.core.step()[CONNECTION], self.outputs, 0)  # type: ignore[arg-type]

    def finish(self) -> None:
        while self.core.has_work:
            self.step()


_UIDS = iter(range(1_000_000))


def run(ahead: Ahead, kind: str) -> None:
    params = KINDS[kind]
    if params is not None:
        ahead.add(prompt(20, 9), Generate(params))
    ahead.finish()


@pytest.fixture(scope="module")
def expected(one_layer: Path) -> dict[str, list[list[int]]]:
    """Each kind's output by torch on the CPU, where every step is waited for."""
    outputs = {}
    for kind, params in KINDS.items():
        asked = [*STREAMS, *([] if params is None else [params])]
        prompts = [prompt(5, 0), prompt(6, 1), prompt(20, 9)][: len(asked)]
        engine = Engine(one_layer, cpu_path="torch", num_kv_blocks=64)
        outputs[kind] = [output.token_ids for output in engine.generate(prompts, asked)]
    return outputs


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device itself tells")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_step_is_launched_before_the_last_one_is_read(
    runner: ModelRunner,
    kind: str,
    expected: dict[str, list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = Ahead(runner)
    fake = watch(runner, monkeypatch)
    run(ahead, kind)
    assert fake.waits == []
    # The first step that is watched was launched while another was under way.
    assert fake.early_reads() == []
    assert len(fake.steps) > 10
    # Only the steps with a part of the prompt: no row takes the others off the recorded steps.
    assert fake.steps.count("LaunchedStep") == PROMPT_PARTS.get(kind, 2)
    assert [output.token_ids for output in ahead.outputs] == expected[kind]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device itself tells")
def test_a_text_s_vector_is_read_after_the_next_step_was_launched(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(runner)
    fake = watch(runner, monkeypatch)
    ahead.add(prompt(20, 9), Embed())
    ahead.finish()
    assert fake.waits == []
    assert fake.early_reads() == []
    finished = ahead.outputs[2].finished
    assert finished is not None
    assert finished.error is None


def test_the_fake_device_notices_what_makes_a_host_wait() -> None:
    """Run as if in a module of the engine."""
    source = "\n".join(
        [
            "def wait(tensor, torch):",
            "    tensor.item(); tensor.tolist(); bool(tensor); tensor.to(tensor.device)",
            "    tensor.reshape(1)[[0]]; torch.tensor([1], device='cpu'); tensor.float()",
        ]
    )
    module: dict[str, Any] = {"__name__": "engine.run.imagined"}
    exec(source, module)  # noqa: S102  # the text above
    with pytest.MonkeyPatch.context() as patch:
        fake = watch(_NoRunner(), patch)  # type: ignore[arg-type]
        module["wait"](torch.ones(1), torch)
        assert fake.waits == []
        with fake.inside():
            module["wait"](torch.ones(1), torch)
    found = [wait.split()[-1] for wait in fake.waits]
    assert found == ["item", "tolist", "__bool__", "to", "__getitem__", "tensor"]


class _NoRunner:
    launch = staticmethod(lambda plan: None)


@contextmanager
def synchronising_raises(device: torch.device) -> Iterator[None]:
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_no_launch_waits_for_the_gpu(
    runner: ModelRunner,
    kind: str,
    device: torch.device,
    expected: dict[str, list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(Ahead(runner), kind)  # compiles
    ahead = Ahead(runner)
    fake = FakeDevice()
    assert runner.launch is not None
    monkeypatch.setattr(runner, "launch", fake.wrapped(runner.launch))
    inside = fake.inside

    @contextmanager
    def watched() -> Iterator[None]:
        with inside(), synchronising_raises(device):
            yield

    monkeypatch.setattr(fake, "inside", watched)
    run(ahead, kind)
    assert fake.early_reads() == []
    assert fake.steps.count("LaunchedStep") == PROMPT_PARTS.get(kind, 2)
    assert [output.token_ids for output in ahead.outputs] == expected[kind]
