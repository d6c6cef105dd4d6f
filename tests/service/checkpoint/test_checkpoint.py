"""What a model directory says: tokenizer, chat template, sampling defaults and output format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pocket
from service.checkpoint.call_style import CallStyle, CallStyles
from service.checkpoint.checkpoint import load_checkpoint
from service.checkpoint.defaults import SamplingDefaults
from service.checkpoint.files import CheckpointError
from service.checkpoint.probe import ProbedTemplate
from service.formats import ReasoningTags, named_format
from tests.service.tiny_model import write_tiny_model


@pytest.mark.parametrize(
    "declared",
    [
        "{{ 'one' }}",
        [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ 'one' }}"}],
    ],
    ids=["a string", "a list"],
)
def test_the_template_may_be_in_the_tokenizer_config(declared: Any, tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    (directory / "chat_template.jinja").unlink()
    config = {"chat_template": declared, "eos_token": {"content": "<|im_end|>"}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    checkpoint = load_checkpoint(directory)
    assert checkpoint.template is not None
    assert checkpoint.template.render([]) == "one"
    assert checkpoint.special_tokens == {"eos_token": "<|im_end|>"}


def test_special_and_added_tokens_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    """As in checkpoints that older releases of transformers saved."""
    size = len(load_checkpoint(write_tiny_model(tmp_path / "model")).vocabulary.token_text)
    directory = model(
        tmp_path,
        tokenizer_config={"chat_template": "{{ bos_token }}<note>{{ eos_token }}"},
        special_tokens_map={"bos_token": "<note>", "eos_token": {"content": "<|im_end|>"}},
        added_tokens={"<note>": size},
        config={},
    )
    (directory / "chat_template.jinja").unlink()
    checkpoint = load_checkpoint(directory)
    assert checkpoint.template is not None
    assert checkpoint.template.render([]) == "<note><note><|im_end|>"
    ids = checkpoint.tokenizer.encode("<note>", add_special_tokens=False)
    assert (ids, checkpoint.tokenizer.token_id("<note>")) == ([size], size)


def test_a_field_that_is_no_token_is_not_shown_as_one(tmp_path: Path) -> None:
    named = {"use_auth_token": "hf_secret", "image_token": "<|im_start|>", "bos_token": "<no>"}
    named["mark_token"] = "a"  # of the vocabulary, not an added one
    checkpoint = load_checkpoint(model(tmp_path, tokenizer_config=named))
    del named["use_auth_token"]
    assert checkpoint.special_tokens == named


def test_named_tokens_of_this_model_are_variables_of_its_template(tmp_path: Path) -> None:
    named = {"extra_special_tokens": {"turn_token": "<|im_start|>"}, "mask_token": "<|im_end|>"}
    directory = model(tmp_path, tokenizer_config=named)
    (directory / "chat_template.jinja").write_text("{{ turn_token }}user{{ mask_token }}")
    checkpoint = load_checkpoint(directory)
    assert checkpoint.template is not None
    assert checkpoint.template.render([]) == "<|im_start|>user<|im_end|>"


def test_a_special_tokens_map_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"special_tokens_map\.json"):
        load_checkpoint(model(tmp_path, special_tokens_map=[]))


def test_templates_are_chosen_in_the_order_of_transformers(tmp_path: Path) -> None:
    """Its tokenizers read the last two, its processors the first three."""
    named = {"default": "{{ 'processor' }}", "tool_use": "{{ 'tools' }}"}
    declared = {
        "processor_config": {"size": 3, "chat_template": named},
        "chat_template": {"chat_template": "{{ 'older' }}"},
        "tokenizer_config": {"chat_template": "{{ 'tokenizer' }}"},
    }
    directory = model(tmp_path, **declared)
    (directory / "chat_template.jinja").write_text("{{ 'file' }}")
    found = []
    for name in ("processor_config.json", "chat_template.json", "chat_template.jinja"):
        template = load_checkpoint(directory).template
        assert template is not None
        found.append(template.render([]))
        assert len(template.sources) == (2 if name == "processor_config.json" else 1)
        (directory / name).unlink()
    template = load_checkpoint(directory).template
    assert template is not None
    assert [*found, template.render([])] == ["processor", "older", "file", "tokenizer"]


def test_a_tool_template_next_to_the_embedded_models_own_is_not_trusted(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    own = (pocket.MODEL_DIR / "chat_template.jinja").read_text(encoding="utf-8")
    (directory / "chat_template.jinja").write_text(own, encoding="utf-8")
    assert load_checkpoint(directory).has_own_template
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates/tool_use.jinja").write_text("x", encoding="utf-8")
    assert not load_checkpoint(directory).has_own_template


def model(directory: Path, **files: Any) -> Path:
    """A tiny model with these JSON files, ``.json`` left out of their names."""
    write_tiny_model(directory)
    for name, value in files.items():
        (directory / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return directory


def test_sampling_defaults_are_the_generation_configs(tmp_path: Path) -> None:
    config = {"do_sample": False, "temperature": 0.7, "top_k": 20, "eos_token_id": [1, 2]}
    defaults = load_checkpoint(model(tmp_path, generation_config=config)).defaults
    assert defaults == SamplingDefaults(do_sample=False, temperature=0.7, top_k=20)
    (tmp_path / "generation_config.json").unlink()
    assert load_checkpoint(tmp_path).defaults == SamplingDefaults()


def test_what_the_checkpoint_declares_comes_before_what_its_template_shows(
    tmp_path: Path,
) -> None:
    declared = {"fields": {"thinking": {"open": "[T]", "close": "[/T]"}}}
    directory = model(tmp_path, response_template=declared)
    own = load_checkpoint(directory).output_format
    assert own.reasoning == ReasoningTags("[T]", "[/T]")
    assert own.tool_call is None
    named = load_checkpoint(directory, tool_call_parser="kimi_k2").output_format
    assert named.tool_call == named_format("tool_calls", "kimi_k2").calls
    with pytest.raises(ValueError, match="no such"):
        load_checkpoint(directory, tool_call_parser="no such")


def test_a_model_without_a_chat_template_is_read_too(tmp_path: Path) -> None:
    directory = model(tmp_path)
    (directory / "chat_template.jinja").unlink()
    checkpoint = load_checkpoint(directory)
    assert (checkpoint.template, checkpoint.probed) == (None, ProbedTemplate())
    assert not checkpoint.has_own_template


def test_the_result_of_another_process_is_used_unchanged(tmp_path: Path) -> None:
    directory = model(tmp_path)
    (directory / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    probed = ProbedTemplate("<think></think>", CallStyles(CallStyle(text_arguments=True)))
    checkpoint = load_checkpoint(directory, probed=probed)
    assert checkpoint.probed == probed
    assert checkpoint.template is not None
    assert checkpoint.template.styles == probed.styles
    assert checkpoint.output_format.reasoning == ReasoningTags("<think>", "</think>")


def test_invalid_and_missing_files_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"generation_config\.json: it does not hold a JSON object"
    ):
        load_checkpoint(model(tmp_path / "unsound", generation_config=[1]))
    directory = model(tmp_path / "missing")
    (directory / "tokenizer.json").unlink()
    with pytest.raises(OSError, match=r"tokenizer\.json"):
        load_checkpoint(directory)


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json"])
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, name: str) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / name).write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match="nested too deeply"):
        load_checkpoint(tmp_path)


def test_a_token_id_far_beyond_the_number_of_tokens_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    path = tmp_path / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    added = tokenizer["added_tokens"][0]
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary[next(iter(vocabulary))] = 3_000_000_000
    path.write_text(json.dumps({**tokenizer, "added_tokens": [added]}))
    with pytest.raises(CheckpointError, match="ids may be unused"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("tokenizer.json", "{}", "."),
        ("tokenizer.json", '{"model": 3}', "the tokenizers library cannot read it: "),
        ("chat_template.jinja", "{% for x in %}", "does not parse"),
        ("chat_template.jinja", "{{ 1 | no_such }}", "No filter named 'no_such'"),
    ],
)
def test_what_cannot_be_built_names_its_file(
    file: str, content: str, reason: str, tmp_path: Path
) -> None:
    directory = model(tmp_path)
    (directory / file).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"^{file}: .*{reason}"):
        load_checkpoint(directory)
