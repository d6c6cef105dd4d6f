from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.engine.constraint.running import Engine, Model
from tests.service.tiny_model import VOCABULARY, build_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Subject:
    directory: Path
    oracle: PreTrainedModel


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Random weights with a real tokenizer, and what transformers reads from them."""
    from tests.engine.tiny_models import Variant, save_model  # which takes long to import

    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("constrained")
    tokenizer = build_tokenizer()
    end = tokenizer.token_to_id("<|im_end|>")
    settings = {"head_dim": 32, "vocab_size": VOCABULARY, "eos_token_id": end}
    oracle = save_model(Variant("qwen3", settings), directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return Subject(directory, oracle)


@pytest.fixture(scope="session")
def oracle(subject: Subject) -> PreTrainedModel:
    return subject.oracle


@pytest.fixture(scope="session", params=[False, True], ids=["", "one step ahead"])
def model(subject: Subject, request: pytest.FixtureRequest) -> Model:
    return Model(subject.directory, load_format="auto", ahead=request.param)


@pytest.fixture
def engine(model: Model) -> Iterator[Engine]:
    running = Engine(model)
    yield running
    running.close()
