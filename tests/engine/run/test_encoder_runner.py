"""An encoder's vectors and scores are transformers', in any batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.loop.errors import EngineDeadError
from engine.messages import FinishReason
from engine.run.encoder_runner import EncoderRunner
from tests.engine.embedding import CONNECTION, Embedder, distance
from tests.engine.tiny_encoders import ENCODERS, MAX_TOKENS, SCORERS, VOCABULARY, save_encoder


def text(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


TEXTS = [text(length, seed) for seed, length in enumerate((1, 96, 7, 33, 30, 33, 12, 64, 25))]


def load(model: Path, **settings: Any) -> EncoderRunner:
    config = {"threads": 1, "dtype": "float32", "device": "cpu"} | settings
    return EncoderRunner(EngineConfig(model=str(model), **config), lambda *_: None)


def embedder(
    model: Path, *, max_num_seqs: int = 16, budget: int = 2048, **settings: Any
) -> Embedder:
    return Embedder(
        EngineCore(
            load(model, **settings), max_num_seqs=max_num_seqs, max_num_batched_tokens=budget
        )
    )


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, PreTrainedModel]:
    directory = tmp_path_factory.mktemp(request.param)
    return directory, save_encoder(ENCODERS[request.param], directory)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_pooled_states_equal_transformers(
    encoder: tuple[Path, PreTrainedModel], pooling: str
) -> None:
    directory, oracle = encoder
    engine = embedder(directory, pooling=pooling, budget=128)
    for token_ids, vector in zip(TEXTS, engine.vectors_of(TEXTS, activate=False), strict=True):
        with torch.inference_mode():
            states = oracle(torch.tensor([token_ids])).last_hidden_state[0]
        expected = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling].numpy()
        assert distance(vector, expected) < 1e-5
        np.testing.assert_allclose(vector, expected, atol=1e-3)


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("sigmoid", [True, False])
def test_a_classifiers_scores_equal_transformers(name: str, sigmoid: bool, tmp_path: Path) -> None:
    oracle = save_encoder(SCORERS[name], tmp_path, num_labels=1)
    two_types = oracle.config.type_vocab_size == 2
    engine = embedder(tmp_path)
    pairs = [(text(9, 1), text(30, 2)), (text(20, 3), text(3, 4)), (text(1, 5), text(1, 6))]
    handles = [
        engine.embed(a + b, second_text=len(a), activate=None if sigmoid else False)
        for a, b in pairs
    ]
    engine.run()
    for (a, b), handle in zip(pairs, handles, strict=True):
        types = torch.tensor([[0] * len(a) + [int(two_types)] * len(b)])
        with torch.inference_mode():
            logit = oracle(torch.tensor([a + b]), token_type_ids=types).logits[0]
        expected = torch.sigmoid(logit) if sigmoid else logit
        np.testing.assert_allclose(engine.vectors[handle], expected.numpy(), atol=1e-4)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bert")
    save_encoder(ENCODERS["bert"], directory)
    return directory


def test_a_step_takes_whole_texts_within_its_budget_and_slots(bert: Path) -> None:
    engine = embedder(bert, max_num_seqs=3, budget=128)
    handles = [engine.embed(token_ids) for token_ids in TEXTS]
    finished_in = []
    while engine.core.has_work:
        step = engine.core.step()[CONNECTION]
        engine.take(step)
        assert step.step_tokens <= 128
        assert step.step_sequences <= 3
        finished_in.append([embedded.handle for embedded in step.embedded])
    assert [handle for step_handles in finished_in for handle in step_handles] == handles
    assert engine.core.stats().prompt_tokens_computed == sum(map(len, TEXTS))


def test_a_budget_below_the_longest_text_is_raised_to_it(bert: Path) -> None:
    assert len(embedder(bert, budget=16).vectors_of([text(MAX_TOKENS, 1)])) == 1


def test_more_urgent_texts_come_first(bert: Path) -> None:
    engine = embedder(bert, max_num_seqs=1)
    engine.embed(text(5, 1))
    urgent = engine.embed(text(5, 2), priority=-1)
    engine.take(engine.core.step()[CONNECTION])
    assert list(engine.vectors) == [urgent]


def test_an_abort_takes_a_text_out_of_the_queue(bert: Path) -> None:
    engine = embedder(bert, max_num_seqs=1)
    kept, gone = engine.embed(text(5, 1)), engine.embed(text(5, 2))
    engine.core.abort(CONNECTION, [gone])
    engine.run()
    assert engine.finished[gone].reason is FinishReason.ABORT
    assert list(engine.vectors) == [kept]


def test_a_text_that_fails_every_step_it_is_in_ends_alone(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = embedder(bert)
    bad, good = engine.embed([3, 3, 3]), engine.embed(text(9, 1))
    execute = engine.core.runner.execute

    def fails_on_bad(plan: Any) -> Any:
        if any(item.sequence.token_ids == [3, 3, 3] for item in plan.scheduled):
            raise RuntimeError("cannot")
        return execute(plan)

    monkeypatch.setattr(engine.core.runner, "execute", fails_on_bad)
    engine.run()
    assert engine.finished[bad].reason is FinishReason.ERROR
    assert good in engine.vectors


def test_an_encoder_that_runs_nothing_any_more_ends_the_engine(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = embedder(bert)
    engine.embed(text(5, 1))

    def broken(plan: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(engine.core.runner, "execute", broken)
    with pytest.raises(EngineDeadError):
        engine.run()


def test_an_encoder_generates_nothing(bert: Path) -> None:
    engine = embedder(bert)
    handle = engine.generate([1, 2, 3], 5)
    engine.run()
    assert engine.finished[handle].error == "BertModel does not generate"


def test_the_declared_length_applies_unless_another_is_requested(
    bert: Path, tmp_path: Path
) -> None:
    save_encoder(ENCODERS["bert"], tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    assert load(tmp_path).info.max_model_len == 40
    assert load(tmp_path, max_model_len=50).info.max_model_len == 50
    assert load(bert).info.max_model_len == MAX_TOKENS
    with pytest.raises(ModelError, match=f"{MAX_TOKENS} positions"):
        load(bert, max_model_len=MAX_TOKENS + 1)


def test_a_classifier_of_several_labels_is_refused_at_the_start(tmp_path: Path) -> None:
    save_encoder(SCORERS["bert"], tmp_path, num_labels=3)
    with pytest.raises(ModelError, match="3 labels"):
        load(tmp_path)


def test_trained_lengths_are_the_only_ones_an_embedding_is_cut_to(tmp_path: Path) -> None:
    save_encoder(ENCODERS["bert"], tmp_path, matryoshka_dimensions=[16, 32])
    engine = embedder(tmp_path)
    assert engine.vectors_of([text(5, 1)], dimensions=32)[0].shape == (32,)
    handle = engine.embed(text(5, 1), dimensions=20)
    engine.run()
    assert "16, 32, 48" in (engine.finished[handle].error or "")
