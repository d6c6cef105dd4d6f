"""A cache of 8-bit floats gives back what it says it stored."""

from __future__ import annotations

import torch

from engine.attention.layout import CacheShape
from engine.attention.plans import PlanBuilder
from tests.engine.attention.scaled_cache import scaled_cache


def test_torch_gathers_what_it_stored(device: torch.device) -> None:
    cache = scaled_cache(device)
    shape = CacheShape(8, 2)
    builder = PlanBuilder(shape, [None], torch.float32, device)
    places = torch.arange(8).numpy()
    keys, values = torch.randn(2, 8, 2, 16, device=device)
    stored = cache.store(0, builder.slots(places * 0 + 1, places), keys, values)
    rows = torch.from_numpy(shape.rows(places[1:2, None]).reshape(-1)).to(device)
    gathered = torch.cat([half[0].transpose(0, 1) for half in cache.gather(0, rows, 1)], dim=1)
    assert torch.equal(gathered, stored)
    torch.testing.assert_close(
        stored[:, 1:], torch.cat((keys, values), 1)[:, 1:], rtol=0.07, atol=0.01
    )
