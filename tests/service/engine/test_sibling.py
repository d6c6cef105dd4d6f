"""What a worker knows of an engine before it chooses one."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from engine.block_names import block_names
from engine.messages import Embed, EngineStats, SamplingParams
from engine.prefix_table import PrefixTableWriter, prefix_table_path
from engine.queueing import EngineLoad
from service.engine.link import EngineLink
from service.engine.sibling import MOST_BLOCKS, Sibling, cached_tokens
from service.tenants.caller import Caller
from tests.service.engine.test_link import submission

BLOCK = 16


def sibling(folder: Path, number: int = 0) -> Sibling:
    path = folder / f"engine-{number}.sock"
    return Sibling(EngineLink(path, on_step=lambda _: None, on_state=lambda _: None, number=number))


def table(folder: Path, number: int, prompt: list[int], salt: str = "") -> PrefixTableWriter:
    path = prefix_table_path(folder / f"engine-{number}.sock")
    made = PrefixTableWriter(path, len(prompt) // BLOCK + 1, BLOCK)
    for name in block_names(salt, prompt, BLOCK):
        made.add(name)
    return made


def test_the_load_is_the_last_report_and_what_it_cannot_include(tmp_path: Path) -> None:
    one = sibling(tmp_path)
    assert one.load() == 0
    now = time.monotonic()
    one.sent(100)
    assert one.load() == 100
    before = time.monotonic() - 1.0
    one.link.stats = EngineStats(load=EngineLoad(40, before))
    assert one.load() == 140
    one.link.stats = EngineStats(load=EngineLoad(40, now + 0.01))  # it was on its way
    assert one.load() == 140
    one.link.stats = EngineStats(load=EngineLoad(150, time.monotonic() + 1.0))
    assert one.load() == 150
    one.sent(7)
    one.lost()
    one.link.stats = None
    assert one.load() == 0


def test_each_engine_s_longest_prefix_is_found(tmp_path: Path) -> None:
    prompt = list(range(100))
    tables = [table(tmp_path, number, prompt[: 32 * number]) for number in range(3)]
    siblings = [sibling(tmp_path, number) for number in range(3)]
    for one in siblings:
        one.ready()
    assert cached_tokens(siblings, submission(prompt)) == [0, 32, 64]
    assert cached_tokens(siblings, submission([9, *prompt])) == [0, 0, 0]
    # The last token is always computed, so a prompt of four whole blocks reuses three.
    assert cached_tokens(siblings, submission(prompt[:64])) == [0, 32, 48]
    [second, *_] = block_names("", prompt, BLOCK)
    tables[1].remove(second)
    assert cached_tokens(siblings, submission(prompt)) == [0, 0, 64]
    siblings[2].lost()
    assert cached_tokens(siblings, submission(prompt)) == [0, 0, 0]


def test_prompts_that_are_computed_whole_follow_no_prefix(tmp_path: Path) -> None:
    prompt = list(range(100))
    table(tmp_path, 0, prompt)
    one = sibling(tmp_path)
    one.ready()
    assert cached_tokens([one], submission(prompt)) == [96]
    whole = SamplingParams(max_tokens=1, prompt_logprobs=0)
    assert cached_tokens([one], submission(prompt, whole)) == [0]
    assert cached_tokens([one], submission(prompt, Embed())) == [0]


def test_a_caller_finds_its_own_salt_only(tmp_path: Path) -> None:
    prompt = list(range(100))
    caller = Caller("0a" * 32, shares=True, may_hurry=False)
    other = Caller("0b" * 32, shares=True, may_hurry=False)
    assert caller.cache_salt("") != other.cache_salt("")
    table(tmp_path, 0, prompt, caller.cache_salt(""))
    one = sibling(tmp_path)
    one.ready()
    assert cached_tokens([one], submission(prompt, caller=caller)) == [96]
    assert cached_tokens([one], submission(prompt, caller=other)) == [0]


def test_the_work_for_a_long_prompt_is_bounded(tmp_path: Path) -> None:
    prompt = [1] * (BLOCK * (MOST_BLOCKS + 100))
    table(tmp_path, 0, prompt)
    one = sibling(tmp_path)
    one.ready()
    begin = time.thread_time()
    assert cached_tokens([one], submission(prompt)) == [BLOCK * MOST_BLOCKS]
    assert time.thread_time() - begin < 0.05


def test_an_engine_without_a_table_is_chosen_by_its_load_alone(tmp_path: Path) -> None:
    one = sibling(tmp_path)
    one.ready()
    assert one.table is None
    prefix_table_path(one.link.socket_path).write_bytes(b"nonsense")
    one.ready()
    assert cached_tokens([one], submission(list(range(100)))) == [0]


def test_stats_without_a_load_are_those_of_an_idle_engine() -> None:
    sent = msgspec.msgpack.encode(EngineStats())
    assert msgspec.msgpack.decode(sent, type=EngineStats).load is None
