"""Decoders of transformers over our KV cache give its own tokens and logprobs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.attention.layout import Rows
from engine.messages import SamplingParams
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import (
    FEW,
    HYBRIDS,
    MANY,
    expected,
    prompt,
    require_release_with,
    save_family,
)
from tests.engine.plugin.mixing import assert_equals_transformers

# The code of the first two of these mentions the weight of a linear map, which products replace;
# that of the last is corrected.
UNUSUAL = ("falcon_h1", "hunyuan_v1_moe", "nemotron_h")
ALWAYS = tuple(dict.fromkeys((*FEW, *HYBRIDS[:2], *UNUSUAL)))
SELDOM = tuple(kind for kind in (*MANY, *HYBRIDS) if kind not in ALWAYS)


@pytest.mark.parametrize(
    "kind", [*ALWAYS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SELDOM)]
)
def test_mixed_steps_equal_transformers(kind: str, tmp_path: Path) -> None:
    require_release_with(kind)
    torch.set_num_threads(1)
    oracle = save_family(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle, model_impl="transformers")


@pytest.mark.parametrize("kind", ["gpt_oss", "gemma4_text"])
def test_an_8_bit_cache_changes_logits_a_little(kind: str, tmp_path: Path) -> None:
    oracle = save_family(kind, tmp_path)
    engine = Engine(tmp_path, kv_cache_dtype="fp8", max_num_batched_tokens=16)
    prompt_ids = prompt(40, seed=1)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    [output] = engine.generate([prompt_ids], params)
    whole = expected(oracle, prompt_ids)
    rows = zip(whole.logprobs, prompt_ids[1:], output.prompt_logprobs, strict=False)
    differences = [abs(float(row[token]) - found.logprob) for row, token, found in rows]
    assert len(differences) == 39
    assert 1e-5 < max(differences) / whole.span < 0.1


def test_a_batch_laid_out_for_another_decoder_is_an_error(tmp_path: Path) -> None:
    save_family("olmo2", tmp_path)
    runner = load_runner(tmp_path, model_impl="transformers", num_kv_blocks=4)
    rows = Rows(torch.zeros(1, 1), torch.zeros(1), 1)
    with pytest.raises(ValueError, match="laid out as Rows"):
        runner._decoder.hidden_states(torch.zeros(1), torch.zeros(1), runner._cache, rows)
