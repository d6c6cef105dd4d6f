"""An operator has faults injected, if the server was started for them."""

from __future__ import annotations

from pathlib import Path

from engine.faults.page import FaultPage
from engine.faults.table import parse_fault
from service.admin_app import create_admin_app
from tests.service.http.admin.asking import KEYS, OPERATE, READ, admin_app, ask
from tests.service.http.apps import new_app

V1 = "/admin/v1/faults"


async def test_a_fault_is_asked_for_listed_and_audited(own_template: Path, tmp_path: Path) -> None:
    texts = ("slow_step:times=0", "store_down")
    page = FaultPage.create(tmp_path / "faults", [parse_fault(text) for text in texts])
    app = create_admin_app(new_app(own_template, tmp_path, admin_key=KEYS), page)
    reply = await ask(app, "POST", f"{V1}/slow_step", key=OPERATE)
    assert (reply.status, reply.json()["asked"], reply.json()["injected"]) == (202, 1, 0)
    assert page.fulfil("slow_step")
    rows = (await ask(app, "GET", V1, key=READ)).json()["faults"]
    assert [(row["name"], row["asked"], row["injected"]) for row in rows] == [
        ("slow_step", 1, 1),
        ("store_down", 0, 0),
    ]
    audit = (await ask(app, "GET", "/admin/v1/audit", key=READ)).json()["rows"]
    assert [(row["actor"], row["action"], row["target"]) for row in audit] == [
        ("ann", "inject", "slow_step")
    ]
    other = await ask(app, "POST", f"{V1}/engine_kill", key=OPERATE)
    assert other.status == 404
    assert "only with: slow_step, store_down" in other.json()["detail"]
    assert (await ask(app, "POST", f"{V1}/slow_step", key=READ)).status == 403


async def test_a_server_without_faults_injects_none(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, admin_key=KEYS)
    assert (await ask(app, "GET", V1, key=READ)).json() == {"faults": []}
    reply = await ask(app, "POST", f"{V1}/slow_step", key=OPERATE)
    assert reply.status == 404
    assert "--fault" in reply.json()["detail"]
