"""What an operator can do over the admin API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath
from msgspec import Meta

from observability.admin_api import AuditRows, LoadReport
from service.admin.load import LOAD_PROFILES, LoadPlan
from service.admin.problem import ProblemError, not_found, unavailable
from service.admin.timed import LONGEST_SECONDS
from service.errors import OperatorCancelError
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
    exchange = request.desk.services.exchanges.find(request_id)
    if exchange is None:
        raise not_found(f"No request '{request_id[:64]}' is live; it may have ended.")
    error = OperatorCancelError("The request was cancelled by an operator of this server.")
    if not exchange.cancel(error):
        raise ProblemError(409, "ended", "The request's answer is already complete.")
    record = exchange.record
    request.audit("cancel", target=record.request_id, before=f"{record.route} of {record.key}")
    return json_answer({"request_id": record.request_id, "outcome": error.outcome})


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
    current = desk.settings.current()
    return json_answer(current, {"etag": f'"{current.revision}"'})


@serves_admin("POST /admin/v1/drain")
async def drain(request: AdminCall) -> Response[bytes]:
    """Accept no new requests; those in flight finish. ``/health`` says ``draining``."""
    await request.decoded(NoOrder)
    held = request.desk.services.drain
    if not held.draining:
        held.hold()
        request.audit("drain", before="accepting", after="draining")
        _mark(request, "drain", "an operator started a drain")
    return json_answer({"draining": True, "in_flight": held.in_flight})


@serves_admin("POST /admin/v1/resume")
async def resume(request: AdminCall) -> Response[bytes]:
    """Undo ``drain``."""
    await request.decoded(NoOrder)
    held = request.desk.services.drain
    if held.is_ending:
        raise ProblemError(409, "stopping", "The server is shutting down, which cannot be undone.")
    if held.draining:
        held.release()
        request.audit("resume", before="draining", after="accepting")
        _mark(request, "resume", "an operator ended the drain")
    return json_answer({"draining": False, "in_flight": held.in_flight})


@serves_admin("POST /admin/v1/loglevel")
async def log_level(request: AdminCall) -> Response[bytes]:
    """Log at another level for some seconds (the API worker, not the engine)."""
    order = await request.decoded(LogLevelOrder)
    timed = request.desk.log_level
    before = timed.value
    until = timed.override(order.level, order.seconds)
    request.audit("loglevel", before=before, after=f"{order.level} for {order.seconds:g} s")
    return json_answer({"level": order.level, "until": until, "then": timed.lasting})


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
    until = timed.override(order.ratio, order.seconds)
    after = f"{order.ratio:g} for {order.seconds:g} s"
    request.audit("tracing", before=f"{before:g}", after=after)
    return json_answer({"ratio": order.ratio, "until": until, "then": timed.lasting})


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
    rows = await request.desk.audit.rows(int(number(query, "limit", 100, 1, 1000)))
    return json_answer(AuditRows(rows))


def _mark(request: AdminCall, kind: str, text: str) -> None:
    request.desk.services.overviews.mark(kind, text)
