"""The learning rate's course, bfloat16 in the optimizer, and batches made elsewhere."""

from itertools import islice

import pytest
import torch
from tokenizers import Tokenizer

from pocket import MODEL_DIR
from pocket.batches import Feed
from pocket.export import blend
from pocket.model import LONGEST_WITH_PRODUCTS, Pocket, PocketShape, attention
from pocket.optimizer import PocketOptimizer, orthogonalised
from pocket.train import FLOOR, WARM_UP_STEPS, Plan, TrainingProgress, rate, restored, save


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


def test_a_deeper_model_that_takes_over_weights_computes_the_same_until_it_learns():
    small, tokens = Pocket(PocketShape(layers=2)), torch.arange(24).view(2, 12)
    small.initialise(1)
    deep = Pocket(PocketShape(layers=3))
    deep.initialise(2)
    deep.take_over(small.state_dict())
    torch.testing.assert_close(deep(tokens), small(tokens))
    deep(tokens).square().mean().backward()
    added = deep.model.layers[2]
    assert added.self_attn.o_proj.weight.grad.abs().max() > 0
    assert added.mlp.down_proj.weight.grad.abs().max() > 0


def test_weights_that_lack_more_than_whole_layers_are_refused():
    weights = Pocket(PocketShape(layers=2)).state_dict()
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ValueError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        Pocket(PocketShape(layers=2)).take_over(weights)


def test_a_checkpoint_gives_back_the_model_in_its_own_shape(tmp_path):
    shape = PocketShape(hidden=128, layers=3)
    model, plan = Pocket(shape), Plan(tmp_path, 1.0, 1e6, 1, 64, 1, "cpu", 1.0, False, shape=shape)
    model.initialise(5)
    save(tmp_path / "checkpoint.pt", model, PocketOptimizer(model), TrainingProgress(7), plan)
    again, state = restored(tmp_path / "checkpoint.pt")
    assert (again.shape, state["step"]) == (shape, 7)
    tokens = torch.arange(10).view(1, 10)
    torch.testing.assert_close(again(tokens), model(tokens))


def test_a_blend_lies_between_two_models_by_its_share():
    own, other = Pocket(PocketShape(layers=2)), Pocket(PocketShape(layers=2))
    own.initialise(1)
    other.initialise(2)
    before = {name: value.clone() for name, value in own.state_dict().items()}
    blend(own, {k: v.to(torch.bfloat16) for k, v in other.state_dict().items()}, 0.75)
    for name, value in own.state_dict().items():
        mean = 0.75 * before[name] + 0.25 * other.state_dict()[name]
        torch.testing.assert_close(value, mean, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("length", [1, 7, 96])
def test_attention_by_products_is_torchs_own(length, monkeypatch):
    torch.manual_seed(0)
    given = [torch.randn(2, heads, length, 64, dtype=torch.float64) for heads in (4, 2, 2)]
    outputs = []
    for longest in (0, LONGEST_WITH_PRODUCTS):
        monkeypatch.setattr("pocket.model.LONGEST_WITH_PRODUCTS", longest)
        own = [x.clone().requires_grad_() for x in given]
        y = attention(*own)
        y.sin().sum().backward()
        outputs.append([y.detach(), *(x.grad for x in own)])
    for fused, products in zip(*outputs, strict=True):
        torch.testing.assert_close(products, fused)
