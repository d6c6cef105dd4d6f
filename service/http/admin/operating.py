"""What an operator can do over the admin API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath
from msgspec import Meta

from observability.admin_api import LoadReport
from service.admin.load import LOAD_PROFILES, LoadPlan
from service.admin.own_part import CANCEL_AT, DRAIN_OF, OVERRIDE_AT, SETTINGS_OF
from service.admin.part_messages import (
    DrainAsk,
    DrainPart,
    OverrideAsk,
    RequestName,
    SettingsAsk,
)
from service.admin.problem import ProblemError, not_found, unavailable
from service.admin.timed import LONGEST_SECONDS
from service.admin.whole import Gathered
from service.http.admin.call import AdminCall, json_answer
from service.http.admin.queries import number, only
from service.http.serves import serves_admin

_Seconds = Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)]


class LogLevelOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``seconds``: after which the level before is set again."""

    level: Literal["debug", "info", "warning", "error"]
    seconds: _Seconds = 300.0


class TracingOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ratio``: share of requests whose spans are exported, for some seconds."""

    ratio: Annotated[float, Meta(ge=0, le=1)]
    seconds: _Seconds = 300.0


class NoOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order without details."""


@serves_admin("POST /admin/v1/requests/{request_id}/cancel")
async def cancel_request(request: AdminCall, request_id: FromPath[str]) -> Response[bytes]:
    """End a live request as ``cancelled``; its client gets its API's error."""
    await request.decoded(NoOrder)
    told = await request.desk.whole.ask(request_id, CANCEL_AT, RequestName(request_id))
    found = [part for part in told.parts if part.request_id]
    if not found:
        raise not_found(f"No request '{request_id[:64]}' is live; it may have ended.", told.headers)
    cancelled = [part for part in found if not part.is_complete]
    if not cancelled:
        raise ProblemError(
            409, "ended", "The request's answer is already complete.", headers=told.headers
        )
    for part in cancelled:  # several, if one trace has requests at several workers
        request.audit("cancel", target=part.request_id, before=part.whose)
    first = cancelled[0]
    return json_answer({"request_id": first.request_id, "outcome": first.outcome}, told.headers)


@serves_admin("GET /admin/v1/settings")
async def hot_settings(request: AdminCall) -> Response[bytes]:
    """The settings that can be changed while the server runs."""
    only(request.query_params)
    current = request.desk.settings.current()
    return json_answer(current, {"etag": f'"{current.revision}"'})


@serves_admin("PATCH /admin/v1/settings")
async def change_settings(request: AdminCall) -> Response[bytes]:
    """Change settings: a JSON object of names and values. Needs If-Match."""
    wanted = await request.decoded(dict[str, Any])
    desk = request.desk
    changes = desk.settings.change(wanted, request.headers.get("if-match"), request.actor.alias)
    for change in changes:
        before, after = str(change.before), str(change.after)
        request.audit("settings", target=change.name, before=before, after=after)
        _mark(request, "setting", f"{change.name}: {before} → {after}")
    # Also those that were the same here: another worker may have other values.
    values = {one.name: one.value for one in desk.settings.current().settings if one.name in wanted}
    told = await desk.whole.gather(SETTINGS_OF, SettingsAsk(values, request.actor.alias))
    current = desk.settings.current()
    return json_answer(current, {"etag": f'"{current.revision}"', **told.headers})


@serves_admin("POST /admin/v1/drain")
async def drain(request: AdminCall) -> Response[bytes]:
    """Accept no new requests; those in flight finish. ``/health`` says ``draining``."""
    await request.decoded(NoOrder)
    was_draining = request.desk.services.drain.draining
    told = await request.desk.whole.gather(DRAIN_OF, DrainAsk(held=True))
    if not was_draining:
        request.audit("drain", before="accepting", after="draining")
        _mark(request, "drain", "an operator started a drain")
    return _drain_answer(told, draining=True)


@serves_admin("POST /admin/v1/resume")
async def resume(request: AdminCall) -> Response[bytes]:
    """Undo ``drain``."""
    await request.decoded(NoOrder)
    drain = request.desk.services.drain
    if drain.is_ending:
        raise ProblemError(409, "stopping", "The server is shutting down, which cannot be undone.")
    was_draining = drain.draining
    told = await request.desk.whole.gather(DRAIN_OF, DrainAsk(held=False))
    if was_draining:
        request.audit("resume", before="draining", after="accepting")
        _mark(request, "resume", "an operator ended the drain")
    return _drain_answer(told, draining=False)


def _drain_answer(told: Gathered[DrainPart], *, draining: bool) -> Response[bytes]:
    in_flight = sum(part.in_flight for part in told.parts)
    return json_answer({"draining": draining, "in_flight": in_flight}, told.headers)


@serves_admin("POST /admin/v1/loglevel")
async def log_level(request: AdminCall) -> Response[bytes]:
    """Log at another level for some seconds (the API workers, not the engine)."""
    order = await request.decoded(LogLevelOrder)
    timed = request.desk.log_level
    before = timed.value
    told = await request.desk.whole.gather(
        OVERRIDE_AT, OverrideAsk("log_level", order.level, order.seconds)
    )
    request.audit("loglevel", before=before, after=f"{order.level} for {order.seconds:g} s")
    answer = {"level": order.level, "until": timed.until, "then": timed.lasting}
    return json_answer(answer, told.headers)


@serves_admin("POST /admin/v1/tracing")
async def tracing(request: AdminCall) -> Response[bytes]:
    """Export the spans of another share of requests for some seconds."""
    order = await request.decoded(TracingOrder)
    timed = request.desk.tracing
    if timed is None:
        raise unavailable(
            "This server exports no spans; start it with OTEL_EXPORTER_OTLP_ENDPOINT."
        )
    before = timed.value
    told = await request.desk.whole.gather(
        OVERRIDE_AT, OverrideAsk("tracing", order.ratio, order.seconds)
    )
    after = f"{order.ratio:g} for {order.seconds:g} s"
    request.audit("tracing", before=f"{before:g}", after=after)
    answer = {"ratio": order.ratio, "until": timed.until, "then": timed.lasting}
    return json_answer(answer, told.headers)


@serves_admin("GET /admin/v1/load")
async def load_run(request: AdminCall) -> Response[bytes]:
    """The load run in progress, or else the last one."""
    only(request.query_params)
    last = request.desk.load.last()
    profiles = {name: profile.help for name, profile in LOAD_PROFILES.items()}
    return json_answer(LoadReport(run=last, profiles=profiles))


@serves_admin("POST /admin/v1/load", status=202)
async def start_load(request: AdminCall) -> Response[bytes]:
    """Start a load run against this server."""
    plan = await request.decoded(LoadPlan)
    run = request.desk.load.start(plan)
    what = f"{plan.rate:g}/s for {plan.seconds:g} s, {plan.concurrency} at once"
    request.audit("load", target=plan.profile, after=what)
    _mark(request, "load", f"{plan.profile}: {what}")
    return json_answer(run, status=202)


@serves_admin("DELETE /admin/v1/load")
async def stop_load(request: AdminCall) -> Response[bytes]:
    """Stop the load run in progress."""
    last = request.desk.load.last()
    is_running = last is not None and last.state == "running"
    stopped = await request.desk.load.stop()
    if stopped is None:
        raise not_found("There has been no load run since the API worker started.")
    if is_running:
        request.audit("load", target=stopped.profile, before="running", after="stopped")
    return json_answer(stopped)


@serves_admin("GET /admin/v1/audit")
async def audit_rows(request: AdminCall) -> Response[bytes]:
    """What operators changed or tried to, the newest first."""
    query = request.query_params
    only(query, "limit")
    desk = request.desk
    limit = int(number(query, "limit", 100, 1, 1000))
    told = await desk.whole.audit_rows(limit, is_shared=desk.archive is not None)
    return json_answer(told.parts[0], told.headers)


def _mark(request: AdminCall, kind: str, text: str) -> None:
    request.desk.services.overviews.mark(kind, text)
