"""What becomes of a submission: a refusal, or sequences."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from engine.loop.submission import refusal, sequence_of, singly
from engine.messages import Copy, Embed, FinishReason, Pooling, Submit, token_mask
from engine.step.step import ModelInfo
from tests.engine.checking_runner import CheckingRunner, continue_alone
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


def embed(prompt_len: int, **fields: object) -> Submit:
    return Submit(
        handle=1,
        request_id="r1",
        prompt_token_ids=[1] * prompt_len,
        task=Embed(**fields),  # type: ignore[arg-type]  # a test's own
        arrival_time=0.0,
    )


def encoder(**fields: object) -> ModelInfo:
    known = {"generates": False, "embedding_size": 48, "pooling": Pooling.MEAN} | fields
    return replace(CheckingRunner().info, **known)  # type: ignore[arg-type]  # a test's own


@pytest.mark.parametrize(
    ("info", "submit_", "message"),
    [
        (encoder(), embed(0), "the text has no tokens"),
        (encoder(), embed(65), "the text has 65 tokens; the limit is 64"),
        (encoder(), embed(5, second_text=6), "second_text is 6, but the text has only 5 tokens"),
        (encoder(vocab_size=1), embed(5), "token id 1 is not in the vocabulary of 1"),
        (encoder(), embed(5, dimensions=49), "dimensions 49 exceeds the embedding's 48"),
        (
            encoder(matryoshka_dimensions=(8, 16)),
            embed(5, dimensions=20),
            "dimensions 20 is not supported by the model; supported: 8, 16, 48",
        ),
        (
            encoder(num_scores=2, embedding_size=0),
            embed(5, dimensions=1),
            "dimensions is not supported for scores",
        ),
        (encoder(embedding_size=0), embed(5), "checking does not support embeddings"),
        (encoder(), submit(1), "checking does not generate"),
        (encoder(), embed(64, second_text=64, dimensions=48), None),
        (encoder(matryoshka_dimensions=(8, 16)), embed(5, dimensions=8), None),
        (encoder(num_scores=2, embedding_size=0), embed(5, second_text=0), None),
    ],
)
def test_a_text_is_refused_for_what_the_model_cannot_do(
    info: ModelInfo, submit_: Submit, message: str | None
) -> None:
    assert refusal(submit_, info, max_sequence_len=64) == message


def test_a_copy_differs_in_handle_and_seed_alone() -> None:
    original = msgspec.structs.replace(
        submit(7, seed=1, max_tokens=9, output_token_ids=[4, 5]), copies=[Copy(8, 2), Copy(9, 3)]
    )
    first, *copies = singly(original)
    assert first.handle == 7
    for copy, handle, seed in zip(copies, (8, 9), (2, 3), strict=True):
        own = submit(handle, request_id="r7", seed=seed, max_tokens=9, output_token_ids=[4, 5])
        assert copy == own


@pytest.mark.parametrize(
    ("pooling", "whole"), [(Pooling.LAST, False), (Pooling.MEAN, True), (Pooling.CLS, True)]
)
def test_a_vector_of_more_than_the_last_token_needs_the_whole_prompt(
    pooling: Pooling, whole: bool
) -> None:
    sequence = sequence_of(embed(5), 3, encoder(pooling=pooling), [])
    assert sequence.needs_whole_prompt is whole
    assert sequence.embed == Embed()
    reporting = sequence_of(submit(1, prompt_logprobs=0), 4, CheckingRunner().info, [])
    assert reporting.needs_whole_prompt
    assert not sequence_of(submit(1), 5, CheckingRunner().info, []).needs_whole_prompt
