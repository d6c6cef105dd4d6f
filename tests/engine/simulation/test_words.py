"""Plain words: endless, and a function of the prompt's end and the seed."""

from __future__ import annotations

from typing import Any

from engine.messages import SamplingParams
from engine.simulation.words import Words, answer_key
from engine.step.sequence import Sequence
from tests.engine.simulation.simulated_engine import TOKENS, SimulatedEngine, prompt


def test_the_answer_is_a_function_of_prompt_and_seed() -> None:
    def answer(seed: int, temperature: float, **settings: object) -> list[int]:
        engine = SimulatedEngine("simulated:instant,output=30-90", **settings)
        params = SamplingParams(max_tokens=100, seed=seed, temperature=temperature)
        return engine.generate([prompt(50)], params)[0].token_ids

    assert answer(7, 1.0) == answer(7, 1.0, max_num_batched_tokens=16, block_size=8)
    assert answer(7, 1.0) != answer(8, 1.0)
    assert answer(7, 0.0) == answer(8, 0.0)


def sequence(prompt_ids: list[int], output: list[int], **params: Any) -> Sequence:
    sampling = SamplingParams(max_tokens=9, **params)
    return Sequence(1, "", prompt_ids + output, len(prompt_ids), sampling)


def test_each_key_begins_with_another_sentence_and_goes_round_all_of_them() -> None:
    words = Words(TOKENS.encode)
    first = [TOKENS.decode([words.token(key, place) for place in range(40)]) for key in range(14)]
    assert len({text.split(".")[0] for text in first}) == 14
    rounds = TOKENS.decode([words.token(3, place) for place in range(3000)])
    begin = rounds.split(".")[0] + "."
    assert rounds.count(begin) > 1
    for text in first:
        assert text.split(".")[0] in rounds
    assert words.token(3, 10**9) == words.token(3 + 14 * 5, 10**9)


def test_a_key_is_of_the_prompt_s_end_and_of_the_seed_that_matters() -> None:
    end = list(range(64))
    key = answer_key(sequence([7, *end], [], seed=1))
    assert key == answer_key(sequence([8, 9, *end], [5, 6], seed=1))
    assert key != answer_key(sequence([7, *end[:-1], 99], [], seed=1))
    assert key != answer_key(sequence([7, *end], [], seed=2))
    greedy = [answer_key(sequence(end, [], seed=seed, temperature=0.0)) for seed in (1, 2)]
    assert greedy[0] == greedy[1]
