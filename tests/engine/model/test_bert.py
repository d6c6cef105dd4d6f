"""BERT and RoBERTa have transformers' parameters, states and scores, in texts of any lengths."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.architecture.encoder_config import EncoderConfig, load_encoder_config
from engine.model.bert import BertEncoder, EncoderBatch, parameter_shapes, unused_names
from tests.engine.model.decoding import Weights
from tests.engine.tiny_encoders import ENCODERS, MAX_TOKENS, SCORERS, VOCABULARY, save_encoder

pytestmark = pytest.mark.usefixtures("one_thread")


class Prefixed(Weights):
    """Of an encoder without a head, whose own names lack the family's prefix."""

    def tensor(self, name: str) -> Tensor:
        return super().tensor(name.partition(".")[2])


# Some alike, some padded to one width, some alone.
LENGTHS = [MAX_TOKENS, 90, 90, 33, 30, 30, 7, 1]


def text(length: int) -> list[int]:
    return random.Random(length).choices(range(VOCABULARY), k=length)


def batch_of(texts: list[list[int]], types: list[list[int]]) -> EncoderBatch:
    return EncoderBatch(
        [len(each) for each in texts],
        torch.tensor([token for each in texts for token in each]),
        torch.tensor([kind for each in types for kind in each]),
    )


@pytest.mark.parametrize("name", ENCODERS)
def test_states_of_texts_of_mixed_lengths_equal_transformers(name: str, tmp_path: Path) -> None:
    oracle = save_encoder(ENCODERS[name], tmp_path)
    config = load_encoder_config(tmp_path)
    texts = [text(length) for length in LENGTHS]
    texts[2][:2] = texts[3][5:7] = [1, 1]  # RoBERTa's padding, which takes no position
    texts[-1] = [1]
    types = [[i % 2 if config.num_token_types == 2 else 0 for i in range(n)] for n in LENGTHS]
    with torch.inference_mode():
        found = BertEncoder(config, Prefixed(oracle)).hidden_states(batch_of(texts, types))
        for tokens, kinds, states in zip(texts, types, found.split(LENGTHS), strict=True):
            expected = oracle(torch.tensor([tokens]), token_type_ids=torch.tensor([kinds]))
            torch.testing.assert_close(states, expected.last_hidden_state[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", SCORERS)
def test_scores_equal_transformers(name: str, tmp_path: Path) -> None:
    oracle = save_encoder(SCORERS[name], tmp_path, num_labels=1)
    encoder = BertEncoder(load_encoder_config(tmp_path), Weights(oracle))
    texts = [text(length) for length in (20, 5)]
    with torch.inference_mode():
        states = encoder.hidden_states(batch_of(texts, [[0] * 20, [0] * 5]))
        found = encoder.scores(states[[0, 20]])
        for tokens, score in zip(texts, found, strict=True):
            logits = oracle(torch.tensor([tokens])).logits[0]
            torch.testing.assert_close(score, logits, atol=1e-4, rtol=1e-4)


def assert_same_names(config: EncoderConfig, oracle: PreTrainedModel, prefix: str) -> None:
    expected = {prefix + name: tuple(p.shape) for name, p in oracle.named_parameters()}
    for name in unused_names(config):
        expected.pop(name, None)
    assert parameter_shapes(config) == expected


@pytest.mark.parametrize("name", ENCODERS)
def test_parameters_are_those_of_the_checkpoint_but_for_the_unused_head(
    name: str, tmp_path: Path
) -> None:
    oracle = save_encoder(ENCODERS[name], tmp_path)
    config = load_encoder_config(tmp_path)
    assert_same_names(config, oracle, f"{config.family}.")


@pytest.mark.parametrize("name", SCORERS)
def test_parameters_of_a_classifier_are_those_of_the_checkpoint(name: str, tmp_path: Path) -> None:
    oracle = save_encoder(SCORERS[name], tmp_path, num_labels=1)
    assert_same_names(load_encoder_config(tmp_path), oracle, "")


def test_an_encoder_without_a_head_scores_nothing(tmp_path: Path) -> None:
    oracle = save_encoder(ENCODERS["bert"], tmp_path)
    encoder = BertEncoder(load_encoder_config(tmp_path), Prefixed(oracle))
    with pytest.raises(ValueError, match="not a classifier"):
        encoder.scores(torch.zeros(1, 48))
