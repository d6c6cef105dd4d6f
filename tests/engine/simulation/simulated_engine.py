"""A real engine core over a simulated model, on a clock that only the simulation moves."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.config import EngineConfig
from engine.constraint.grammar import Tokens
from engine.loop.core import EngineCore
from engine.messages import SamplingParams
from engine.simulation.runner import SimulatedRunner
from engine.simulation.spec import with_tokenizer
from engine.simulation.tokens import TextTokens
from pocket import MODEL_DIR
from tests.engine.constraint.running import Engine as ConstrainedEngine
from tests.engine.driving import CONNECTION, Engine

TOKENS = TextTokens(MODEL_DIR)


class SetTime:
    """Stands still, but for those who sleep."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SimulatedEngine(Engine):
    """``time`` is the simulation's and the core's."""

    def __init__(self, model: str, **settings: Any) -> None:
        self.time = SetTime()
        config = EngineConfig(model=with_tokenizer(model, str(MODEL_DIR)), **settings)
        self.runner = SimulatedRunner(
            config, lambda *_: None, clock=self.time, sleep=self.time.sleep
        )
        self.core = EngineCore(
            self.runner,
            max_num_seqs=config.sizes().max_num_seqs,
            max_num_batched_tokens=config.sizes().max_num_batched_tokens,
            enable_prefix_caching=config.enable_prefix_caching,
            clock=self.time,
        )
        self.core.connect(CONNECTION)
        self._next_handle = 0


class GuidedEngine(ConstrainedEngine):
    """A simulated engine with grammars. ``close`` it."""

    def __init__(self, model: str) -> None:
        config = EngineConfig(model=with_tokenizer(model, str(MODEL_DIR)))
        runner = SimulatedRunner(config, lambda *_: None)
        info = runner.info
        tokens = Tokens(MODEL_DIR, vocab_size=info.vocab_size, eos_token_ids=info.eos_token_ids)
        simulated = SimpleNamespace(runner=runner, tokens=tokens, uids=itertools.count())
        super().__init__(cast(Any, simulated))


def write_script(folder: Path, *rules: dict[str, Any]) -> Path:
    path = folder / "script.jsonl"
    path.write_text("\n".join(json.dumps(rule) for rule in rules))
    return path


def greedy(max_tokens: int, **settings: object) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, **settings)  # type: ignore[arg-type]


def prompt(length: int, first: int = 100) -> list[int]:
    return [first + place % 900 for place in range(length)]
