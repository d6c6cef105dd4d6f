from __future__ import annotations

from collections.abc import Iterator

from engine.messages import Embed, Generate, SamplingParams, Submit, Task
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.overview.sequences import (
    MOST_LOOKED_AT,
    MOST_WAITING_LOOKED_AT,
    sequence_figures,
)

NOW = 100.0


def sequence(state: SequenceState, task: Task | None = None, **fields: object) -> EngineSequence:
    message = Submit(
        handle=1,
        request_id="r1",
        prompt_token_ids=[1],
        task=task or Generate(SamplingParams(max_tokens=5)),
        arrival_time=0.0,
    )
    one = EngineSequence(1, 50, 0.0, Waker(), message, waiting_since=NOW - 3.0)
    one.state = state
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def test_without_sequences_everything_is_0() -> None:
    figures = sequence_figures([], NOW, running=0)
    assert (figures.oldest_waiting, figures.longest_gap, figures.prefilling) == (0.0, 0.0, 0)
    assert not figures.held


def test_a_waiting_one_holds_nothing_and_has_waited() -> None:
    figures = sequence_figures([sequence(SequenceState.QUEUED)], NOW, running=0)
    assert figures.oldest_waiting == 3.0
    assert not figures.held


def test_one_without_a_first_token_is_in_prefill() -> None:
    ones = [
        sequence(SequenceState.RUNNING, first_scheduled_time=NOW - 2.0),
        sequence(SequenceState.RUNNING, first_scheduled_time=NOW - 1.0, prompt_tokens=9),
    ]
    figures = sequence_figures(ones, NOW, running=2)
    assert (figures.prefilling, figures.longest_prefill) == (2, 2.0)
    assert figures.longest_prefill_tokens == 50


def test_a_decoding_one_holds_its_prompt_and_its_tokens() -> None:
    one = sequence(
        SequenceState.RUNNING,
        first_scheduled_time=NOW - 2.0,
        first_token_time=NOW - 1.0,
        last_token_time=NOW - 0.25,
        generated=[1, 2, 3],
    )
    figures = sequence_figures([one, one], NOW, running=2)
    assert figures.held == {"r1": 106}
    assert (figures.prefilling, figures.longest_gap) == (0, 0.25)


def test_a_text_to_embed_is_not_in_prefill() -> None:
    one = sequence(SequenceState.RUNNING, Embed(), first_scheduled_time=NOW - 9.0)
    assert sequence_figures([one], NOW, running=1).prefilling == 0


def test_the_work_is_bounded() -> None:
    taken = 0

    def many() -> Iterator[EngineSequence]:
        nonlocal taken
        while True:
            taken += 1
            yield sequence(SequenceState.QUEUED)

    sequence_figures(many(), NOW, running=1)
    assert taken <= MOST_LOOKED_AT + 1
    taken = 0
    sequence_figures(many(), NOW, running=0)
    assert taken <= MOST_WAITING_LOOKED_AT + 1


def test_a_running_one_is_found_after_any_number_that_wait() -> None:
    waiting = [sequence(SequenceState.QUEUED) for _ in range(2 * MOST_WAITING_LOOKED_AT)]
    running = sequence(SequenceState.RUNNING, first_scheduled_time=NOW - 2.0)
    assert sequence_figures([*waiting, running], NOW, running=1).prefilling == 1
