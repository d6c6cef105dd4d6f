"""The description of the model for clients."""

from __future__ import annotations

from service.serving.services import Services
from service.wire.models import ModelCard


def model_card(services: Services, name: str) -> ModelCard:
    """``name``: the one of the model's names that the client used."""
    ready = services.link.state.ready
    return ModelCard(
        id=name,
        created=services.started,
        root=services.limits.names[0],
        max_model_len=None if ready is None else ready.max_model_len,
        architecture=None if ready is None else ready.architecture,
        tasks=services.tasks,
    )
