"""Measures how requests are distributed over engines: prefix hits and balance, without a model.

    python -m bench.routing [--json PATH]

Each engine is a real scheduler with a prefix cache; a step of all engines takes one tick. Users
hold conversations: each turn sends one of a few long system prompts, the turns so far and a
question, and waits for the answer before the next. ``hits``: the share of prompt tokens found in
the prefix cache. ``imbalance``: by how much the engine that computed most tokens is above the mean.
``wait``: mean ticks until a request runs. The rule is compared with one engine, and with the least
loaded and a random engine. Last, the CPU time to choose an engine for a prompt of 8,000 tokens that
both have in their caches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.scheduler import InstantRunner
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, StepOutputs, Submit
from engine.prefix_table import PrefixTableWriter, prefix_table_path
from engine.schedule.scheduler import Scheduler
from service.engine.link import EngineLink
from service.engine.routing import Candidate, choose
from service.engine.sibling import Sibling, cached_tokens
from service.engine.submission import Submission
from service.tenants.caller import ANYBODY

BLOCK_SIZE = 16
SYSTEM_PROMPTS = 8
SYSTEM_TOKENS = 1024
QUESTION_TOKENS = 96
ANSWER_TOKENS = 48
TURNS = 6
USERS = 48
CONVERSATIONS = 192
ANYWHERE, LEAST, RULE = "random", "least loaded", "rule"


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    engines: int
    kv_blocks: int
    requests: int
    hits: float
    imbalance: float
    wait: float


@dataclass(eq=False)
class Engine:
    """A core, and what a worker knows of it."""

    core: EngineCore
    sibling: Sibling

    def step(self) -> StepOutputs:
        [outputs] = self.core.step().values()
        self.sibling.link.stats = outputs.stats
        return outputs


@dataclass(eq=False)
class User:
    """Has one conversation after another."""

    dice: random.Random
    tokens: list[int] = field(default_factory=list)
    turns: int = 0

    def ask(self) -> list[int]:
        if self.turns % TURNS == 0:
            # A few system prompts are used most.
            number = min(int(self.dice.expovariate(0.5)), SYSTEM_PROMPTS - 1)
            self.tokens = random.Random(number).choices(range(32_000), k=SYSTEM_TOKENS)
        self.turns += 1
        self.tokens += self.dice.choices(range(32_000), k=QUESTION_TOKENS)
        return list(self.tokens)


def engine(number: int, folder: Path, blocks: int, clock: Callable[[], float]) -> Engine:
    core = EngineCore(
        InstantRunner(blocks),
        max_num_seqs=64,
        max_num_batched_tokens=1024,
        clock=clock,
        reports_load=True,
    )
    core.connect(0)
    path = folder / f"engine-{number}.sock"
    assert isinstance(core.scheduler, Scheduler)
    core.scheduler.prefix.publish(PrefixTableWriter(prefix_table_path(path), blocks, BLOCK_SIZE))
    link = EngineLink(path, on_step=lambda _: None, on_state=lambda _: None, number=number)
    sibling = Sibling(link)
    sibling.ready()
    return Engine(core, sibling)


def submission(prompt: list[int]) -> Submission:
    params = SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True)
    return Submission(
        request_id="r",
        prompt_token_ids=prompt,
        task=Generate(params),
        caller=ANYBODY,
        arrival_time=0.0,
    )


def chosen(how: str, engines: list[Engine], request: Submission, dice: random.Random) -> Engine:
    if how == ANYWHERE:
        return dice.choice(engines)
    siblings = [one.sibling for one in engines]
    cached = cached_tokens(siblings, request) if how == RULE else [0] * len(engines)
    best = choose(
        [
            Candidate(place, one.load(), tokens, one.chosen)
            for place, (one, tokens) in enumerate(zip(siblings, cached, strict=True))
        ]
    )
    return engines[best.number]


def run(how: str, num_engines: int, blocks: int) -> Row:
    dice, handles = random.Random(7), itertools.count(1)
    # As workers' clock: what was sent stays in the load until a later step begins.
    now = [time.monotonic() + 1e6]
    with tempfile.TemporaryDirectory() as folder:
        engines = [engine(n, Path(folder), blocks, lambda: now[0]) for n in range(num_engines)]
        users = [User(random.Random(n)) for n in range(USERS)]
        thinking = [(n % 40, user) for n, user in enumerate(users)]  # ticks until they ask
        asked: dict[int, tuple[User, int]] = {}
        waits, left, tick = [], CONVERSATIONS * TURNS, 0
        while left or asked:
            tick += 1
            now[0] += 0.05
            for _, user in [one for one in thinking if one[0] <= tick][:left]:
                left -= 1
                prompt = user.ask()
                request = submission(prompt)
                one = chosen(how, engines, request, dice)
                one.sibling.chosen = handle = next(handles)
                one.sibling.sent(len(prompt))
                one.core.add(
                    0,
                    Submit(
                        handle=handle,
                        request_id="r",
                        prompt_token_ids=prompt,
                        task=request.task,
                        arrival_time=now[0],
                    ),
                )
                asked[handle] = user, tick
            thinking = [one for one in thinking if one[0] > tick]
            for one in engines:
                if not one.core.has_work:
                    continue
                outputs = one.step()
                waits += [tick - asked[each.handle][1] for each in outputs.admitted]
                for finished in outputs.finished:
                    user, _ = asked.pop(finished.handle)
                    user.tokens += dice.choices(range(32_000), k=ANSWER_TOKENS)
                    thinking.append((tick + dice.randrange(1, 40), user))
        counters = [one.core.stats() for one in engines]
    computed = [one.prompt_tokens_computed + one.tokens_generated for one in counters]
    cached = sum(one.prompt_tokens_cached for one in counters)
    prompts = cached + sum(one.prompt_tokens_computed for one in counters)
    return Row(
        how if num_engines > 1 else "one engine",
        num_engines,
        blocks,
        CONVERSATIONS * TURNS,
        round(cached / prompts, 4),
        round(max(computed) * num_engines / sum(computed) - 1, 4),
        round(sum(waits) / len(waits), 2),
    )


def choose_microseconds() -> float:
    prompt = [1] * 8_000
    with tempfile.TemporaryDirectory() as folder:
        engines = [engine(n, Path(folder), 4096, time.monotonic) for n in range(2)]
        for one in engines:
            one.core.add(
                0,
                Submit(
                    handle=1,
                    request_id="r",
                    prompt_token_ids=prompt,
                    task=Generate(SamplingParams(max_tokens=1)),
                    arrival_time=0.0,
                ),
            )
            while one.core.has_work:
                one.step()
        request, dice, times = submission(prompt), random.Random(1), []
        for _ in range(20):
            begin = time.thread_time()
            chosen(RULE, engines, request, dice)
            times.append(time.thread_time() - begin)
    return round(min(times) * 1e6, 1)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    rows = []
    for blocks in (20_000, 2_000):
        cases = [(RULE, 1), (RULE, 2), (LEAST, 2), (ANYWHERE, 2), (RULE, 4)]
        for how, engines in cases:
            row = run(how, engines, blocks)
            rows.append(row)
            print(
                f"{row.case:13} {row.engines} engines of {row.kv_blocks:6} blocks: "
                f"hits {row.hits:.1%}, imbalance {row.imbalance:.1%}, wait {row.wait} ticks"
            )
    microseconds = choose_microseconds()
    print(f"choosing an engine for a cached prompt of 8,000 tokens: {microseconds} us")
    if arguments.json:
        found = {"rows": [asdict(row) for row in rows], "choose_us": microseconds}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
