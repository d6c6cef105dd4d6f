"""A model in several files is the same as in one, and what does not belong together is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine.architecture.errors import ModelError
from engine.cpu.library import LibraryUnavailableError, library
from engine.gguf.config import config_json
from engine.gguf.part_names import MAX_PARTS, parts_by_name
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.directories import all_logits, directory_of
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf
from tests.engine.tiny_models import VOCABULARY, Variant, save_model

TOKENS = torch.randint(VOCABULARY, (40,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("llama", "Q4_0"), ("qwen3", "Q8_0"), ("phi3_long", "F32"), ("mixtral", "Q4_0")],
)
def test_logits_of_parts_of_one_tensor_are_those_of_the_whole_to_the_bit(
    name: str, kind: str, tmp_path: Path
) -> None:
    """Query, key and value, or gate and up, are one matrix, of which each then is in another file;
    value is of another type."""
    try:
        library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    save_model(FAMILY_FILES[name], tmp_path / "original")
    values = [f"model.layers.{layer}.self_attn.v_proj.weight" for layer in range(2)]
    kinds = dict.fromkeys(values, "Q8_0") if kind == "Q4_0" else {}
    whole, apart = (
        directory_of(
            write_gguf(
                tmp_path / "original",
                tmp_path / f"{label}.gguf",
                kind,
                kinds=kinds,
                tokenizer=False,
                most_tensors=most,
            )
        )
        for label, most in (("whole", 0), ("apart", 1))
    )
    assert len(list(tmp_path.glob("apart-*-of-*.gguf"))) > 20
    assert (apart / "config.json").read_text() == (whole / "config.json").read_text()
    for compiled in (False, True):
        expected = all_logits(whole, TOKENS, compiled=compiled)
        assert torch.equal(all_logits(apart, TOKENS, compiled=compiled), expected)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The first of three files."""
    return split(tmp_path / "tiny.gguf", ["a", "b", "c"])


def split(path: Path, names: list[str], *, values: float = 1.0) -> Path:
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=1)
    writer.add_string("tokenizer.ggml.model", "none")
    for name in names:
        writer.add_tensor(name, np.full(8, values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_name(f"{path.stem}-00001-of-{len(names):05d}.gguf")


def part(first: Path, number: int) -> Path:
    return parts_by_name(first)[number - 1]


def rewritten(path: Path, **keys: float | str) -> None:
    """Change the values of ``split`` keys, which are 16 bits, or 32 of the number of tensors."""
    data = path.read_bytes()
    for name, value in keys.items():
        key = f"split.{name.replace('_', '.')}".encode()
        kind, size = (b"\x05", 4) if name == "tensors_count" else (b"\x02", 2)
        at = data.index(key + kind + bytes(3)) + len(key) + 4
        assert isinstance(value, int)
        data = data[:at] + value.to_bytes(size, "little", signed=value < 0) + data[at + size :]
    path.write_bytes(data)


def test_the_header_has_the_keys_of_the_first_and_the_tensors_of_all(first: Path) -> None:
    header = read_gguf_header(first)
    assert header.path == first
    assert header.keys["tokenizer.ggml.model"] == "none"
    assert {name: each.path for name, each in header.tensors.items()} == {
        name: part(first, number) for number, name in enumerate("abc", 1)
    }


def test_the_first_may_have_no_tensors(tmp_path: Path) -> None:
    save_model(FAMILY_FILES["llama"], tmp_path / "original")
    path = write_gguf(
        *(tmp_path / "original", tmp_path / "t.gguf"),
        tokenizer=False,
        most_tensors=7,
        keys_apart=True,
    )
    whole = write_gguf(tmp_path / "original", tmp_path / "whole.gguf", tokenizer=False)
    header = read_gguf_header(path)
    assert path not in {each.path for each in header.tensors.values()}
    assert config_json(header) == config_json(read_gguf_header(whole))


def test_parts_are_found_through_links(first: Path, tmp_path: Path) -> None:
    """In the hub's cache each name is a link to a file that is called otherwise."""
    cache, made = tmp_path / "cache", tmp_path / "made"
    cache.mkdir()
    made.mkdir()
    for number, each in enumerate(parts_by_name(first)):
        (cache / str(number)).write_bytes(each.read_bytes())
        each.unlink()
        each.symlink_to(Path("cache", str(number)))
    (made / "relative.gguf").symlink_to(Path("..", first.name))
    (made / "model.gguf").symlink_to("relative.gguf")
    assert {*read_gguf_header(made / "model.gguf").tensors} == {*"abc"}


def _remove(first: Path) -> None:
    part(first, 2).unlink()


def _exchange(first: Path) -> None:
    shutil.copy(part(first, 3), part(first, 2))


def _of_four(first: Path) -> None:
    split(first.with_name("four.gguf"), ["e", "f", "g", "h"])
    shutil.copy(first.with_name("four-00002-of-00004.gguf"), part(first, 2))


def _of_another(first: Path) -> None:
    split(first.with_name("other.gguf"), ["a", "c", "d"])
    shutil.copy(first.with_name("other-00002-of-00003.gguf"), part(first, 2))


def _unsplit(first: Path) -> None:
    writer = gguf.GGUFWriter(part(first, 2), "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _more(first: Path) -> None:
    for path in parts_by_name(first):
        rewritten(path, tensors_count=4)


def _fewer(first: Path) -> None:
    for path in parts_by_name(first):
        rewritten(path, tensors_count=2)


def _another_total(first: Path) -> None:
    rewritten(part(first, 3), tensors_count=4)


def _negative(first: Path) -> None:
    rewritten(first, tensors_count=-1)


def _too_many(first: Path) -> None:
    rewritten(first, count=MAX_PARTS + 1)


def _no_number(first: Path) -> None:
    rewritten(first, no=3)


def _other_count(first: Path) -> None:
    rewritten(first, count=2)


def _cut(first: Path) -> None:
    with part(first, 3).open("r+b") as file:
        file.truncate(part(first, 3).stat().st_size - 40)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            _remove,
            "{first} is the first of 3 files (split.count), and tiny-00002-of-00003.gguf is "
            "missing; put all of them into one folder",
        ),
        (_exchange, "{second}: split.no is 2, and next to {name} it must be 1; download the parts"),
        (_of_four, "{second}: split.count is 4, and next to {name} it must be 3; download the"),
        (_of_another, "{third}: tensor 'c' is in tiny-00002-of-00003.gguf, too; download the"),
        (_unsplit, "{second} has no split.no"),
        (_more, "{first}: split.tensors.count is 4, and its 3 files have 3; download the parts"),
        (_fewer, "{third}: the files up to this one have 3 tensors, and split.tensors.count is 2;"),
        (_another_total, "{third}: split.tensors.count is 4, and next to {name} it must be 3; d"),
        (_negative, "{first}: split.tensors.count must be an integer from 1 to 65536, not -1"),
        (_too_many, "{first}: split.count must be an integer from 0 to 512, not 513"),
        (_no_number, "{first}: split.no must be an integer from 0 to 2, not 3"),
        (
            _other_count,
            "{first} is the first of 2 files (split.count), which are found by their names; call "
            "it tiny-00001-of-00002.gguf, and the others likewise",
        ),
        (_cut, "cannot read {third}: tensor 'c' ends at byte"),
    ],
)
def test_what_does_not_belong_together_is_named(
    damage: Callable[[Path], None], says: str, first: Path
) -> None:
    damage(first)
    with pytest.raises(ModelError) as caught:
        read_gguf_header(first)
    names = {"second": part(first, 2), "third": part(first, 3)}
    assert says.format(first=first, name=first.name, **names) in str(caught.value)


def test_the_first_is_to_be_named(first: Path) -> None:
    says = r"3.gguf is part 3 of 3 \(split.no is 2\); name the first one, tiny-00001-of-00003.gguf$"
    with pytest.raises(ModelError, match=says):
        read_gguf_header(part(first, 3))
    renamed = first.with_name("later.gguf")
    part(first, 2).rename(renamed)
    with pytest.raises(ModelError, match=r"part 2 of 3 \(split.no is 1\); name the first one$"):
        read_gguf_header(renamed)


@pytest.mark.parametrize("name", ["first.gguf", "tiny-00002-of-00003.gguf"])
def test_the_first_must_be_called_so(name: str, first: Path) -> None:
    first.rename(first.with_name(name))
    stem = "first" if name == "first.gguf" else "tiny"
    with pytest.raises(ModelError, match=f"call it {stem}-00001-of-00003.gguf, and the others"):
        read_gguf_header(first.with_name(name))


@pytest.mark.parametrize("count", [0, 1])
def test_a_file_that_says_it_is_whole_is(count: int, first: Path) -> None:
    """Of parts that were merged the count is 0."""
    rewritten(first, count=count)
    assert {*read_gguf_header(first).tensors} == {"a"}


def test_a_file_that_is_only_called_a_part_is_whole(tmp_path: Path) -> None:
    save_model(Variant("llama"), tmp_path)
    path = write_gguf(tmp_path, tmp_path / "tiny-00002-of-00007.gguf", tokenizer=False)
    assert "token_embd.weight" in read_gguf_header(path).tensors
