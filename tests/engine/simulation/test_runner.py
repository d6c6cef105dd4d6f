"""The real core, scheduler, blocks and sampler with a simulated model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from engine.messages import FinishReason, Generate, Submit, token_mask
from engine.simulation.runner import SimulatedRunner
from engine.simulation.spec import with_tokenizer
from pocket import MODEL_DIR
from tests.engine.constraint.running import lark
from tests.engine.driving import CONNECTION
from tests.engine.simulation.simulated_engine import (
    TOKENS,
    GuidedEngine,
    SimulatedEngine,
    greedy,
    prompt,
    write_script,
)

# --- what it says -------------------------------------------------------------------------------


def test_limits_and_stops_are_the_engine_s_own() -> None:
    engine = SimulatedEngine("simulated:instant,output=10")
    plain, _, _ = outputs = engine.generate(
        [prompt(5)] * 3,
        [greedy(6), greedy(25, ignore_eos=True), greedy(25, min_tokens=15)],
    )
    ends = [
        (output.finished.reason, len(output.token_ids)) for output in outputs if output.finished
    ]
    assert ends == [(FinishReason.LENGTH, 6), (FinishReason.LENGTH, 25), (FinishReason.STOP, 16)]
    stop = plain.token_ids[2]
    assert stop not in plain.token_ids[:2]
    stopped = engine.generate([prompt(5)], greedy(6, stop_token_ids=frozenset((stop,))))[0]
    assert stopped.finished is not None
    assert stopped.finished.stop_token_id == stop
    assert stopped.token_ids == plain.token_ids[:3]


def test_sampling_settings_hold_as_with_a_model() -> None:
    engine = SimulatedEngine("simulated:instant,output=10")
    said = engine.generate([prompt(5)], greedy(5))[0].token_ids
    outputs = engine.generate(
        [prompt(5)] * 3,
        [
            greedy(5, allowed_tokens=token_mask((300, 301))),
            greedy(5, logit_bias={said[0]: -100.0}),
            greedy(5, logit_bias={400: 100.0}),
        ],
    )
    allowed, banned, forced = (output.token_ids for output in outputs)
    assert set(allowed) <= {300, 301}
    assert said[0] not in banned
    assert banned[1:] == [token for token in said[1:] if token != said[0]][: len(banned) - 1]
    assert forced == [400] * 5


def test_logprobs_express_the_simulated_certainty() -> None:
    output = SimulatedEngine("simulated:instant,output=10").generate(
        [prompt(5)], greedy(3, logprobs=2, prompt_logprobs=1)
    )[0]
    assert [entry.rank for entry in output.logprobs] == [1, 1, 1]
    assert all(entry.logprob == pytest.approx(0.0, abs=1e-6) for entry in output.logprobs)
    assert len(output.prompt_logprobs) == 4


@pytest.fixture
def guided(tmp_path: Path) -> Iterator[GuidedEngine]:
    script = write_script(
        tmp_path,
        {"when": "aloud", "reply": "<think>\nHm.\n</think>\n\nSeen."},
        {"when": "in words", "reply": "Seen."},
        {"when": "on and on", "reply": "Seen", "end": False},
    )
    engine = GuidedEngine(f"simulated:instant,output=10,script={script}")
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("asked", "line"),
    [("Think aloud", 1), ("Say it in words", None), ("Say it on and on", 3), ("Hm?", None)],
)
def test_a_line_whose_reply_a_grammar_changes_is_named_once(
    guided: GuidedEngine, caplog: pytest.LogCaptureFixture, asked: str, line: int | None
) -> None:
    for _ in range(2):
        guided.submit(lark('start: "Seen" "."?'), TOKENS.encode(asked), temperature=0.0)
        guided.run()
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [text.split(":")[0] for text in said] == [f"line {line} of the script"] * bool(line)


# --- what it accounts for -----------------------------------------------------------------------


def test_it_says_what_it_is_and_holds_no_memory() -> None:
    info = SimulatedEngine("simulated:h100-8b").runner.info
    assert (info.architecture, info.num_parameters, info.kv_cache_bytes) == ("simulated", 0, 0)
    assert info.num_kv_blocks * info.block_size == 425_984


def test_steps_take_the_profile_s_time_on_the_engine_s_clock() -> None:
    engine = SimulatedEngine("simulated:instant,step=8ms,per_sequence=1ms,prefill=1000")
    begin = engine.time.now
    outputs = engine.generate([prompt(100), prompt(100, 200)], greedy(11, ignore_eos=True))
    for output in outputs:
        record = output.finished
        assert record is not None
        assert record.first_token_time == pytest.approx(begin + 0.008 + 0.2)
        assert record.last_token_time == pytest.approx(begin + 0.208 + 10 * 0.010)


def test_waiting_takes_time_and_no_processor() -> None:
    config = EngineConfig(model=with_tokenizer("simulated:step=50ms", str(MODEL_DIR)))
    engine = SimulatedEngine("simulated:step=50ms")
    engine.core.flights.runner = SimulatedRunner(config, lambda *_: None)
    wall, processor = time.monotonic(), time.thread_time()
    engine.generate([prompt(5)], greedy(10, ignore_eos=True))
    wall, processor = time.monotonic() - wall, time.thread_time() - processor
    assert wall >= 10 * 0.050
    assert processor < wall / 2


def test_few_blocks_preempt_and_everybody_finishes_all_the_same() -> None:
    roomy = SimulatedEngine("simulated:instant")
    tight = SimulatedEngine("simulated:instant,context=512", num_kv_blocks=20, block_size=8)
    prompts = [prompt(24, first) for first in range(100, 108)]
    params = greedy(60, ignore_eos=True)
    wanted = [output.token_ids for output in roomy.generate(prompts, params)]
    outputs = tight.generate(prompts, params)
    assert [output.token_ids for output in outputs] == wanted
    stats = tight.core.stats()
    assert stats.preemptions > 0
    assert stats.tokens_recomputed > 0
    assert stats.tokens_generated == 8 * 60
    assert stats.kv_blocks_active == 0
    assert stats.kv_blocks_free + stats.kv_blocks_cached == 20


def test_equal_prefixes_are_found_cached() -> None:
    engine = SimulatedEngine("simulated:instant", block_size=16)
    engine.generate([prompt(1000)], greedy(2))
    again = engine.generate([prompt(1000)], greedy(2))[0].finished
    assert again is not None
    assert again.cached_tokens == 992


def test_a_million_tokens_of_context_are_only_counted() -> None:
    engine = SimulatedEngine(
        "simulated:instant,context=1000000", block_size=64, max_num_batched_tokens=1 << 20
    )
    output = engine.generate([[7] * 999_990], greedy(10, ignore_eos=True))[0]
    assert output.finished is not None
    assert (output.finished.prompt_tokens, len(output.token_ids)) == (999_990, 10)
    assert engine.core.stats().prompt_tokens_computed == 999_990
    assert engine.runner.info.kv_cache_bytes == 0


def test_an_abort_gives_the_blocks_back() -> None:
    engine = SimulatedEngine("simulated:instant")
    submit = Submit(
        handle=1,
        request_id="one",
        prompt_token_ids=prompt(100),
        task=Generate(greedy(1000, ignore_eos=True)),
        arrival_time=0.0,
    )
    engine.core.add(CONNECTION, submit)
    engine.core.step()
    assert engine.core.stats().kv_blocks_active == 7
    engine.core.abort(CONNECTION, [1])
    (finished,) = engine.core.step()[CONNECTION].finished
    assert (finished.reason, finished.output_tokens) == (FinishReason.ABORT, 1)
    assert engine.core.stats().kv_blocks_active == 0
    assert not engine.core.has_work


# --- what it refuses ----------------------------------------------------------------------------


def test_limits_beyond_the_simulation_are_refused() -> None:
    with pytest.raises(ModelError, match="exceeds the simulation's context of 1000"):
        SimulatedEngine("simulated:context=1000", max_model_len=1001)
    with pytest.raises(ModelError, match="pretends to hold 32 tokens"):
        SimulatedEngine("simulated:context=1000", max_model_len=500, num_kv_blocks=2)


def test_the_engine_by_itself_needs_the_tokenizers_path() -> None:
    with pytest.raises(ModelError, match="needs tokenizer=DIRECTORY"):
        SimulatedRunner(EngineConfig(model="simulated:"), lambda *_: None)
