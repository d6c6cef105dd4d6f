"""With ``api.allowedHosts``, a release's own connections are still answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from service.admin.gate import AdminGate, Approach
from service.admin.problem import ProblemError
from service.admin_keys import admin_keys
from service.errors import ForbiddenError
from service.http.origins import OriginRules
from tests.chart.conftest import component, server_container
from tests.chart.helms import NAMESPACE, Helm, Manifest, Values, objects

pytestmark = pytest.mark.chart

ADDRESSES = ("10.0.0.7", "[fd00::7]")
KEY = "read:bob=reader-key-1"


def word(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def hosts(rendered: list[Manifest], port: str) -> Iterator[str]:
    """Yield what may be in the Host header of a request to the server's port."""
    for each in rendered:
        if each["kind"] == "Service" and "dashboard" not in each["metadata"]["name"]:
            for offered in each["spec"]["ports"]:
                if offered["name"] == port:
                    name = each["metadata"]["name"]
                    for suffix in ("", f".{NAMESPACE}", f".{NAMESPACE}.svc"):
                        yield f"{name}{suffix}:{offered['port']}"
    yield from (f"{address}:8000" for address in ADDRESSES)  # probes and scrapes of pods


@pytest.mark.parametrize("allowed", [["llm.example"], ["*"]])
def test_services_and_pods_are_answered_and_other_names_are_not(
    helm: Helm, allowed: list[str]
) -> None:
    values: Values = {
        "api": {"allowedHosts": allowed},
        "admin": {"existingSecret": "admin"},
        "dashboard": {"enabled": True},
    }
    rendered = objects(helm.render(values))
    arguments = server_container(component(rendered, "Deployment", "server"))["args"]
    names = tuple(word(arguments, "--allowed-hosts").split(","))
    assert names[: len(allowed)] == tuple(allowed)
    rules = OriginRules.of(
        host=word(arguments, "--host"), keys=False, allowed_hosts=names, allowed_origins=()
    )

    def call(host: str) -> None:
        scope: Any = {"method": "GET", "headers": [(b"host", host.encode())]}
        rules.check(scope)

    gate = AdminGate(admin_keys((KEY,)), host=word(arguments, "--admin-host"), allowed_hosts=names)

    def administer(host: str) -> None:
        approach = Approach("10.0.0.9", host.encode(), authorization=b"Bearer reader-key-1")
        gate.check(approach)

    for host in hosts(rendered, "http"):
        call(host)
    for host in hosts(rendered, "admin"):
        administer(host)
    if allowed != ["*"]:
        with pytest.raises(ForbiddenError):
            call("evil.example")
        with pytest.raises(ProblemError):
            administer("evil.example")


def test_without_the_setting_no_names_are_given(helm: Helm) -> None:
    rendered = objects(helm.render({}))
    arguments = server_container(component(rendered, "Deployment", "server"))["args"]
    assert "--allowed-hosts" not in arguments
