"""The description of the model for clients."""

from __future__ import annotations

from service.serving.client import Client
from service.wire.models import ModelCard


def model_cards(client: Client) -> list[ModelCard]:
    """Describe the model under each name that the client may use."""
    return [model_card(client, name) for name in client.limits.names]


def model_card(client: Client, name: str) -> ModelCard:
    """``name``: the one of the model's names that the client used."""
    services = client.services
    ready = services.link.state.ready
    return ModelCard(
        id=name,
        created=services.started,
        root=client.limits.names[0],
        max_model_len=None if ready is None else ready.max_model_len,
        architecture=None if ready is None else ready.architecture,
        implementation=None if ready is None else ready.implementation,
        quantization=None if ready is None else ready.quantization,
        unserved_inputs=None if ready is None else ready.unserved_inputs,
        tasks=services.tasks,
    )
