"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """``created``: Unix seconds at which this server began to serve it. ``max_model_len``: prompt
    plus output, in tokens; ``architecture``: as in config.json, or ``simulated`` where no model
    computes the answers; ``tasks``: what can be asked of it, of generate, embed and score. All are
    None while the model loads."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "quire"
    root: str
    max_model_len: int | None
    architecture: str | None
    tasks: tuple[str, ...] | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: list[ModelCard]
