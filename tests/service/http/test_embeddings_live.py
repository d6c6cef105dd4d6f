"""A chat model's embeddings, over HTTP, with the engine and the worker as they run."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.service.running import RunningService, until

EMBED = "/v1/embeddings"
# Enough work that it lasts for seconds: it can only end early by being cut.
LONG = {"input": [[number % 500 + 1] * 500 for number in range(1024)]}


@pytest.fixture
def client(service: RunningService) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)


def embedded(service: RunningService, value: Any, **fields: Any) -> list[list[float]]:
    status, reply = service.post(EMBED, {"input": value, **fields})
    assert status == 200, reply
    assert [item["index"] for item in reply["data"]] == list(range(len(reply["data"])))
    return [item["embedding"] for item in reply["data"]]


def test_the_openai_sdk_reads_base64_and_numbers_as_the_same(client: openai.OpenAI) -> None:
    texts = ["The quick brown fox", "jumps"]
    packed = client.embeddings.create(model="tiny", input=texts)  # base64 is the SDK's own default
    plain = client.embeddings.create(model="tiny", input=texts, encoding_format="float")
    assert [item.embedding for item in packed.data] == [item.embedding for item in plain.data]
    assert packed.data[0].embedding != packed.data[1].embedding
    assert len(packed.data[0].embedding) == 64
    assert sum(x * x for x in packed.data[0].embedding) == pytest.approx(1, abs=1e-5)
    assert packed.model == "tiny"


def test_base64_is_little_endian_float32(service: RunningService) -> None:
    [numbers] = embedded(service, "fox")
    [packed] = embedded(service, "fox", encoding_format="base64")
    data = base64.b64decode(packed)  # type: ignore[arg-type]  # base64 this time
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == numbers


def test_texts_and_their_token_ids_are_the_same_in_every_form(service: RunningService) -> None:
    texts = ["The quick brown fox", "jumps over"]
    ids = [service.post("/tokenize", {"prompt": text})[1]["tokens"] for text in texts]
    expected = embedded(service, texts)
    by_ids = embedded(service, ids)
    assert by_ids[0] == pytest.approx(expected[0], abs=1e-6)
    assert by_ids[1] == pytest.approx(expected[1], abs=1e-6)
    assert embedded(service, ids[0])[0] == pytest.approx(expected[0], abs=1e-6)
    _, reply = service.post("/embeddings", {"input": texts})
    assert reply["usage"] == {
        "prompt_tokens": sum(map(len, ids)),
        "total_tokens": sum(map(len, ids)),
    }


def test_an_embedding_is_cut_to_its_first_dimensions(service: RunningService) -> None:
    [whole] = embedded(service, "fox", normalize=False)
    [cut] = embedded(service, "fox", dimensions=8)
    [raw] = embedded(service, "fox", dimensions=8, normalize=False)
    assert raw == whole[:8]
    length = sum(x * x for x in raw) ** 0.5
    assert cut == pytest.approx([x / length for x in raw], abs=1e-6)


def test_a_text_too_long_is_refused_by_its_place_or_cut_where_asked(
    service: RunningService,
) -> None:
    long = [5] * 600
    status, reply = service.post(EMBED, {"input": [[1], long]})
    assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
    assert "'input[1]' has 600" in reply["error"]["message"]
    assert "at most 512" in reply["error"]["message"]
    [cut] = embedded(service, long, truncate_prompt_tokens=-1)
    [short] = embedded(service, long[:512])
    assert cut == pytest.approx(short, abs=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (EMBED, {"input": ""}, "input"),
        (EMBED, {"input": ["fox", ""]}, "input[1]"),
        (EMBED, {"input": [10**6]}, "input"),
        (EMBED, {"input": "fox", "dimensions": 65}, "dimensions"),
        (EMBED, {"input": "fox", "truncate_prompt_tokens": 513}, "truncate_prompt_tokens"),
        (EMBED, {"input": "fox", "model": "gpt-9"}, "model"),
        ("/v1/rerank", {"query": "", "documents": ["fox"]}, "query"),
        ("/v1/score", {"text_1": "a", "text_2": ["b", "x " * 600]}, "text_2[1]"),
        ("/v1/score", {"text_1": "a", "text_2": "b", "use_activation": False}, "use_activation"),
    ],
)
def test_what_cannot_be_embedded_is_named(
    service: RunningService, path: str, body: dict[str, Any], param: str
) -> None:
    status, reply = service.post(path, body)
    assert status in (400, 404)
    assert reply["error"]["param"] == param


def test_scores_are_cosines_and_reranking_follows_them(service: RunningService) -> None:
    texts = ["jumps over", "The quick brown fox", "lazy dog", "The quick"]
    query, *vectors = embedded(service, ["The quick brown fox", *texts])
    expected = [sum(a * b for a, b in zip(query, vector, strict=True)) for vector in vectors]
    status, scored = service.post("/score", {"text_1": "The quick brown fox", "text_2": texts})
    assert status == 200
    assert [item["score"] for item in scored["data"]] == pytest.approx(expected, abs=1e-5)
    each = service.post("/v1/score", {"text_1": texts, "text_2": texts})[1]["data"]
    assert [item["score"] for item in each] == pytest.approx([1] * 4, abs=1e-5)
    ask = {"query": "The quick brown fox", "documents": texts, "top_n": 2}
    status, reply = service.post("/v1/rerank", ask)
    assert status == 200
    best = sorted(range(4), key=lambda index: -expected[index])[:2]
    assert [result["index"] for result in reply["results"]] == best
    assert best[0] == 1
    assert reply["results"][0]["document"] == {"text": texts[1]}
    assert reply["usage"] == scored["usage"]


def test_a_model_says_what_can_be_asked_of_it(service: RunningService) -> None:
    tasks = ["generate", "embed", "score"]
    assert json.loads(service.get("/v1/models")[1])["data"][0]["tasks"] == tasks
    assert json.loads(service.get("/health")[1])["engine"]["tasks"] == tasks


def requests(service: RunningService, outcome: str) -> float:
    return metric(
        service, f'quire_requests_total{{model="tiny",outcome="{outcome}",route="embeddings"}}'
    )


def metric(service: RunningService, series: str) -> float:
    series += " "
    for line in service.get("/metrics")[1].decode().splitlines():
        if line.startswith(series):
            return float(line.removeprefix(series))
    raise AssertionError(f"no series {series}")


def test_more_texts_than_the_engine_takes_at_once_all_come_back_in_order(
    service: RunningService,
) -> None:
    texts = [[number % 500 + 1, number // 500 + 1] for number in range(300)]
    vectors = embedded(service, texts)
    [one] = embedded(service, texts[277])
    assert vectors[277] == pytest.approx(one, abs=1e-5)


def test_a_request_counts_its_tokens_once_and_no_output(service: RunningService) -> None:
    counted = (
        'quire_request_prompt_tokens_sum{model="tiny"}',
        'quire_prompt_tokens_total{model="tiny",source="computed"}',
        'quire_request_generated_tokens_count{model="tiny"}',
    )
    before, ended = [metric(service, series) for series in counted], requests(service, "stop")
    embedded(service, [[number + 1] * 3 for number in range(20)])
    assert requests(service, "stop") == ended + 1
    after = [metric(service, series) for series in counted]
    assert [b - a for a, b in zip(before, after, strict=True)] == [60, 60, 0]


def test_texts_are_embedded_while_answers_stream(service: RunningService) -> None:
    ask = {"prompt": "The quick", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    alone = service.post("/v1/completions", ask)[1]["choices"][0]["text"]
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(ask).encode())
    embedded(service, [[number + 1] * 90 for number in range(40)])
    assert json.loads(connection.getresponse().read())["choices"][0]["text"] == alone


def begin(service: RunningService) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("POST", EMBED, json.dumps(LONG).encode())
    until(lambda: service.engine_counts()["running"] > 0, 10, "texts to be embedded")
    return connection


def test_a_client_that_leaves_frees_all_at_once(service: RunningService) -> None:
    service.wait_idle()
    before = requests(service, "client_gone")
    connection = begin(service)
    counts = service.engine_counts()
    # Two steps' worth: a long list leaves the queue to others.
    assert counts["running"] + counts["waiting"] <= 2 * 2048 // 500
    assert connection.sock is not None
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    service.wait_idle(5)
    until(lambda: requests(service, "client_gone") == before + 1, 5, "it to be counted")


@pytest.fixture
def own(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    with RunningService(tiny_model, tmp_path) as running:
        yield running


def test_a_dead_engine_ends_the_request_with_an_error(own: RunningService) -> None:
    connection = begin(own)
    own.engine.popen.send_signal(signal.SIGKILL)
    reply = connection.getresponse()
    assert reply.status == 500
    assert json.loads(reply.read())["error"]["code"] == "engine_error"
    status, refused = own.post(EMBED, {"input": "fox"})
    assert (status, refused["error"]["code"]) == (503, "engine_unavailable")
