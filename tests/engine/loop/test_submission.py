"""What becomes of a submission: a refusal, or sequences."""

from __future__ import annotations

import msgspec
import pytest

from engine.messages import Copy, FinishReason, token_mask
from tests.engine.checking_runner import continue_alone
from tests.engine.loop.listening import ALICE, Listener, engine, submit


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": [1] * 64}, "64 tokens and leaves no room"),
        ({"prompt": [1, 1000]}, "token id 1000 is not in the vocabulary of 1000"),
        ({"output_token_ids": [2**30]}, "1073741824 is not in the vocabulary"),
        ({"min_tokens": 5}, "min_tokens 5 exceeds max_tokens 4"),
        ({"logit_bias": {5: float("nan")}}, "not a finite number"),
        ({"logit_bias": {5: float("-inf")}}, "not a finite number"),
        ({"logit_bias": {1000: 1.0}}, "logit_bias has 1000"),
        ({"stop_token_ids": (1000,)}, "stop_token_ids has 1000"),
        ({"allowed_tokens": token_mask(())}, "allowed_tokens is empty"),
        ({"allowed_tokens": token_mask((1, 1000))}, "allowed_tokens has 1000"),
        ({"bad_words_token_ids": ((1,), ())}, "empty word"),
        ({"bad_words_token_ids": ((1,), (1000,))}, "bad_words_token_ids has 1000"),
    ],
)
def test_a_submission_that_cannot_run_ends_alone(bad: dict[str, object], message: str) -> None:
    core = engine()
    core.add(ALICE, submit(1))
    core.add(ALICE, submit(2, **bad))  # type: ignore[arg-type]
    heard = Listener(core)
    assert heard.finished[ALICE, 2].reason is FinishReason.ERROR
    assert message in str(heard.finished[ALICE, 2].error)
    assert heard.finished[ALICE, 2].is_refusal
    assert heard.tokens[ALICE, 1] == continue_alone([1, 2, 3], 4, 1000)


def test_copies_of_a_submission_run_like_ones_of_their_own() -> None:
    core = engine()
    core.add(ALICE, msgspec.structs.replace(submit(7), copies=[Copy(8, 1), Copy(9, 2)]))
    heard = Listener(core)
    expected = continue_alone([1, 2, 3], 4, 1000)
    assert [heard.tokens[ALICE, handle] for handle in (7, 8, 9)] == [expected] * 3
    core.add(ALICE, msgspec.structs.replace(submit(1, []), copies=[Copy(2, 1)]))
    refused = core.flush()[ALICE].finished
    assert [(one.handle, one.reason) for one in refused] == [
        (1, FinishReason.ERROR),
        (2, FinishReason.ERROR),
    ]
