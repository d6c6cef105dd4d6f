"""Tiny random-weight encoders, written by transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

VOCABULARY = 151
MAX_TOKENS = 96

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "initializer_range": 0.25,
}
_BERT = _SIZES | {"max_position_embeddings": MAX_TOKENS}
_ROBERTA = _SIZES | {
    "max_position_embeddings": MAX_TOKENS + 2,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
}

ENCODERS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "bert": (BertConfig, BertModel, _BERT),
    "bert_relu": (BertConfig, BertModel, _BERT | {"hidden_act": "relu"}),
    "roberta": (RobertaConfig, RobertaModel, _ROBERTA | {"type_vocab_size": 1}),
}
SCORERS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "bert": (BertConfig, BertForSequenceClassification, _BERT),
    "roberta": (RobertaConfig, RobertaForSequenceClassification, _ROBERTA),
    "xlm-roberta": (
        XLMRobertaConfig,
        XLMRobertaForSequenceClassification,
        _ROBERTA | {"type_vocab_size": 1},
    ),
}


def save_encoder(
    kind: tuple[type, type, dict[str, Any]], directory: Path, **settings: Any
) -> PreTrainedModel:
    """Write its directory; what transformers reads from it, in float32, is the oracle."""
    config_class, model_class, sizes = kind
    torch.manual_seed(0)
    model: PreTrainedModel = model_class(config_class(**(sizes | settings)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms start as ones and biases as zeros, which would hide that they are used.
            if parameter.dim() == 1:
                spread = torch.randn_like(parameter) * 0.1
                parameter.copy_(spread if name.endswith("bias") else 1 + spread)
    model.save_pretrained(directory)
    oracle: PreTrainedModel = model_class.from_pretrained(directory, dtype=torch.float32)
    return oracle.eval()
