"""Texts or token ids to embed, truncated on request, within the model's limits."""

from __future__ import annotations

import pytest

from service.errors import ContextTooLongError, InvalidRequestError, WrongTaskError
from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.preparation.prepared import engine, prepared, tokenizer


def ids(made: object) -> list[list[int]]:
    return [list(one.token_ids) for one in made.inputs]  # type: ignore[attr-defined]


def test_texts_and_token_ids_keep_their_order() -> None:
    texts = ["one", "two three"]
    encoded = [tokenizer().encode(text, add_special_tokens=True) for text in texts]
    assert ids(prepared("embeddings", {"input": texts})) == encoded
    assert ids(prepared("embeddings", {"input": encoded})) == encoded
    message = pb.EmbedRequest(input=[pb.EmbedInput(text=text) for text in texts])
    assert ids(prepared("grpc_embeddings", message.SerializeToString())) == encoded


def test_token_ids_are_cut_to_the_limit_that_is_asked_for() -> None:
    made = prepared("embeddings", {"input": [[1, 2, 3], [4]], "truncate_prompt_tokens": 2})
    assert ids(made) == [[1, 2], [4]]


@pytest.mark.parametrize(
    ("dimensions", "said"),
    [(16, None), (64, None), (32, "16, 48, 64"), (65, "at most 64"), (None, None)],
)
def test_vectors_are_cut_only_to_lengths_that_the_model_was_trained_for(
    dimensions: int | None, said: str | None
) -> None:
    loaded = engine(embedding_size=64, matryoshka_dimensions=(16, 48))
    body = {"input": "a", "dimensions": dimensions}
    if said is None:
        assert prepared("embeddings", body, loaded=loaded).request.dimensions == dimensions
        return
    with pytest.raises(InvalidRequestError, match=said) as refused:
        prepared("embeddings", body, loaded=loaded)
    assert refused.value.param == "dimensions"


def test_a_model_without_embeddings_says_what_it_does() -> None:
    with pytest.raises(WrongTaskError, match=r"\(Pocket\) does not support embeddings\."):
        prepared("embeddings", {"input": "a"}, loaded=engine(embedding_size=0))
    with pytest.raises(WrongTaskError, match="/v1/rerank"):
        prepared("embeddings", {"input": "a"}, loaded=engine(embedding_size=0, num_scores=1))


def test_the_input_at_fault_is_named() -> None:
    with pytest.raises(ContextTooLongError) as too_long:
        prepared("embeddings", {"input": ["a", "word " * 9000]})
    assert too_long.value.param == "input[1]"
    with pytest.raises(InvalidRequestError) as unknown:
        prepared("embeddings", {"input": [[1], [1500]]})
    assert unknown.value.param == "input"
