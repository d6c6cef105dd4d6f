"""A sequence classifier over HTTP: it scores pairs as transformers does, and does nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from tests.engine.tiny_encoders import MAX_TOKENS, SCORERS
from tests.service.running import RunningService
from tests.service.tiny_encoder import write_tiny_encoder

QUERY = "is paris the capital"
DOCUMENTS = ["the quick brown fox jumped over the lazy dog", "berlin", "a cat is not a dog"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_encoder(SCORERS["bert"], tmp_path_factory.mktemp("cross") / "scorer")


@pytest.fixture(scope="module")
def scorer(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("service")
    with RunningService(model, folder, engine_args=("--load-format", "auto")) as running:
        yield running


@pytest.fixture(scope="module")
def logits(model: Path) -> list[float]:
    """Transformers' own, its own tokenizer reading the pairs."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(model / "tokenizer.json"),
        pad_token="[PAD]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    oracle = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).eval()
    found = []
    for document in DOCUMENTS:
        inputs = tokenizer(QUERY, document, return_tensors="pt")
        assert inputs["token_type_ids"].max() == 1
        with torch.inference_mode():
            found.append(float(oracle(**inputs).logits[0, 0]))
    return found


def test_scores_equal_transformers(scorer: RunningService, logits: list[float]) -> None:
    ask: dict[str, Any] = {"model": "tiny", "text_1": QUERY, "text_2": DOCUMENTS}
    status, reply = scorer.post("/v1/score", ask)
    assert status == 200, reply
    expected = torch.sigmoid(torch.tensor(logits)).tolist()
    assert [item["score"] for item in reply["data"]] == pytest.approx(expected, abs=1e-4)
    raw = scorer.post("/v1/score", {**ask, "use_activation": False})[1]
    assert [item["score"] for item in raw["data"]] == pytest.approx(logits, abs=1e-3)


def test_reranking_puts_the_documents_into_transformers_order(
    scorer: RunningService, logits: list[float]
) -> None:
    status, reply = scorer.post("/rerank", {"query": QUERY, "documents": DOCUMENTS})
    assert status == 200, reply
    order = sorted(range(len(logits)), key=lambda index: -logits[index])
    assert [result["index"] for result in reply["results"]] == order
    assert all(result["document"] for result in reply["results"])
    ask = {"query": QUERY, "documents": DOCUMENTS, "max_tokens_per_doc": 4096}
    status, newer = scorer.post("/v2/rerank", ask)
    assert status == 200, newer
    assert [result["index"] for result in newer["results"]] == order
    assert not any("document" in result for result in newer["results"])


def test_a_pair_too_long_is_refused_by_its_place_or_cut_in_its_second_text(
    scorer: RunningService,
) -> None:
    long = "fox " * MAX_TOKENS
    ask = {"text_1": QUERY, "text_2": ["dog", long]}
    status, reply = scorer.post("/v1/score", ask)
    assert (status, reply["error"]["param"]) == (400, "text_2[1]")
    status, cut = scorer.post("/v1/score", {**ask, "truncate_prompt_tokens": -1})
    assert status == 200
    assert (
        cut["usage"]["prompt_tokens"]
        == MAX_TOKENS
        + scorer.post("/v1/score", {"text_1": QUERY, "text_2": "dog"})[1]["usage"]["prompt_tokens"]
    )


def test_coheres_route_cuts_a_document_too_long_and_reports_it(scorer: RunningService) -> None:
    ask = {"query": QUERY, "documents": ["dog", "fox " * MAX_TOKENS]}
    status, reply = scorer.post("/v1/rerank", ask)
    assert (status, reply["error"]["param"]) == (400, "documents[1]")
    status, headers, _ = scorer.exchange("POST", "/v2/rerank", json.dumps(ask).encode())
    assert (status, headers["x-quire-ignored"]) == (200, "documents[1]")
    status, reply = scorer.post("/v1/rerank", {**ask, "max_tokens_per_doc": 3})
    assert status == 200, reply


def test_one_long_text_is_not_read_with_each_of_thousands(scorer: RunningService) -> None:
    ask = {"query": " " * 1_000_000, "documents": ["dog"] * 2000}
    status, reply = scorer.post("/v1/rerank", ask)
    assert (status, reply["error"]["param"]) == (400, "query")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/embeddings", {"input": "Hi"}),
    ],
)
def test_an_unsupported_request_is_refused_with_an_alternative(
    scorer: RunningService, path: str, body: dict[str, Any]
) -> None:
    status, reply = scorer.post(path, body)
    assert (status, reply["error"]["code"]) == (400, "unsupported_task")
    assert "BertForSequenceClassification" in reply["error"]["message"]
    assert "/v1/score" in reply["error"]["message"]


def test_anthropics_clients_are_refused_in_their_own_shape(scorer: RunningService) -> None:
    ask = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    status, reply = scorer.post("/v1/messages", ask)
    assert (status, reply["type"]) == (400, "error")
    assert reply["error"]["type"] == "invalid_request_error"


def test_word_pieces_are_shown_and_read_back(scorer: RunningService) -> None:
    ask = {"prompt": "fox jumps", "return_token_strs": True}
    reply = scorer.post("/tokenize", ask)[1]
    assert reply["token_strs"] == ["[CLS]", " fox", " jump", "s", "[SEP]"]
    text = scorer.post("/detokenize", {"tokens": reply["tokens"]})[1]["prompt"]
    assert text == "[CLS] fox jumps [SEP]"


def test_the_model_says_that_it_scores(scorer: RunningService) -> None:
    assert json.loads(scorer.get("/v1/models")[1])["data"][0]["tasks"] == ["score"]
