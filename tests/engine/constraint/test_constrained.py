"""Constraints together with everything else an engine does with a sequence."""

from __future__ import annotations

import json
import re
import threading

import pytest

from engine.constraint.constraints import Constraints
from engine.loop.core import EngineCore
from engine.messages import (
    Constraint,
    FinishReason,
    Generate,
    SamplingParams,
    Submit,
    token_mask,
)
from engine.queueing import QueueBounds, RefusalReason
from engine.step.grammar_state import GrammarState
from tests.engine.constraint.running import LIST, WORD, Engine, Model, lark, together

pytestmark = pytest.mark.integration

FREE = lark("start: /(?s:.*)/")


def test_a_sequence_that_can_only_stop_stops_without_an_end_token(engine: Engine) -> None:
    answer = engine.run_one(WORD, temperature=1.0)
    assert engine.text(answer) in ("yes", "no")
    assert answer.finished.reason is FinishReason.STOP
    assert answer.finished.stop_token_id is None
    assert answer.finished.output_tokens == len(answer.token_ids)


def test_an_end_token_is_sampled_only_where_the_grammar_may_end(
    engine: Engine, model: Model
) -> None:
    [end] = model.tokens.eos_token_ids
    grammar = lark("start: /(ab)+/")
    for seed in range(8):
        answer = engine.run_one(
            grammar, temperature=1.0, seed=seed, logit_bias={end: 50.0}, max_tokens=50
        )
        assert answer.finished.stop_token_id == end
        assert engine.text(answer) == "ab"  # it ends as soon as it may


def test_ignoring_the_end_token_continues_as_long_as_the_grammar_does(engine: Engine) -> None:
    grammar = lark("start: /(ab){1,20}/")
    answer = engine.run_one(grammar, ignore_eos=True, temperature=1.0)
    assert engine.text(answer) == "ab" * 20
    assert answer.finished.reason is FinishReason.STOP


def test_min_tokens_hold_back_the_end_but_not_beyond_the_grammar(
    engine: Engine, model: Model
) -> None:
    [end] = model.tokens.eos_token_ids
    bias = {"logit_bias": {end: 50.0}, "temperature": 1.0}
    longer = engine.run_one(lark("start: /a+/"), min_tokens=12, **bias)
    assert len(longer.token_ids) == 13  # twelve, then the end
    whole = engine.run_one(WORD, min_tokens=40, **bias)
    assert engine.text(whole) in ("yes", "no")
    assert whole.finished.reason is FinishReason.STOP


def test_those_with_a_grammar_show_how_fast_the_queue_drains(model: Model) -> None:
    engine = Engine(model, max_num_seqs=1)
    try:
        for _ in range(6):
            engine.submit(WORD, temperature=1.0)
        engine.run()
        last = [engine.submit(WORD, bounds=QueueBounds(1, 10_000)) for _ in range(3)][-1]
        refusal = engine.run()[last].finished.refusal
    finally:
        engine.close()
    assert refusal is not None
    assert refusal.reason is RefusalReason.QUEUE_REQUESTS
    assert refusal.retry_after is not None


def test_an_answer_cut_by_max_tokens_says_so(engine: Engine) -> None:
    answer = engine.run_one(LIST, max_tokens=3)
    assert answer.finished.reason is FinishReason.LENGTH
    assert len(answer.token_ids) == 3


def test_allowed_token_ids_that_the_grammar_forbids_fail_that_sequence_alone(
    engine: Engine,
) -> None:
    bad = engine.submit(WORD, allowed_tokens=token_mask((9, 10, 11)))
    good = engine.submit(WORD, temperature=1.0)
    free = engine.submit(None, max_tokens=20, ignore_eos=True)
    answers = engine.run()
    assert answers[bad].finished.reason is FinishReason.ERROR
    assert "leave no token" in str(answers[bad].finished.error)
    assert answers[bad].finished.is_refusal
    assert answers[good].finished.reason is FinishReason.STOP
    assert len(answers[free].token_ids) == 20


def test_a_grammar_that_does_not_compile_fails_its_sequence_with_the_reason(
    engine: Engine,
) -> None:
    bad = engine.submit(lark("start: /(/"))
    free = engine.submit(None, max_tokens=20, ignore_eos=True)
    answers = engine.run()
    assert answers[bad].finished.reason is FinishReason.ERROR
    assert "unclosed group" in str(answers[bad].finished.error)
    assert len(answers[free].token_ids) == 20
    assert engine.constraints.counters.grammars_failed == 1


def test_a_grammar_that_fails_inside_a_step_is_its_senders_fault(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first mask is fine; the next one is found to be too much while a step waits for it."""
    waited_for = threading.Event()
    consume, wait = Constraints._consume, GrammarState.wait

    def late(self: Constraints, grammar_state: GrammarState, token_ids: list[int]) -> object:
        assert waited_for.wait(30)
        return consume(self, grammar_state, token_ids)

    def waits(self: GrammarState, until: float) -> bool:
        waited_for.set()
        return wait(self, until + 30.0)

    monkeypatch.setattr(Constraints, "_consume", late)
    monkeypatch.setattr(GrammarState, "wait", waits)
    monkeypatch.setattr("engine.step.grammar_state.SLOW_SECONDS", 60.0)  # else no step waits for it
    wide = range(600)
    bad = engine.submit(
        lark(f'start: "yes " {" ".join(f"x{i}?" for i in wide)}', *(f'x{i}: "a"' for i in wide)),
    )
    free = engine.submit(None, max_tokens=20, ignore_eos=True)
    answers = engine.run()
    assert waited_for.is_set()
    failed = answers[bad].finished
    assert (failed.reason, failed.is_refusal) == (FinishReason.ERROR, True)
    assert str(failed.error).startswith("constraint: Parser Error")
    assert len(answers[free].token_ids) == 20


def test_an_engine_without_grammars_refuses_constraints_only(model: Model) -> None:
    core = EngineCore(model.runner, max_num_seqs=4, max_num_batched_tokens=64)
    core.connect(1)
    params = SamplingParams(max_tokens=4, constraint=Constraint(grammar=WORD))
    core.add(
        1,
        Submit(
            handle=1, request_id="r", prompt_token_ids=[5], task=Generate(params), arrival_time=0.0
        ),
    )
    [finished] = core.step()[1].finished
    assert finished.reason is FinishReason.ERROR
    assert "llguidance" in str(finished.error)
    assert finished.is_refusal


def test_the_same_seed_gives_the_same_answer_alone_and_in_company(engine: Engine) -> None:
    alone = [engine.run_one(LIST, seed=seed, temperature=1.0).token_ids for seed in range(6)]
    for seed in range(20):
        engine.submit(None, seed=seed, max_tokens=30, ignore_eos=True)
    assert together(engine, 6) == alone


def test_preempted_sequences_resume_with_their_grammars_state(model: Model, engine: Engine) -> None:
    undisturbed = together(engine, 8, prompt=list(range(5, 45)))
    tight = Engine(model, num_kv_blocks=14)
    assert together(tight, 8, prompt=list(range(5, 45))) == undisturbed
    assert tight.core.scheduler.counters.preemptions > 0
    tight.close()


def test_a_cached_prefix_changes_no_constrained_answer(engine: Engine) -> None:
    prompt = list(range(5, 85))
    first = engine.run_one(LIST, prompt=prompt, seed=3, temperature=1.0)
    second = engine.run_one(LIST, prompt=prompt, seed=3, temperature=1.0)
    assert second.finished.cached_tokens > 0
    assert second.token_ids == first.token_ids


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_an_answer_begun_elsewhere_is_continued_in_its_grammar(engine: Engine, cut: int) -> None:
    whole = engine.run_one(LIST, seed=5, temperature=1.0).token_ids
    rest = engine.run_one(LIST, seed=5, temperature=1.0, output_token_ids=whole[:cut])
    assert whole[:cut] + rest.token_ids == whole


def test_an_answer_begun_outside_the_grammar_fails(engine: Engine, model: Model) -> None:
    elsewhere = model.tokenizer.encode("hello").ids
    answer = engine.run_one(LIST, output_token_ids=elsewhere)
    assert answer.finished.reason is FinishReason.ERROR


def test_a_whole_answer_begun_elsewhere_stops_at_once(engine: Engine, model: Model) -> None:
    answer = engine.run_one(WORD, output_token_ids=model.tokenizer.encode("yes").ids)
    assert answer.finished.reason is FinishReason.STOP
    assert answer.token_ids == []


def test_masks_that_come_late_change_no_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_time = together(engine, 5)
    monkeypatch.setattr("engine.constraint.masks._WAIT_SECONDS", -1.0)
    assert together(engine, 5) == in_time


def test_a_free_grammar_changes_nothing(engine: Engine) -> None:
    """What a grammar that allows all text allows is all text: only special tokens are out."""
    bare = engine.run_one(None, seed=4, temperature=0.7, max_tokens=60)
    free = engine.run_one(FREE, seed=4, temperature=0.7, max_tokens=60)
    text = engine.text(bare)
    if "\ufffd" not in text and not re.search(r"<[^>]*>", text):
        assert free.token_ids == bare.token_ids


def test_json_is_complete_with_any_logit_bias(engine: Engine, model: Model) -> None:
    grammar = lark('start: %json {"type": "array", "items": {"type": "integer"}, "maxItems": 3}')
    bias = dict.fromkeys(model.tokenizer.encode("hello world").ids, 40.0)
    for seed in range(6):
        answer = engine.run_one(grammar, seed=seed, temperature=1.0, logit_bias=bias)
        if answer.finished.reason is FinishReason.STOP:
            assert isinstance(json.loads(engine.text(answer)), list)
