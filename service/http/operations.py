"""Routes for operators: health, readiness, metrics."""

from __future__ import annotations

import msgspec
from litestar import Response

from service.engine.engines import Engines
from service.http.call import HttpCall
from service.http.serves import serves
from service.serving.services import Services


class EngineHealth(msgspec.Struct, frozen=True):
    """``phase``: connecting, loading, ready or lost. Counts are those of the last engine step.
    ``silence_seconds``: since its last message; null before the first. ``step_seconds``: how long a
    step has run that takes more than a second; null while none does.
    ``architecture``: the model's, as in its config.json; ``simulated`` if no model is loaded.
    ``implementation``: whose code computes it: native (our own) or transformers.
    ``quantization``: how its weights are stored in few bits; empty for floats.
    ``unserved_inputs``: what its checkpoint reads besides text (image, video, audio), which is not
    supported here.
    ``tensor_parallel_size``: how many devices share the model. ``tasks``: the supported ones of
    generate, embed and score."""

    phase: str
    detail: str
    running: int | None
    waiting: int | None
    silence_seconds: float | None
    step_seconds: float | None
    max_model_len: int | None
    architecture: str | None
    implementation: str | None
    quantization: str | None
    unserved_inputs: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    tensor_parallel_size: int | None


class Download(msgspec.Struct, frozen=True):
    """Bytes of the model's files; 0 of 0 until they are known."""

    bytes_done: int
    bytes_total: int


class Health(msgspec.Struct, frozen=True):
    """``status``: ok, downloading, loading, draining, lost, failing or silent. ``server``: host
    name and port, which no other replica has. ``problem``: why the engine is failing or silent.
    ``engine``: all engines together, ready if one is; ``engines``: each one, if there are several.
    ``download``: while the model is downloaded."""

    status: str
    server: str
    model: str
    engine: EngineHealth
    problem: str | None = None
    engines: tuple[EngineHealth, ...] | msgspec.UnsetType = msgspec.UNSET
    download: Download | msgspec.UnsetType = msgspec.UNSET


def _engine_health(services: Services, link: Engines) -> EngineHealth:
    state, stats = link.state, link.stats
    return EngineHealth(
        state.phase.value,
        services.supervision.engine_detail(state.detail),
        None if stats is None else stats.running,
        None if stats is None else stats.waiting,
        None if link.last_message_time is None else round(link.silence, 3),
        link.step_seconds,
        None if state.ready is None else state.ready.max_model_len,
        None if state.ready is None else state.ready.architecture,
        None if state.ready is None else state.ready.implementation,
        None if state.ready is None else state.ready.quantization,
        None if state.ready is None else state.ready.unserved_inputs,
        services.tasks,
        None if state.ready is None else state.ready.tensor_parallel_size,
    )


def _health(services: Services) -> Health:
    link = services.link
    engine = _engine_health(services, link)
    each = tuple(_engine_health(services, one) for one in link.links)
    download = services.supervision.download
    return Health(
        services.health(),
        services.server,
        services.limits.names[0],
        engine,
        services.problem(services.engine_status()),
        each if len(each) > 1 else msgspec.UNSET,
        msgspec.UNSET if download is None else Download(*download),
    )


def _respond(health: Health, *, healthy: bool) -> Response[bytes]:
    return Response(
        content=msgspec.json.encode(health),
        status_code=200 if healthy else 503,
        media_type="application/json",
        headers={"cache-control": "no-store"},
    )


@serves("GET /health", "GET /health/ready")
async def ready(request: HttpCall) -> Response[bytes]:
    """Return 200 while requests are accepted and the engine makes progress or is idle."""
    health = _health(request.services)
    return _respond(health, healthy=health.status == "ok")


@serves("GET /health/live")
async def live(request: HttpCall) -> Response[bytes]:
    """Return 503 only if nothing but a full restart can help: the supervisor hangs, or has tried
    repeatedly to start the engine; or there is no supervisor, and the engine is dead or stuck."""
    services = request.services
    health = _health(services)
    is_lost = health.status in ("lost", "failing", "silent")
    hopeless = services.supervision.is_hopeless(engine_is_lost=is_lost)
    return _respond(health, healthy=not hopeless)


@serves("GET /metrics")
async def metrics(request: HttpCall) -> Response[bytes]:
    body, content_type = await request.services.metrics_pages.page(
        request.headers.get("accept", "")
    )
    # Prometheus' media types include a charset and version.
    return Response(content=body, status_code=200, headers={"content-type": content_type})
