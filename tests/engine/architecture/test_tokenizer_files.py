"""What a directory's tokenizer files say together. Where transformers can be asked, it agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.pre_tokenizers import ByteLevel

from engine.architecture.errors import ConfigError
from engine.architecture.tokenizer_files import named_end, read_tokenizer, special_tokens, token_ids

LETTERS = {letter: number for number, letter in enumerate("<>aehilnost")}
NEXT = len(LETTERS) + 1  # after the only added token


def written(folder: Path, **files: Any) -> Path:
    """Write a tokenizer with the added token <s>, and JSON files next to it."""
    tokenizer = Tokenizer(BPE(LETTERS, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}} | files
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def decoder(*tokens: tuple[int, str], **fields: Any) -> dict[str, Any]:
    added = {str(number): {"content": text, "special": True} for number, text in tokens}
    return {**fields, "added_tokens_decoder": added}


def encoded(folder: Path, text: str) -> list[int]:
    ids: list[int] = Tokenizer.from_str(read_tokenizer(folder)).encode(text).ids
    return ids


def test_special_tokens_come_from_the_map_unless_the_configuration_lists_its_tokens(
    tmp_path: Path,
) -> None:
    both = {"bos_token": "<s>", "eos_token": {"content": "<end>"}, "pad_token": None}
    old = {"bos_token": "a", "unk_token": "e"}
    written(tmp_path, tokenizer_config=old, special_tokens_map=both)
    assert special_tokens(tmp_path) == {"bos_token": "<s>", "eos_token": "<end>", "unk_token": "e"}
    written(tmp_path, tokenizer_config=decoder(**old), special_tokens_map=both)
    assert special_tokens(tmp_path) == old
    assert special_tokens(tmp_path / "nothing") == {}


SAVED = {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": False}


@pytest.mark.parametrize(
    ("files", "texts"),
    [
        ({"tokenizer_config": {"extra_special_tokens": {"turn": "<s>"}}}, {"turn": "<s>"}),
        ({"tokenizer_config": {"extra_special_tokens": {"turn": SAVED}}}, {"turn": "<s>"}),
        ({"tokenizer_config": {"model_specific_special_tokens": {"turn": SAVED}}}, {"turn": "<s>"}),
        ({"tokenizer_config": {"image_token": "<s>"}}, {"image_token": "<s>"}),
        ({"tokenizer_config": {"image_token": SAVED, "x": "a"}}, {"image_token": "<s>"}),
        ({"tokenizer_config": {"mask_token": "<s>", "add_eos_token": True}}, {"mask_token": "<s>"}),
        ({"special_tokens_map": {"extra_special_tokens": {"turn": "<s>"}}}, {"turn": "<s>"}),
        ({"special_tokens_map": {"image_token": "<s>"}}, {"image_token": "<s>"}),
        (
            {
                "tokenizer_config": {
                    "bos_token": "a",
                    "image_token": "e",
                    "extra_special_tokens": {"bos_token": "<s>", "image_token": "<s>"},
                }
            },
            {"bos_token": "<s>", "image_token": "<s>"},
        ),
    ],
)
def test_tokens_that_only_one_model_names_are_named_as_in_transformers(
    tmp_path: Path, files: dict[str, Any], texts: dict[str, str]
) -> None:
    transformers = pytest.importorskip("transformers")
    written(tmp_path, **files)
    assert special_tokens(tmp_path) == texts
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).special_tokens_map == texts


@pytest.mark.parametrize(
    "files",
    [
        {
            "tokenizer_config": {"extra_special_tokens": {"turn": "<hi>"}},
            "added_tokens": {"<hi>": NEXT},
        },
        {"tokenizer_config": {"mask_token": "<hi>"}, "added_tokens": {"<hi>": NEXT}},
        {
            "tokenizer_config": {
                "image_token": "<hi>",
                "added_tokens_decoder": {str(NEXT): {"content": "<hi>", "special": False}},
            }
        },
    ],
)
def test_a_named_token_is_special_as_in_transformers(tmp_path: Path, files: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    written(tmp_path, **files)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path).added_tokens_decoder[NEXT]
    ours = Tokenizer.from_str(read_tokenizer(tmp_path)).get_added_tokens_decoder()[NEXT]
    assert ours.special
    assert (ours.special, ours.normalized) == (theirs.special, theirs.normalized)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": decoder((NEXT + 1, "<hello>"), (NEXT, "<hi>"))},
        {"added_tokens": {"<hello>": NEXT + 1, "<hi>": NEXT}},
        {
            "added_tokens": {"<hello>": NEXT + 1, "<hi>": NEXT, "<s>": NEXT - 1},
            "special_tokens_map": {"additional_special_tokens": ["<hi>"]},
        },
    ],
)
def test_tokens_that_only_other_files_add_are_tokens_as_in_transformers(
    tmp_path: Path, files: dict[str, Any]
) -> None:
    transformers = pytest.importorskip("transformers")
    written(tmp_path, **files)
    ids = encoded(tmp_path, "<hi>hello<hello><s>")
    assert [ids[0], *ids[-2:]] == [NEXT, NEXT + 1, NEXT - 1]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("<hi>hello<hello><s>", add_special_tokens=False).input_ids == ids


def test_a_token_of_the_vocabulary_can_be_made_an_added_one(tmp_path: Path) -> None:
    written(tmp_path, added_tokens={"a": LETTERS["a"], "<hi>": NEXT})
    added = json.loads(read_tokenizer(tmp_path))["added_tokens"]
    assert [(token["id"], token["content"]) for token in added] == [
        (NEXT - 1, "<s>"),
        (LETTERS["a"], "a"),
        (NEXT, "<hi>"),
    ]


def test_a_file_that_lacks_nothing_is_left_as_it_is(tmp_path: Path) -> None:
    written(tmp_path, added_tokens={"<s>": NEXT - 1})
    assert read_tokenizer(tmp_path) == (tmp_path / "tokenizer.json").read_text()


@pytest.mark.parametrize("config", [{}, {"text_config": {"vocab_size": NEXT}}])
def test_tokens_beyond_the_models_table_are_not_added(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    written(tmp_path, added_tokens={"[PAD]": NEXT}, config={"vocab_size": NEXT, **config})
    assert "[PAD]" not in read_tokenizer(tmp_path)


@pytest.mark.parametrize("number", [LETTERS["h"], NEXT + 1])
def test_a_token_that_cannot_have_its_id_is_refused_by_name_if_it_is_special(
    tmp_path: Path, number: int
) -> None:
    written(tmp_path, added_tokens={"<hi>": number})
    assert read_tokenizer(tmp_path) == (tmp_path / "tokenizer.json").read_text()
    special = {"additional_special_tokens": ["<hi>"]}
    written(tmp_path, added_tokens={"<hi>": number}, special_tokens_map=special)
    with pytest.raises(ConfigError, match=rf"lacks the token '<hi>'.* the id {number}"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens": {"<hi>": "1"}},
        {"tokenizer_config": {"added_tokens_decoder": {"x": {"content": "<hi>"}}}},
        {"tokenizer_config": {"added_tokens_decoder": {"1": "<hi>"}}},
        {"tokenizer_config": {"added_tokens_decoder": []}},
        {"tokenizer_config": {"added_tokens_decoder": {"1" * 5000: {"content": "<hi>"}}}},
    ],
)
def test_unusable_declarations_are_refused(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_tokenizer(written(tmp_path, **files))


@pytest.mark.parametrize(
    ("end", "files", "number"),
    [
        ("<s>", {}, NEXT - 1),  # an added token
        ("t", {}, LETTERS["t"]),  # one of the vocabulary
        ("<hi>", {"added_tokens": {"<hi>": NEXT}}, NEXT),
        ("<no>", {}, None),
        (None, {}, None),
    ],
)
def test_the_end_token_is_found_wherever_it_stands(
    tmp_path: Path, end: str | None, files: dict[str, Any], number: int | None
) -> None:
    written(tmp_path, tokenizer_config={"eos_token": end}, **files)
    assert named_end(tmp_path) == number


def test_the_end_token_of_a_vocabulary_with_scores(tmp_path: Path) -> None:
    written(tmp_path, tokenizer_config={"eos_token": "</s>"})
    Tokenizer(Unigram([("<unk>", 0.0), ("a", -1.5), ("</s>", 0.0)], 0)).save(
        str(tmp_path / "tokenizer.json")
    )
    assert named_end(tmp_path) == 2


def test_without_a_tokenizer_no_end_is_named_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    written(tmp_path, tokenizer_config={"eos_token": "</s>"})
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="is not a tokenizer"):
        named_end(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert named_end(tmp_path) is None


def test_all_ids_are_those_of_the_vocabulary_and_of_added_tokens(tmp_path: Path) -> None:
    assert token_ids(tmp_path) == set()
    written(tmp_path, added_tokens={"<hi>": NEXT})
    assert token_ids(tmp_path) == {*range(NEXT + 1)}
