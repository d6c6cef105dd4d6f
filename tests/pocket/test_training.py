"""The learning rate's course, bfloat16 in the optimizer, and batches made elsewhere."""

from itertools import islice

import pytest
import torch
from tokenizers import Tokenizer

from pocket import MODEL_DIR
from pocket.batches import Feed
from pocket.optimizer import orthogonalised
from pocket.train import FLOOR, WARM_UP_STEPS, rate


def test_the_rate_is_flat_and_then_falls_to_the_floor():
    late = WARM_UP_STEPS
    assert rate(0.0, 0) == pytest.approx(1 / WARM_UP_STEPS)
    assert rate(0.3, late, flat=0.3) == 1.0
    assert rate(0.65, late, flat=0.3) == pytest.approx((1 + FLOOR) / 2)
    assert rate(1.0, late, flat=0.3) == pytest.approx(FLOOR)


def test_updates_made_orthogonal_in_bfloat16_are_nearly_those_of_float32():
    update = torch.randn(2, 64, 48, generator=torch.Generator().manual_seed(0))
    exact, rough = orthogonalised(update), orthogonalised(update.to(torch.bfloat16)).float()
    assert torch.nn.functional.cosine_similarity(exact.flatten(), rough.flatten(), dim=0) > 0.999


def test_a_feed_draws_the_same_batches_for_the_same_seed():
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json")).to_str()
    first, second, other = (
        next(islice(iter(Feed(tokenizer, seed, 2048)), 1)).tokens for seed in ("a", "a", "b")
    )
    assert torch.equal(first, second)
    assert first.shape != other.shape or not torch.equal(first, other)
