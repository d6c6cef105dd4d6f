"""Which files of a repository are downloaded."""

from __future__ import annotations

import json

import pytest

from service.hub.errors import NotServableError
from service.hub.wanted import WEIGHTS_INDEX, HubFile, check_servable, small_files, weight_files


def files(*names: str) -> list[HubFile]:
    return [HubFile(name, 1, "0" * 40) for name in names]


def names(found: list[HubFile]) -> list[str]:
    return [file.name for file in found]


NEEDED = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("chat_template.jinja", "additional_chat_templates/tool_use.jinja", "modules.json"),
    *("1_Pooling/config.json", WEIGHTS_INDEX),
)


def test_no_code_no_pickle_and_nothing_else_that_is_not_read() -> None:
    others = (
        *("modeling_own.py", "pytorch_model.bin", "model.pt", "README.md", ".gitattributes"),
        *("tokenizer.model", "original/config.json", "onnx/model.onnx", "model.safetensors"),
        *("consolidated.safetensors", "training_args.bin", "vocab.json", "a/tokenizer.json"),
    )
    assert names(small_files(files(*NEEDED, *others))) == list(NEEDED)


def index(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"w{n}": one for n, one in enumerate(shards)}}).encode()


def test_weights_are_the_only_file_or_those_of_the_index() -> None:
    single = files("model.safetensors", "consolidated.safetensors")
    assert names(weight_files("o/n", single, None)) == ["model.safetensors"]
    shards = ("a.safetensors", "b.safetensors")
    found = weight_files(
        "o/n", files(*shards, "model.safetensors"), index("b.safetensors", *shards)
    )
    assert names(found) == list(shards)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (index("pytorch_model.bin"), "names pytorch_model.bin, which is not a safetensors file"),
        (index("c.safetensors"), "names c.safetensors, which the repository does not have"),
        (b"{", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[]", "cannot be read"),
    ],
)
def test_an_index_that_leads_nowhere(content: bytes, said: str) -> None:
    there = files("pytorch_model.bin", "a.safetensors")
    with pytest.raises(NotServableError, match=said):
        weight_files("o/n", there, content)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (("model.gguf",), "only GGUF files, .* such as model.gguf, and start 'quire serve FILE"),
        (("model.safetensors",), "no config.json"),
        (("config.json", "tokenizer.model"), "no tokenizer.json"),
        (("config.json", "tokenizer.json", "pytorch_model.bin"), r"pickles \(pytorch_model.bin\)"),
        (("config.json", "tokenizer.json", "sub/model.pth"), r"pickles \(sub/model.pth\)"),
        (("config.json", "tokenizer.json", "adapter_config.json"), "an adapter"),
        (("config.json", "tokenizer.json"), "neither model.safetensors nor"),
    ],
)
def test_a_repository_that_cannot_be_served_is_refused(there: tuple[str, ...], said: str) -> None:
    with pytest.raises(NotServableError, match=said):
        check_servable("o/n", files(*there), weights=True)


@pytest.mark.parametrize("weights", ["model.safetensors", WEIGHTS_INDEX])
def test_one_that_can_is_not(weights: str) -> None:
    there = files("config.json", "tokenizer.json", "pytorch_model.bin", weights)
    check_servable("o/n", there, weights=True)


def test_random_weights_need_no_weights() -> None:
    check_servable("o/n", files("config.json", "tokenizer.json"), weights=False)
