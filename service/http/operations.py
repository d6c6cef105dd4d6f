"""Routes for operators: health, readiness, metrics."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from service.http.call import HttpCall
from service.serving.services import Services

OPEN = {"open": True}


class EngineHealth(msgspec.Struct, frozen=True):
    """``phase``: connecting, loading, ready or lost. Counts are those of the last engine step.
    ``architecture``: the model's, as in its config.json; ``simulated`` if no model is loaded.
    ``tensor_parallel_size``: how many devices share the model. ``tasks``: the supported ones of
    generate, embed and score."""

    phase: str
    detail: str
    running: int | None
    waiting: int | None
    max_model_len: int | None
    architecture: str | None
    tasks: tuple[str, ...] | None
    tensor_parallel_size: int | None


class Health(msgspec.Struct, frozen=True):
    """``status``: ok, loading, draining, lost, failing or silent. ``problem``: why it fails."""

    status: str
    model: str
    engine: EngineHealth
    problem: str | None = None


def _health(services: Services) -> Health:
    state, stats = services.link.state, services.link.stats
    engine = EngineHealth(
        state.phase.value,
        state.detail,
        None if stats is None else stats.running,
        None if stats is None else stats.waiting,
        None if state.ready is None else state.ready.max_model_len,
        None if state.ready is None else state.ready.architecture,
        services.tasks,
        None if state.ready is None else state.ready.tensor_parallel_size,
    )
    status = services.health()
    problem = services.supervision.problem if status == "failing" else None
    return Health(status, services.limits.names[0], engine, problem)


def _respond(health: Health, *, healthy: bool) -> Response[bytes]:
    return Response(
        content=msgspec.json.encode(health),
        status_code=200 if healthy else 503,
        media_type="application/json",
        headers={"cache-control": "no-store"},
    )


@get(["/health", "/health/ready"], opt=OPEN)
async def ready(request: HttpCall) -> Response[bytes]:
    """Return 200 while requests are accepted and the engine makes progress or is idle."""
    health = _health(request.services)
    return _respond(health, healthy=health.status == "ok")


@get("/health/live", opt=OPEN)
async def live(request: HttpCall) -> Response[bytes]:
    """Return 503 only if nothing but a full restart can help: the supervisor hangs, or has tried
    repeatedly to start the engine; or there is no supervisor, and the engine is dead or stuck."""
    services = request.services
    health = _health(services)
    is_lost = health.status in ("lost", "failing", "silent")
    hopeless = services.supervision.is_hopeless(engine_is_lost=is_lost)
    return _respond(health, healthy=not hopeless)


@get("/metrics", opt=OPEN)
async def metrics(request: HttpCall) -> Response[bytes]:
    services = request.services
    body, content_type = await services.metrics_pages.page(request.headers.get("accept", ""))
    # Prometheus' media types include a charset and version.
    return Response(content=body, status_code=200, headers={"content-type": content_type})
