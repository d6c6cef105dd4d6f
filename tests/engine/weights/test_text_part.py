"""Of a checkpoint that also reads images only the language model's tensors are read, whatever
their names, quantized or not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from engine.architecture.config import load_model_config
from engine.architecture.errors import ConfigError, WeightsError
from engine.architecture.text_part import TEXT_PARTS
from engine.messages import SamplingParams
from engine.weights.file import TensorFile
from engine.weights.text_part import by_text_name, without_media
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import prompt
from tests.engine.plugin.image_text import save_image_text
from tests.engine.quantized.making import FORMATS, quantize_directory

PART = TEXT_PARTS["Gemma3ForConditionalGeneration"]
NAMES = ("language_model.model.norm.weight", "vision_tower.x", "model.multi_modal_projector.y")


def test_media_are_left_out_and_text_has_its_own_names() -> None:
    stored = dict.fromkeys(NAMES, 1)
    assert by_text_name(without_media(stored, PART), PART) == {"model.norm.weight": 1}
    assert by_text_name(without_media(stored, None), None) == stored


def test_two_tensors_of_one_name_are_refused() -> None:
    stored = {"language_model.model.norm.weight": 1, "model.language_model.norm.weight": 2}
    with pytest.raises(WeightsError, match=r"model\.norm\.weight is stored twice"):
        by_text_name(stored, PART)


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_encoders_are_never_read(
    model_impl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_image_text("gemma3:gemma3_text#linear", tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    text = sum(
        tensor.nbytes
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
        if name.startswith("language_model.")
    )
    read = 0
    plain = TensorFile.read_into

    def counted(self: TensorFile, buffer: memoryview, offset: int) -> None:
        nonlocal read
        read += len(buffer)
        plain(self, buffer, offset)

    monkeypatch.setattr(TensorFile, "read_into", counted)
    runner = load_runner(tmp_path, model_impl=model_impl)
    assert runner.info.num_parameters == text // 4
    headers = 64 << 10
    assert text <= read < text + headers < size


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
def test_a_tensor_that_belongs_to_neither_is_named(model_impl: str, tmp_path: Path) -> None:
    save_image_text("gemma3:gemma3_text#linear", tmp_path)
    path = tmp_path / "model.safetensors"
    extra = {"language_model.model.extra.weight": torch.ones(2), "other_tower.w": torch.ones(2)}
    save_file(load_file(path) | extra, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"unexpected: ") as refused:
        load_runner(tmp_path, model_impl=model_impl)
    assert "language_model.model.extra.weight" in str(refused.value)  # as in the file
    assert "other_tower.w" in str(refused.value)
    assert "vision_tower" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "format_name", "model_impl", "nested"),
    [
        ("mistral3:ministral3#short", "fp8", "native", False),
        ("gemma3:gemma3_text#linear", "ct_int4", "native", False),
        ("gemma3:gemma3_text#linear", "ct_int4", "native", True),
        ("gemma4:gemma4_text#31b", "ct_int4", "native", True),
        ("qwen3_vl:qwen3_vl_text", "gptq", "native", False),
        ("gemma3:gemma3_text#linear", "ct_int4", "transformers", True),
        ("qwen3_5:qwen3_5_text", "ct_int8", "transformers", False),
    ],
)
def test_a_text_model_is_quantized_and_the_encoder_is_not(
    kind: str, format_name: str, model_impl: str, nested: bool, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    directory = tmp_path / "quantized"
    save_image_text(kind, directory)
    plain = tmp_path / "plain"
    shutil.copytree(directory, plain)
    quantize_directory(directory, format_name, 32, only="language_model.")
    if nested:
        move_into_text_config(directory)
    shutil.copy(directory / "meaning.safetensors", plain / "model.safetensors")
    meaning = load_file(plain / "model.safetensors")
    save_file(meaning, plain / "model.safetensors", metadata={"format": "pt"})
    oracle = AutoModelForImageTextToText.from_pretrained(plain, dtype=torch.float32).eval()
    ids = prompt(40, seed=1)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    [output] = Engine(directory, cpu_path="torch", model_impl=model_impl).generate([ids], params)
    with torch.inference_mode():
        logits = oracle(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    expected = torch.log_softmax(logits, dim=-1)[torch.arange(39), ids[1:]]
    found = torch.tensor([each.logprob for each in output.prompt_logprobs])
    assert (found - expected).abs().max() / (logits.max() - logits.min()) < 1e-4


def move_into_text_config(directory: Path) -> None:
    values = json.loads((directory / "config.json").read_text())
    values["text_config"]["quantization_config"] = values.pop("quantization_config")
    (directory / "config.json").write_text(json.dumps(values))


def test_a_format_that_is_not_read_is_refused_first(tmp_path: Path) -> None:
    save_image_text("gemma3:gemma3_text", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["text_config"]["quantization_config"] = {"quant_method": "bitsandbytes"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="quant_method must be one of"):
        load_model_config(tmp_path)


def test_the_early_name_of_the_section_is_known_there(tmp_path: Path) -> None:
    save_image_text("gemma3:gemma3_text", tmp_path)
    plain = load_model_config(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["text_config"]["compression_config"] = FORMATS["ct_int4"].config(32)
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert load_model_config(tmp_path) == plain
