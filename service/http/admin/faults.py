"""Injects faults when an operator requests it: only those that the server was started with."""

from __future__ import annotations

import msgspec
from litestar import Response
from litestar.params import FromPath

from engine.faults.page import FaultPage
from engine.faults.table import Fault
from service.admin.problem import not_found
from service.http.admin.call import AdminCall, json_answer
from service.http.admin.queries import only
from service.http.serves import serves_admin


class FaultState(msgspec.Struct, frozen=True):
    """``asked``: how often operators requested it. ``injected``: how often it was injected, for
    whatever reason. Both since the server's start."""

    name: str
    place: str
    does: str
    expected: str
    asked: int
    injected: int


class FaultStates(msgspec.Struct, frozen=True):
    """Empty: no fault can be injected; the server was started without ``--fault``."""

    faults: tuple[FaultState, ...]


class InjectOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order without details: what happens is decided by ``--fault``."""


@serves_admin("GET /admin/v1/faults")
async def list_faults(request: AdminCall) -> Response[bytes]:
    """The faults that this server was started to inject, and how often they happened."""
    only(request.query_params)
    page = request.desk.faults
    faults = () if page is None else tuple(_state(page, fault) for fault in page.faults)
    return json_answer(FaultStates(faults))


@serves_admin("POST /admin/v1/faults/{name}", status=202)
async def inject_fault(request: AdminCall, name: FromPath[str]) -> Response[bytes]:
    """Inject a fault at the next step, request, statement or export of its place."""
    await request.decoded(InjectOrder)
    page = request.desk.faults
    if page is None:
        raise not_found("No fault can be injected: the server was started without --fault.")
    fault = next((fault for fault in page.faults if fault.name == name), None)
    if fault is None:
        names = ", ".join(fault.name for fault in page.faults)
        raise not_found(f"The server was not started with --fault {name[:64]}, only with: {names}.")
    # First, because the fault may end this process.
    request.audit("inject", target=name)
    page.ask(name)
    return json_answer(_state(page, fault), status=202)


def _state(page: FaultPage, fault: Fault) -> FaultState:
    row, counts = fault.row, page.counts(fault.name)
    return FaultState(fault.name, row.place, row.does, row.expected, counts.asked, counts.injected)
