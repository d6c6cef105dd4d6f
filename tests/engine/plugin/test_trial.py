"""The trial finds what is computed wrongly, even where the gate lets it through."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from engine.architecture.errors import UnsupportedError
from engine.cpu.library import LibraryUnavailableError, library
from engine.plugin import decoder, gate, trial
from engine.plugin.products import CompiledLinear, Products
from engine.plugin.trial import try_kind
from tests.engine.plugin.families import (
    FEW,
    GGUF_KINDS,
    HYBRIDS,
    MANY,
    require_release_with,
    tiny_config,
)

# The first reads the dtype of a linear map's weight; the second calls its output head "decoder".
UNLIKE_OTHERS = ("hunyuan_v1_moe", "modernbert-decoder")
KINDS = dict.fromkeys((*UNLIKE_OTHERS, *FEW, *MANY, *HYBRIDS, *GGUF_KINDS))


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
def test_a_kind_that_is_computed_right_passes(kind: str) -> None:
    try_kind(AutoConfig.for_model(kind))


def test_a_chunked_attention_that_passes_the_gate_fails_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = (*gate.SERVED_LAYER_TYPES, "chunked_attention")
    monkeypatch.setattr(gate, "SERVED_LAYER_TYPES", served)
    config = AutoConfig.for_model("llama4_text", attention_chunk_size=8, num_local_experts=4)
    with pytest.raises(UnsupportedError, match="llama4_text gives other logits"):
        try_kind(config)


@pytest.mark.parametrize("wrong", ["window", "softcap", "scaling", "s_aux"])
def test_an_attention_that_leaves_something_out_fails_the_trial(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "gpt_oss" if wrong == "s_aux" else "gemma2"
    real = decoder.paged_attention

    def attend(*arguments: Any, scoring: Any = None, **options: Any) -> Any:
        if wrong == "window":
            options["window"] = None
        elif wrong == "scaling":
            options["scale"] *= 1.01
        elif wrong == "softcap":
            scoring = scoring._replace(softcap=None)
        else:
            scoring = scoring._replace(sinks=None)
        return real(*arguments, scoring=scoring, **options)

    monkeypatch.setattr(decoder, "paged_attention", attend)
    with pytest.raises(UnsupportedError, match="gives other logits"):
        # A cap of 50 is far above a tiny model's scores.
        try_kind(
            AutoConfig.for_model(
                kind, **({"attn_logit_softcapping": 1.0} if kind == "gemma2" else {})
            )
        )


@pytest.fixture
def products() -> Products:
    try:
        return Products(library(), 1)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in UNLIKE_OTHERS else pytest.param(kind, marks=pytest.mark.slow)
        for kind in KINDS
    ],
)
def test_products_compute_every_kind(kind: str, products: Products) -> None:
    require_release_with(kind)
    try_kind(tiny_config(kind), products)


def test_products_that_compute_something_else_fail_the_trial(
    products: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = AutoConfig.for_model("olmo2")
    try_kind(config, products)
    real = CompiledLinear.forward
    monkeypatch.setattr(CompiledLinear, "forward", lambda self, x: real(self, x) * 1.01)
    with pytest.raises(UnsupportedError, match="gives other logits"):
        try_kind(config, products)


def test_a_kind_that_cannot_be_tried_is_refused() -> None:
    config = AutoConfig.for_model("llama", hidden_act="no such function")
    with pytest.raises(UnsupportedError, match="no such function"):
        try_kind(config)


def test_a_kind_that_does_not_become_tiny_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "shrunk", lambda config: config)
    with pytest.raises(
        UnsupportedError, match=r"a tiny llama cannot be tried .*[0-9]{3} parameters"
    ):
        try_kind(AutoConfig.for_model("llama", num_hidden_layers=1, intermediate_size=500))
