"""The model's own tokenizer over HTTP."""

from __future__ import annotations

import json

from tests.service.running import RunningService


def test_tokenize_and_detokenize_are_inverse(service: RunningService) -> None:
    text = "Hello, 世界! 🚀"
    _, tokens = service.post("/tokenize", {"model": "tiny", "prompt": text})
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == 512
    _, back = service.post("/detokenize", {"tokens": tokens["tokens"]})
    assert back == {"prompt": text}


def test_tokenize_renders_messages_as_chat_would(service: RunningService) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    _, tokens = service.post("/tokenize", {"messages": messages, "return_token_strs": True})
    chat = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
    _, answer = service.post("/v1/chat/completions", chat)
    assert tokens["tokens"] == answer["prompt_token_ids"]
    assert "".join(tokens["token_strs"]).startswith("<|im_start|>user\nHello<|im_end|>")


def test_the_tokenizer_is_described_for_evaluation_harnesses(service: RunningService) -> None:
    status, body = service.get("/tokenizer_info")
    assert status == 200
    info = json.loads(body)
    assert {"eos_token", "bos_token", "pad_token", "mask_token", "chat_template"} <= set(info)
    _, tokenized = service.post("/tokenize", {"prompt": "Hi"})
    assert info["model_max_length"] == tokenized["max_model_len"]
