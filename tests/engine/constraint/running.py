"""An engine in this process that can constrain, and its sequences followed to their ends."""

from __future__ import annotations

import copy
import itertools
import struct
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.config import EngineConfig
from engine.constraint.constraints import Constraints
from engine.constraint.grammar import Tokens
from engine.loop.core import EngineCore
from engine.messages import Constraint, Finished, Generate, SamplingParams, StepOutputs, Submit
from engine.run.assembly import load_model_runner

DEADLINE_SECONDS = 60.0


@dataclass
class Answer:
    finished: Finished
    token_ids: list[int] = field(default_factory=list)


class Model:
    """A model directory, loaded once with random weights."""

    def __init__(self, directory: Path, load_format: str = "dummy", *, ahead: bool = False) -> None:
        self.directory = directory
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.runner = load_model_runner(
            EngineConfig(
                model=str(directory),
                load_format=load_format,  # type: ignore[arg-type]  # one of the field's literals
                dtype="float32",
                threads=1,
                num_kv_blocks=512,
                async_scheduling=ahead,
            ),
            lambda *_: None,
        )
        self.uids = itertools.count()
        info = self.runner.info
        self.tokens = Tokens(
            directory, vocab_size=info.vocab_size, eos_token_ids=info.eos_token_ids
        )

    def text(self, token_ids: list[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=True)
        return text


class Engine:
    """``run`` sequences together; the order of their submission gives their handles. ``settings``:
    those of EngineCore, and ``num_kv_blocks``, fewer than the model has."""

    def __init__(self, model: Model, **settings: Any) -> None:
        self.model = model
        self._woken = threading.Event()
        self.constraints = Constraints(model.tokens, wake=self._woken.set)
        runner = copy.copy(model.runner)
        blocks = settings.pop("num_kv_blocks", runner.info.num_kv_blocks)
        runner.info = replace(runner.info, num_kv_blocks=blocks)
        self.core = EngineCore(
            runner,
            max_num_seqs=settings.pop("max_num_seqs", 32),
            max_num_batched_tokens=settings.pop("max_num_batched_tokens", 256),
            constraints=self.constraints,
            **settings,
        )
        self.core._uids = model.uids  # the runner remembers sequences by them
        self.core.connect(1)
        self._handles = 0

    def submit(self, grammar: str | None, prompt: list[int] | None = None, **fields: Any) -> int:
        """A sequence's handle. ``fields`` are those of SamplingParams, Generate and Submit."""
        self._handles += 1
        constraint = None if grammar is None else Constraint(grammar=grammar)
        names = SamplingParams.__struct_fields__
        params = {name: fields.pop(name) for name in list(fields) if name in names}
        output = fields.pop("output_token_ids", [])
        chosen = SamplingParams(**{"max_tokens": 400, "constraint": constraint, **params})
        submit = Submit(
            handle=self._handles,
            request_id=f"r{self._handles}",
            prompt_token_ids=prompt or [5, 6, 7],
            task=Generate(chosen, output),
            arrival_time=time.monotonic(),
            **fields,
        )
        self.core.add(1, submit)
        return self._handles

    def run(self) -> dict[int, Answer]:
        """Step until nothing is left; what came of each handle."""
        tokens: dict[int, list[int]] = {}
        answers: dict[int, Answer] = {}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.core.has_work or self.core.stats().waiting + self.core.stats().running:
            assert time.monotonic() < deadline, "the engine does not come to an end"
            if not self.core.has_work:
                self._woken.wait(1.0)
                self._woken.clear()
                continue
            self._note(self.core.step()[1], tokens, answers)
        return answers

    def _note(
        self, outputs: StepOutputs, tokens: dict[int, list[int]], answers: dict[int, Answer]
    ) -> None:
        count = len(outputs.token_ids) // 4
        handles = struct.unpack(f"<{count}q", outputs.handles)
        for handle, token in zip(
            handles, struct.unpack(f"<{count}i", outputs.token_ids), strict=True
        ):
            tokens.setdefault(handle, []).append(token)
        for finished in outputs.finished:
            answers[finished.handle] = Answer(finished, tokens.get(finished.handle, []))

    def run_one(self, grammar: str | None, **fields: Any) -> Answer:
        handle = self.submit(grammar, **fields)
        return self.run()[handle]

    def text(self, answer: Answer) -> str:
        return self.model.text(answer.token_ids)

    def close(self) -> None:
        self.constraints.close()


def lark(*lines: str) -> str:
    return "\n".join(["%llguidance {}", *lines]) + "\n"


LIST = lark('start: "[" (NUMBER ", "){10} NUMBER "]"', "NUMBER: /-?[1-9][0-9]{0,3}/")
WORD = lark('start: "yes" | "no"')


def together(engine: Engine, count: int, **fields: Any) -> list[list[int]]:
    """The tokens of ``count`` seeded lists, written in one batch."""
    handles = [engine.submit(LIST, seed=seed, temperature=1.0, **fields) for seed in range(count)]
    answers = engine.run()
    return [answers[handle].token_ids for handle in handles]
