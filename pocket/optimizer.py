"""Muon for the matrices, AdamW for embeddings and norms.

Muon: momentum, then the update is replaced by the nearest orthogonal matrix, found with five
Newton-Schulz steps (Keller Jordan, 2024, https://kellerjordan.github.io/posts/muon/). All ranks
keep the same state; the costly orthogonalisation is shared out among them and summed back.
"""

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalised(update: Tensor) -> Tensor:
    """Nearest orthogonal matrices, roughly: (N, R, C) -> (N, R, C)."""
    a, b, c = _COEFFICIENTS
    tall = update.size(-2) > update.size(-1)
    x = update.mT if tall else update
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = x.mT if tall else x
    return result


class PocketOptimizer:
    """Both optimizers behind one step; learning rates are scaled together by the schedule.

    `dtype` is the precision in which updates are made orthogonal; bfloat16 is good enough.
    """

    def __init__(
        self,
        model: nn.Module,
        muon_rate: float = 0.02,
        adam_rate: float = 0.004,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.matrices: list[Tensor] = [p for n, p in named if p.dim() == 2 and "embed" not in n]
        others = [p for n, p in named if p.dim() != 2 or "embed" in n]
        self.muon_rate, self.adam_rate, self.momentum = muon_rate, adam_rate, momentum
        self.dtype = dtype
        self.velocity = [torch.zeros_like(p) for p in self.matrices]
        self.adam = torch.optim.AdamW(
            others, lr=adam_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=others[0].is_cuda
        )
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Apply the gradients with both learning rates times `scale`."""
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate * scale
        self.adam.step()
        # All matrices at once: on a GPU, starting hundreds of small kernels is what takes time.
        grads = [p.grad for p in self.matrices if p.grad is not None]
        torch._foreach_lerp_(self.velocity, grads, 1 - self.momentum)
        updates = list(torch._foreach_lerp(grads, self.velocity, self.momentum))
        shapes = [parameter.shape for parameter in self.matrices]
        sizes = [max(1.0, rows / columns) ** 0.5 for rows, columns in shapes]
        shared = torch._foreach_mul(
            self._shared(updates), [-self.muon_rate * scale * s for s in sizes]
        )
        torch._foreach_add_(self.matrices, list(shared))

    def _shared(self, updates: list[Tensor]) -> list[Tensor]:
        """Orthogonalise every update, each rank its share, equal shapes in one batch."""
        by_shape: dict[torch.Size, list[int]] = defaultdict(list)
        for index, update in enumerate(updates):
            by_shape[update.shape].append(index)
        out = [torch.zeros_like(u) for u in updates] if self.world > 1 else list(updates)
        for indices in by_shape.values():
            if mine := indices[self.rank :: self.world]:
                done = orthogonalised(torch.stack([updates[i] for i in mine]).to(self.dtype))
                for i, update in zip(mine, done, strict=True):
                    out[i] = update.float()
        if self.world == 1:
            return out
        flat = torch.cat([update.flatten() for update in out])
        dist.all_reduce(flat)
        sizes = [update.numel() for update in out]
        return [f.view_as(o) for f, o in zip(torch.split(flat, sizes), out, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """State to resume from."""
        return {"velocity": self.velocity, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        for own, saved in zip(self.velocity, state["velocity"], strict=True):
            own.copy_(saved)
        self.adam.load_state_dict(state["adam"])
