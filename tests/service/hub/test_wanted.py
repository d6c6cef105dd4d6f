"""Which files of a repository are downloaded."""

from __future__ import annotations

import json
import re

import pytest

from service.hub.errors import NotServableError
from service.hub.wanted import (
    WEIGHTS_INDEX,
    HubFile,
    check_servable,
    gguf_files,
    small_files,
    weight_files,
)


def files(*names: str) -> list[HubFile]:
    return [HubFile(name, 1, "0" * 40) for name in names]


def names(found: list[HubFile]) -> list[str]:
    return [file.name for file in found]


NEEDED = (
    *(
        "config.json",
        *("hf_quant_config.json", "quantize_config.json", "quant_config.json"),
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ),
    *("chat_template.jinja", "additional_chat_templates/tool_use.jinja", "modules.json"),
    *("processor_config.json", "chat_template.json"),
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


def test_weights_are_the_single_file_or_those_of_the_index() -> None:
    single = files("model.safetensors", "consolidated.safetensors")
    assert names(weight_files("o/n", single, None)) == ["model.safetensors"]
    shards = ("a.safetensors", "b.safetensors")
    stale = index("b.safetensors", *shards)
    assert names(weight_files("o/n", files(*shards), stale)) == list(shards)
    both = files(*shards, "model.safetensors")
    assert names(weight_files("o/n", both, stale)) == ["model.safetensors"]


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
        (("model.gguf",), "only in GGUF files: name one, .* it has model.gguf"),
        (("model.gguf", "config.json"), "only in GGUF files: name one"),
        (("model.gguf", "config.json", "tokenizer.json"), "only in GGUF files: name one"),
        (("model.safetensors",), "no config.json"),
        (("config.json", "tokenizer.model"), "no tokenizer.json"),
        (
            ("config.json", "tokenizer.model", "model.safetensors", "a.gguf"),
            "no tokenizer.json",
        ),
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
    there = files("config.json", "tokenizer.json", "pytorch_model.bin", "a.gguf", weights)
    check_servable("o/n", there, weights=True)


def test_random_weights_need_no_weights() -> None:
    check_servable("o/n", files("config.json", "tokenizer.json", "a.gguf"), weights=False)
    with pytest.raises(NotServableError, match="only in GGUF files"):
        check_servable("o/n", files("config.json", "a.gguf"), weights=False)


QUANTIZED = files(
    *("README.md", "config.json", "model-Q4_K_M.gguf", "model-IQ4_XS.gguf", "model.Q8_0.gguf"),
    *("BF16/model-BF16.gguf", "mmproj-model-F16.gguf", "imatrix.dat"),
    *("Q6_K/model-Q6_K-00001-of-00002.gguf", "Q6_K/model-Q6_K-00002-of-00002.gguf"),
    *("small-Q5_0.gguf", "large-Q5_0.gguf"),
)


@pytest.mark.parametrize(
    ("variant", "found"),
    [
        ("Q4_K_M", "model-Q4_K_M.gguf"),
        ("q8_0", "model.Q8_0.gguf"),
        ("XS", "model-IQ4_XS.gguf"),
        ("BF16", "BF16/model-BF16.gguf"),
        ("small-Q5_0", "small-Q5_0.gguf"),
        ("large-Q5_0.gguf", "large-Q5_0.gguf"),
    ],
)
def test_a_gguf_file_is_chosen_by_the_end_of_its_name(variant: str, found: str) -> None:
    assert names(gguf_files("o/n", QUANTIZED, variant)) == [found]


SPLIT = files(
    *("big-Q6_K-00003-of-00003.gguf", "big-Q6_K-00001-of-00003.gguf"),
    *("big-Q6_K-00002-of-00003.gguf", "big-Q8_0-00001-of-00002.gguf"),
    *("small-Q6_K-00001-of-00001.gguf", "UD/big-Q2_K-00001-of-00002.gguf"),
    *("UD/big-Q2_K-00002-of-00002.gguf", "mmproj-big-Q2_K.gguf"),
)


@pytest.mark.parametrize(
    "variant", ["big-q6_k", "big-Q6_K-00001-of-00003", "big-Q6_K-00001-of-00003.gguf"]
)
def test_all_parts_of_a_gguf_model_are_wanted_in_their_order(variant: str) -> None:
    found = gguf_files("o/n", SPLIT, variant)
    assert names(found) == [f"big-Q6_K-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


def test_parts_may_be_in_a_folder() -> None:
    found = ["UD/big-Q2_K-00001-of-00002.gguf", "UD/big-Q2_K-00002-of-00002.gguf"]
    assert names(gguf_files("o/n", SPLIT, "Q2_K")) == found
    assert names(gguf_files("o/n", QUANTIZED, "Q6_K"))[0] == "Q6_K/model-Q6_K-00001-of-00002.gguf"


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("Q8_0", "'o/n' lacks big-Q8_0-00002-of-00002.gguf, a part of the model in 2 files;"),
        ("Q6_K", "match 'Q6_K': big-Q6_K-00001-of-00003.gguf, small-Q6_K-00001-of-00001.gguf; "),
        (
            "Q4_0",
            "it has UD/big-Q2_K-00001-of-00002.gguf, big-Q6_K-00001-of-00003.gguf, big-Q8_0-00001",
        ),
    ],
)
def test_each_model_in_several_files_is_named_once(variant: str, said: str) -> None:
    with pytest.raises(NotServableError, match=re.escape(said)):
        gguf_files("o/n", SPLIT, variant)


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("F16", "no GGUF file of 'o/n' matches 'F16'; it has BF16/model-BF16.gguf, "),
        ("4_K_M", "no GGUF file of 'o/n' matches '4_K_M'"),
        ("Q5_0", "'o/n' match 'Q5_0': large-Q5_0.gguf, small-Q5_0.gguf; give the rest of the name"),
    ],
)
def test_what_names_no_gguf_file_or_several_is_said(variant: str, said: str) -> None:
    with pytest.raises(NotServableError, match=re.escape(said)):
        gguf_files("o/n", QUANTIZED, variant)


FOLDERS = files("Q4_0/model.gguf", "Q8_0/model.gguf", "o-UD-Q2_K/model-00001-of-00001.gguf")
TWINS = files("Pocket-Q4_0.gguf", "pocket-q4_0.gguf", "x-Pocket-Q4_0.gguf")
SAME = files("a/Q4_0/model.gguf", "b/Q4_0/model.gguf")


@pytest.mark.parametrize(
    ("there", "variant", "found"),
    [
        (FOLDERS, "Q8_0", "Q8_0/model.gguf"),
        (FOLDERS, "q4_0", "Q4_0/model.gguf"),
        (FOLDERS, "Q2_K", "o-UD-Q2_K/model-00001-of-00001.gguf"),
        (files("Q8_0/model.gguf", "model-q8_0.gguf"), "Q8_0", "model-q8_0.gguf"),
        (TWINS, "q4_0", "pocket-q4_0.gguf"),
        (TWINS, "Pocket-Q4_0.gguf", "Pocket-Q4_0.gguf"),
    ],
    ids=["folder", "case-of-folder", "end-of-folder", "name-before-folder", "case", "exact-name"],
)
def test_a_gguf_file_is_chosen_by_its_folder_or_its_case(
    there: list[HubFile], variant: str, found: str
) -> None:
    assert names(gguf_files("o/n", there, variant)) == [found]


@pytest.mark.parametrize(
    ("there", "variant", "said"),
    [
        (FOLDERS, "model.gguf", "give the rest of the name, or its folder's, as in 'o/n:Q4_0'"),
        (TWINS, "Q4_0", "as in 'o/n:Pocket-Q4_0.gguf'"),
        (SAME, "Q4_0", "; download the one you want and serve its path"),
    ],
    ids=["folders", "twins", "same"],
)
def test_the_way_out_leads_to_one_file(there: list[HubFile], variant: str, said: str) -> None:
    with pytest.raises(NotServableError, match=re.escape(said)):
        gguf_files("o/n", there, variant)


def test_a_repository_without_gguf_files_has_no_variants() -> None:
    with pytest.raises(NotServableError, match="has no GGUF file; leave out ':Q4_0'"):
        gguf_files("o/n", files("config.json", "model.safetensors"), "Q4_0")


def test_many_gguf_files_are_not_all_listed() -> None:
    many = files(*(f"model-{number:02}.gguf" for number in range(40)))
    with pytest.raises(NotServableError, match=r"model-11\.gguf and 28 more"):
        gguf_files("o/n", many, "Q4_0")
