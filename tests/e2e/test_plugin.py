"""``quire serve DIR`` with a checkpoint that only transformers' code computes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Exaone4Config, Exaone4ForCausalLM, GenerationConfig, PreTrainedModel

from tests.e2e.quire_server import QuireServer
from tests.service.tiny_model import CHAT_TEMPLATE, VOCABULARY, build_tokenizer

LENGTH = 48


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exaone4")


@pytest.fixture(scope="module")
def oracle(directory: Path) -> PreTrainedModel:
    """What transformers generates with; written to ``directory`` as its own tools do."""
    torch.manual_seed(0)
    config = Exaone4Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.25,
        pad_token_id=None,
        eos_token_id=None,
    )
    model = Exaone4ForCausalLM(config).eval()
    model.save_pretrained(directory, max_shard_size="60KB")
    tokenizer = build_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


@pytest.fixture(scope="module")
def server(directory: Path, oracle: PreTrainedModel) -> Iterator[QuireServer]:
    with QuireServer(str(directory), "--device", "cpu", "--served-model-name", "tiny") as running:
        yield running


def generated(oracle: PreTrainedModel, prompt: list[int]) -> list[int]:
    inputs = torch.tensor([prompt])
    greedy = GenerationConfig(max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    out = oracle.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=greedy)
    return list(map(int, out[0, len(prompt) :]))


def test_greedy_tokens_are_those_that_transformers_generates(
    server: QuireServer, oracle: PreTrainedModel
) -> None:
    prompts = [random.Random(seed).choices(range(3, VOCABULARY - 8), k=30) for seed in range(3)]
    ask = {
        "model": "tiny",
        "prompt": prompts,
        "max_tokens": LENGTH,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    status, reply = server.post("/v1/completions", ask)
    assert status == 200, reply
    found = [choice["token_ids"] for choice in sorted(reply["choices"], key=lambda c: c["index"])]
    assert found == [generated(oracle, prompt) for prompt in prompts]


def test_a_chat_is_answered_through_the_checkpoints_template(
    server: QuireServer, oracle: PreTrainedModel
) -> None:
    ask = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hello, how are you?"}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    status, reply = server.post("/v1/chat/completions", ask)
    assert status == 200, reply
    prompt = "<|im_start|>user\nHello, how are you?<|im_end|>\n<|im_start|>assistant\n"
    ids = build_tokenizer().encode(prompt).ids
    assert reply["usage"]["prompt_tokens"] == len(ids)
    assert reply["choices"][0]["token_ids"] == generated(oracle, ids)


def test_it_says_whose_code_computes_it(server: QuireServer) -> None:
    [card] = json.loads(server.get("/v1/models")[1])["data"]
    assert (card["architecture"], card["implementation"]) == ("Exaone4ForCausalLM", "transformers")
    health = json.loads(server.get("/health")[1])
    assert health["engine"]["implementation"] == "transformers"
    assert "Exaone4ForCausalLM is computed by transformers' code" in server.output()


def test_what_cannot_be_served_is_refused_in_a_sentence(tmp_path: Path) -> None:
    config = {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_layer": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(build_tokenizer().to_str())
    with pytest.raises(RuntimeError, match="quire serve ended") as ended:
        QuireServer(str(tmp_path), "--device", "cpu").start().wait_ready()
    said = str(ended.value)
    assert "BloomForCausalLM is not supported" in said
    assert "nor is it by transformers' code" in said
    assert "Traceback" not in said
