"""A GGUF file's model directory is made once, and says what the original's says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from engine.architecture.errors import ModelError
from engine.gguf.names import LINK
from engine.gguf.part_names import parts_by_name
from engine.gguf.parts import read_gguf_header
from pocket import MODEL_DIR
from service.checkpoint.checkpoint import load_checkpoint
from service.gguf import directory
from service.gguf.directory import gguf_directory
from tests.engine.gguf.making import write_gguf

LOWER_CASE = {"type": "Lowercase"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return write_gguf(MODEL_DIR, folder / "pocket.gguf")


def without_tokenizer(path: Path) -> Path:
    """A file whose tokenizer only a ``tokenizer.json`` next to it describes."""
    reader = gguf.GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    writer = gguf.GGUFWriter(path.with_name("bare.gguf"), "qwen3")
    for name in ("context_length", "embedding_length", "feed_forward_length"):
        writer.add_uint32(f"qwen3.{name}", 64)
    writer.add_block_count(1)
    writer.add_uint32("qwen3.attention.head_count", 1)
    writer.add_float32("qwen3.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("of no known family")
    writer.add_token_list(tokens)
    embedding = next(each for each in reader.tensors if each.name == "token_embd.weight")
    writer.add_tensor("token_embd.weight", embedding.data)
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_name("bare.gguf")


def test_the_checkpoint_is_that_of_the_original(path: Path) -> None:
    found, original = load_checkpoint(gguf_directory(path)), load_checkpoint(MODEL_DIR)
    text = "<|im_start|>user\nWhat is 17 + 4?<|im_end|>\n"
    for checkpoint in (found, original):
        assert checkpoint.tokenizer.encode(text, add_special_tokens=False)[0] == 1
    assert found.tokenizer.encode(text, add_special_tokens=False) == original.tokenizer.encode(
        text, add_special_tokens=False
    )
    assert found.template is not None
    assert original.template is not None
    assert found.template.sources == original.template.sources
    assert found.special_tokens == original.special_tokens
    link = found.directory / "model.gguf"
    assert link.resolve() == path.resolve()


def test_a_directory_is_made_once_for_a_file_as_it_is(path: Path, tmp_path: Path) -> None:
    first = gguf_directory(path)
    made = (first / "config.json").stat().st_mtime_ns
    assert gguf_directory(path) == first
    link = tmp_path / "link.gguf"
    link.symlink_to(path)
    assert gguf_directory(link) == first
    assert (first / "config.json").stat().st_mtime_ns == made
    os.utime(path, ns=(1, 1))
    assert gguf_directory(path) != first
    # Nothing half made is left.
    assert all((each / "config.json").exists() for each in first.parent.iterdir())


def test_a_tokenizer_next_to_the_file_takes_precedence(path: Path) -> None:
    bare = without_tokenizer(path)
    with pytest.raises(ModelError, match="'of no known family' is not supported"):
        gguf_directory(bare)
    (bare.parent / "tokenizer.json").write_text((MODEL_DIR / "tokenizer.json").read_text())
    made = Tokenizer.from_file(str(gguf_directory(bare) / "tokenizer.json"))
    assert (
        made.get_vocab_size()
        == Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json")).get_vocab_size()
    )


def lower_case_tokenizer(folder: Path) -> None:
    whole = json.loads((MODEL_DIR / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"normalizer": LOWER_CASE}))


def normalizer_in(made: Path) -> object:
    return json.loads((made / "tokenizer.json").read_text())["normalizer"]


def test_a_tokenizer_may_be_next_to_a_link_or_to_its_file(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    link = folder / "link.gguf"
    link.symlink_to(path)
    from_keys = gguf_directory(link)
    assert normalizer_in(from_keys) is None
    lower_case_tokenizer(folder)
    assert normalizer_in(gguf_directory(link)) == LOWER_CASE
    assert gguf_directory(path) == from_keys
    (path.parent / "tokenizer.json").write_text((MODEL_DIR / "tokenizer.json").read_text())
    assert normalizer_in(gguf_directory(link)) == LOWER_CASE
    (folder / "tokenizer.json").unlink()
    assert gguf_directory(link) == gguf_directory(path) != from_keys


def test_a_tokenizer_may_be_next_to_the_links_of_several_files(parts: list[Path]) -> None:
    lower_case_tokenizer(parts[0].parent)
    link = parts[0].parent.parent / "link.gguf"
    link.symlink_to(parts[0])
    made = gguf_directory(parts[0])
    assert normalizer_in(made) == LOWER_CASE
    assert gguf_directory(link) == made


def test_the_tokenizer_of_another_model_is_refused(path: Path) -> None:
    whole = json.loads((MODEL_DIR / "tokenizer.json").read_text())
    vocabulary = whole["model"]["vocab"]
    first, second = list(vocabulary)[5:7]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (path.parent / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(ModelError, match="is the tokenizer of another model than"):
        gguf_directory(path)
    (path.parent / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="has no 'model'; correct or remove it"):
        gguf_directory(path)


def test_errors_are_sentences(tmp_path: Path, cache: Path, path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*none\.gguf: No such file"):
        gguf_directory(tmp_path / "none.gguf")
    (tmp_path / "wrong.gguf").write_bytes(b"something else")
    with pytest.raises(ModelError, match="it is not a GGUF file"):
        gguf_directory(tmp_path / "wrong.gguf")
    assert not any((cache / "quire" / "gguf").iterdir())
    (cache / "quire" / "gguf").chmod(0o777)
    with pytest.raises(ModelError, match=r"other users can write to .*; set XDG_CACHE_HOME"):
        gguf_directory(path)


def test_another_form_of_the_files_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = gguf_directory(path)
    monkeypatch.setattr(directory, "_FORM", directory._FORM + 1)
    assert gguf_directory(path) != first


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """As in the hub's cache: links to files that are called otherwise."""
    folder, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    folder.mkdir()
    blobs.mkdir()
    first = write_gguf(MODEL_DIR, folder / "pocket.gguf", most_tensors=40)
    found = parts_by_name(first)
    for number, part in enumerate(found):
        part.rename(blobs / str(number))
        part.symlink_to(blobs / str(number))
    return found


def test_the_directory_of_a_model_in_several_files_leads_to_all(
    parts: list[Path], path: Path
) -> None:
    assert len(parts) == 3
    made = gguf_directory(parts[0])
    assert gguf_directory(parts[0]) == made
    link = parts[0].parent.parent / "link.gguf"
    link.symlink_to(parts[0])
    assert gguf_directory(link) == made
    found, whole = (read_gguf_header(each / LINK) for each in (made, gguf_directory(path)))
    assert found.tensors.keys() == whole.tensors.keys()
    assert {each.path.name for each in found.tensors.values()} == {
        LINK,
        *(part.name for part in parts[1:]),
    }


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_change_of_any_part_makes_another_directory(parts: list[Path], number: int) -> None:
    first = gguf_directory(parts[0])
    os.utime(parts[number], ns=(1, 1))
    second = gguf_directory(parts[0])
    assert second != first
    target = parts[number].resolve()
    target.rename(target.with_name("moved"))
    if number:
        with pytest.raises(ModelError, match=f"{parts[number].name} is missing; put all of them"):
            gguf_directory(parts[0])
    parts[number].unlink()
    parts[number].symlink_to(target.with_name("moved"))
    assert gguf_directory(parts[0]) not in (first, second)


def test_a_later_part_is_refused(parts: list[Path]) -> None:
    with pytest.raises(ModelError, match=r"is part 2 of 3 .*; name the first one, pocket-00001-of"):
        gguf_directory(parts[1])
