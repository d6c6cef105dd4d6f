"""Which series of ``quire_requests_total`` exist before a request ended so."""

from __future__ import annotations

from engine.messages import Ready
from observability import catalogue
from observability.catalogue import OTHER_MODEL
from observability.metrics import MetricRegistry
from observability.outcomes import OUTCOMES, ROUTE_TABLE, Trait, can_end


def create_request_series(metrics: MetricRegistry, *, without: Trait) -> None:
    """Create those that are possible, but for routes with any of the traits in ``without``."""
    labels = metrics.series(catalogue.REQUESTS)
    for route in ROUTE_TABLE:
        if route.traits & without:
            continue
        for outcome in OUTCOMES:
            for model in (*metrics.models, OTHER_MODEL):
                if can_end(route, outcome, named=model != OTHER_MODEL):
                    labels(model, route.name, outcome.name)


def unserved(ready: Ready) -> Trait:
    """Return the traits of routes that refuse every request, because of the model."""
    generation = Trait.NONE if ready.generates else Trait.GENERATES
    pooling = Trait.NONE if ready.embedding_size or ready.num_scores else Trait.POOLS
    return generation | pooling
