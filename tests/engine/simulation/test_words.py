"""Plain words: endless, and a function of the prompt's end and the seed."""

from __future__ import annotations

from engine.messages import SamplingParams
from tests.engine.simulation.simulated_engine import SimulatedEngine, prompt


def test_the_answer_is_a_function_of_prompt_and_seed() -> None:
    def answer(seed: int, temperature: float, **settings: object) -> list[int]:
        engine = SimulatedEngine("simulated:instant,output=30-90", **settings)
        params = SamplingParams(max_tokens=100, seed=seed, temperature=temperature)
        return engine.generate([prompt(50)], params)[0].token_ids

    assert answer(7, 1.0) == answer(7, 1.0, max_num_batched_tokens=16, block_size=8)
    assert answer(7, 1.0) != answer(8, 1.0)
    assert answer(7, 0.0) == answer(8, 0.0)
