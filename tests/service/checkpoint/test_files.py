"""Small files of a model that cannot be used are named with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pocket import MODEL_DIR
from service.checkpoint.files import CheckpointError, files_problem, read_json, template_file
from tests.service.tiny_checkpoint import write_tiny_checkpoint


def test_sound_files_have_no_problem(tmp_path: Path) -> None:
    assert files_problem(write_tiny_checkpoint(tmp_path)) == ""
    assert files_problem(MODEL_DIR) == ""


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("tokenizer.json", b'{"model": {"vocab": {"a', "it is not valid JSON: "),
        ("tokenizer.json", b"[]", "it does not hold a JSON object"),
        ("tokenizer_config.json", b"[]", "it does not hold a JSON object"),
        ("tokenizer_config.json", b"{", "it is not valid JSON: "),
        ("generation_config.json", b"\xff", "it is not UTF-8 at byte 0"),
        ("generation_config.json", b"[" * 100_000, "it is nested too deeply"),
        ("response_template.json", b"3", "it does not hold a JSON object"),
        ("processor_config.json", b"3", "it does not hold a JSON object"),
        ("chat_template.jinja", b"a\n{% for x in %}", "the chat template does not parse: "),
        ("chat_template.jinja", b"a\xff", "it is not UTF-8 at byte 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    file: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    directory = write_tiny_checkpoint(tmp_path)
    (directory / file).write_bytes(content)
    assert files_problem(directory).startswith(f"{file}: {reason}")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"decoder": None}, "the tokenizer's decoder (none) is not supported; "),
        ({"decoder": {"type": "CTC"}}, "the tokenizer's decoder (CTC) is not supported; "),
        (
            {"decoder": {"type": "Sequence", "decoders": [{"type": "Nope"}, {"type": "Fuse"}]}},
            "the tokenizer's decoder (Fuse, Nope) is not supported; ",
        ),
        ({"decoder": {"prefix": "##"}}, "its decoder is not in any known form"),
        ({"decoder": "ByteLevel"}, "its decoder is not in any known form"),
        (
            {"model": {"type": "Nope"}},
            "the type of its model is 'Nope', not one of BPE, Unigram, WordLevel, WordPiece",
        ),
        ({"model": None}, "its model cannot be read: "),
    ],
    ids=["none", "ctc", "steps", "typeless", "text", "model", "no-model"],
)
def test_a_tokenizer_of_an_unsupported_kind_is_refused_with_the_reason(
    parts: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = write_tiny_checkpoint(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    assert files_problem(tmp_path).startswith(f"tokenizer.json: {reason}")


def test_a_tokenizer_whose_model_has_no_type_is_accepted(tmp_path: Path) -> None:
    """As GPT-2's own."""
    path = write_tiny_checkpoint(tmp_path) / "tokenizer.json"
    fields = json.loads(path.read_text())
    del fields["model"]["type"]
    path.write_text(json.dumps(fields))
    assert files_problem(tmp_path) == ""


def test_of_two_templates_the_broken_one_is_named(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path)
    (directory / "chat_template.jinja").write_text("sound", encoding="utf-8")
    tool_use = directory / "additional_chat_templates" / "tool_use.jinja"
    tool_use.parent.mkdir()
    tool_use.write_text("{% for x in %}", encoding="utf-8")
    assert files_problem(directory).startswith("additional_chat_templates/tool_use.jinja: ")


def test_the_line_of_an_error_in_a_template_is_given(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path)
    (directory / "chat_template.jinja").write_text("a\n{% for x in %}", encoding="utf-8")
    assert files_problem(directory).endswith("(line 2)")


@pytest.mark.parametrize("entry", [{"template": "x"}, {"name": 3, "template": "x"}, "x"])
def test_a_template_of_a_list_needs_a_name(entry: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^tokenizer_config\.json: an entry of"):
        template_file(tmp_path, {"chat_template": [entry]})


def test_a_file_that_is_absent_is_an_empty_object(tmp_path: Path) -> None:
    assert read_json(tmp_path, "tokenizer_config.json") == {}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"a": 1}), encoding="utf-8")
    assert read_json(tmp_path, "tokenizer_config.json") == {"a": 1}


def test_constants_of_a_template_are_not_evaluated(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path)
    source = "{{ 10 ** 10 ** 10 }}{{ " + "1" * 5000 + " }}"
    (directory / "chat_template.jinja").write_text(source, encoding="utf-8")
    assert files_problem(directory) == ""
