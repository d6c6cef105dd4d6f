"""An encoder's config.json is read as transformers reads it; what is not served is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.architecture.encoder_config import is_encoder, load_encoder_config
from engine.architecture.errors import ConfigError
from engine.architecture.names import ENCODERS

BERT = {"architectures": ["BertModel"]}
CLASSIFIER = {"architectures": ["BertForSequenceClassification"], "num_labels": 1}


def write(directory: Path, **values: Any) -> Path:
    (directory / "config.json").write_text(json.dumps(values))
    return directory


def test_bert_base_needs_no_more_than_its_name(tmp_path: Path) -> None:
    """The sizes of arXiv 1810.04805, which config.json may leave out."""
    config = load_encoder_config(write(tmp_path, **BERT))
    assert (config.num_layers, config.num_heads) == (12, 12)
    assert (config.hidden_size, config.intermediate_size) == (768, 3072)
    assert (config.vocab_size, config.num_token_types) == (30522, 2)
    assert (config.first_position, config.max_tokens, config.padding_id) == (0, 512, None)
    assert config.num_scores == 0


def test_roberta_s_positions_begin_behind_the_padding_token(tmp_path: Path) -> None:
    """Its published checkpoints have 514 rows for texts of 512 tokens."""
    config = load_encoder_config(
        write(tmp_path, architectures=["RobertaModel"], pad_token_id=1, max_position_embeddings=514)
    )
    assert config.family == "roberta"
    assert (config.first_position, config.max_tokens, config.padding_id) == (2, 512, 1)


def test_bert_s_positions_do_not_depend_on_the_padding_token(tmp_path: Path) -> None:
    sizes = {"pad_token_id": 2000, "max_position_embeddings": 64}
    config = load_encoder_config(write(tmp_path, **BERT, **sizes))
    assert (config.first_position, config.max_tokens, config.padding_id) == (0, 64, None)
    with pytest.raises(ConfigError, match="pad_token_id must be an integer from 0 to 61"):
        load_encoder_config(write(tmp_path, architectures=["RobertaModel"], **sizes))


@pytest.mark.parametrize("name", ENCODERS)
def test_every_served_encoder_is_known_as_one(name: str, tmp_path: Path) -> None:
    assert is_encoder(write(tmp_path, architectures=[name]))


@pytest.mark.parametrize(
    "content", ['{"architectures": ["LlamaForCausalLM"]}', "{}", '{"architectures": 3}', "{", None]
)
def test_an_unreadable_or_other_model_is_not_an_encoder(
    content: str | None, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert not is_encoder(tmp_path)


_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("file", "section", "field", "expected"),
    [
        (None, None, None, True),
        (None, None, _IDENTITY, False),
        (None, _IDENTITY, None, False),
        (None, _SIGMOID, _IDENTITY, True),
        (_IDENTITY, None, None, False),  # as sentence-transformers 6 writes it
        (_IDENTITY, _SIGMOID, None, False),
        (_SIGMOID, _IDENTITY, _IDENTITY, True),
    ],
)
def test_a_scorer_s_function_is_the_one_that_its_checkpoint_names_in_its_newest_place(
    file: str | None, section: str | None, field: str | None, expected: bool, tmp_path: Path
) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"model_type": "CrossEncoder", "activation_fn": file})
    )
    write(
        tmp_path,
        **CLASSIFIER,
        sentence_transformers={"activation_fn": section},
        sbert_ce_default_activation_function=field,
    )
    config = load_encoder_config(tmp_path)
    assert (config.num_scores, config.scores_by_sigmoid) == (1, expected)


def test_a_function_that_is_not_served_is_refused_with_the_file_that_names_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(
        '{"activation_fn": "torch.nn.modules.activation.Tanh"}'
    )
    with pytest.raises(ConfigError, match=r"config_sentence_transformers\.json: .*through Tanh"):
        load_encoder_config(write(tmp_path, **CLASSIFIER))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (BERT | {"position_embedding_type": "relative_key"}, "absolute position"),
        (BERT | {"is_decoder": True}, "BertModel as a decoder"),
        (BERT | {"add_cross_attention": True}, "BertModel as a decoder"),
        (BERT | {"num_attention_heads": 7}, "768 is not a multiple of its 7 heads"),
        (BERT | {"hidden_act": "mish"}, "hidden_act"),
        (CLASSIFIER | {"num_labels": 3}, "3 labels"),
        ({"architectures": ["BertForSequenceClassification"]}, "2 labels"),
        (CLASSIFIER | {"id2label": {"0": "no", "1": "yes"}}, "2 labels"),
        (
            CLASSIFIER | {"sentence_transformers": {"activation_fn": "torch.nn.Softmax"}},
            "Softmax are not supported",
        ),
    ],
)
def test_what_is_not_served_is_refused_with_the_reason(
    values: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_encoder_config(write(tmp_path, **values))
