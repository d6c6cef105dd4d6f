"""``quire serve DIR`` with a checkpoint that also reads images: served as text, and it says so."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from tests.e2e.quire_server import QuireServer
from tests.engine.plugin.image_text import save_image_text
from tests.service.tiny_model import CHAT_TEMPLATE, VOCABULARY, build_tokenizer

LENGTH = 32
URL = "data:image/png;base64,iVBORw0KGgo="
SAID = "this server takes text only"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("qwen3_vl")


@pytest.fixture(scope="module")
def oracle(directory: Path) -> PreTrainedModel:
    """The whole checkpoint in transformers; written to ``directory`` as such repositories are."""
    model = save_image_text("qwen3_vl:qwen3_vl_text", directory, vocabulary=VOCABULARY)
    build_tokenizer().save(str(directory / "tokenizer.json"))
    for name, value in {
        "tokenizer_config": {"eos_token": "<|im_end|>", "processor_class": "Qwen3VLProcessor"},
        "chat_template": {"chat_template": CHAT_TEMPLATE},
        "preprocessor_config": {"image_processor_type": "Qwen2VLImageProcessorFast"},
        "video_preprocessor_config": {"video_processor_type": "Qwen3VLVideoProcessor"},
    }.items():
        (directory / f"{name}.json").write_text(json.dumps(value))
    return model


@pytest.fixture(scope="module")
def server(directory: Path, oracle: PreTrainedModel) -> Iterator[QuireServer]:
    with QuireServer(str(directory), "--device", "cpu", "--served-model-name", "tiny") as running:
        yield running


def test_text_is_answered_as_the_whole_checkpoint_would(
    server: QuireServer, oracle: PreTrainedModel
) -> None:
    ask = {
        "model": "tiny",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello, you?"}]}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    status, reply = server.post("/v1/chat/completions", ask)
    assert status == 200, reply
    prompt = "<|im_start|>user\nHello, you?<|im_end|>\n<|im_start|>assistant\n"
    ids = build_tokenizer().encode(prompt).ids
    assert reply["usage"]["prompt_tokens"] == len(ids)
    inputs = torch.tensor([ids])
    greedy = GenerationConfig(max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    out = oracle.generate(
        input_ids=inputs, attention_mask=torch.ones_like(inputs), generation_config=greedy
    )
    assert reply["choices"][0]["token_ids"] == out[0, len(ids) :].tolist()


PARTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}
        ]
    },
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]
    },
    "/v1/messages": {
        "max_tokens": 8,
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"},
                    }
                ],
            }
        ],
    },
}


@pytest.mark.parametrize("route", PARTS)
def test_an_image_is_refused_in_a_sentence(route: str, server: QuireServer) -> None:
    status, reply = server.post(route, {"model": "tiny", **PARTS[route]})
    assert status == 400
    assert SAID in reply["error"]["message"]
    assert reply["error"]["type"] == "invalid_request_error"
    if route == "/v1/messages":
        assert reply["type"] == "error"
    else:
        assert reply["error"]["param"].endswith(".type")


def test_it_says_that_it_serves_text_alone(server: QuireServer) -> None:
    [card] = json.loads(server.get("/v1/models")[1])["data"]
    assert (card["architecture"], card["implementation"]) == (
        "Qwen3VLForConditionalGeneration",
        "native",
    )
    assert card["unserved_inputs"] == ["image", "video"]
    assert json.loads(server.get("/health")[1])["engine"]["unserved_inputs"] == ["image", "video"]
    engines = int(os.environ.get("QUIRE_TEST_ENGINES", "1"))
    said = server.output().count("input other than text (image, video) is not supported")
    assert said == engines  # once each
