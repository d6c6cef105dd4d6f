"""The NetworkPolicies allow every connection that the pods open, and no other.

The connections are those of the product's own code: each has the place that opens it.
``test_connections`` records them from running processes.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from tests.chart.conftest import pod_specs
from tests.chart.helms import NAMESPACE, Helm, Manifest, objects

pytestmark = pytest.mark.chart


@dataclass(frozen=True)
class Peer:
    """Somebody on the network: a pod by its labels, or an address outside."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    namespace: str = NAMESPACE
    address: str = ""


class Connection(NamedTuple):
    source: str
    target: str
    port: int
    protocol: str = "TCP"


OTHERS = (
    Peer("kube-dns", (("k8s-app", "kube-dns"),), "kube-system"),
    Peer("database", (("app.kubernetes.io/name", "postgresql"),)),
    Peer("collector", (("app", "collector"),), "tracing"),
    Peer("prometheus", (("app.kubernetes.io/name", "prometheus"),), "monitoring"),
    Peer("ingress", (("app", "nginx"),), "ingress-nginx"),
    Peer("hub", address="198.51.100.7"),
    Peer("identity provider", address="203.0.113.7"),
    Peer("batch", (("app", "batch"),)),
    Peer("stranger", (("app", "stranger"),)),
    Peer("stranger elsewhere", (("app", "nginx"),), "other"),
    Peer("internet", address="192.0.2.200"),
)
SERVER, DASHBOARD, TEST = "demo-quire", "demo-quire-dashboard", "demo-quire-test"
# What the pods of ci/network-values.yaml open, and what is opened to them.
WANTED = {
    # names are resolved: dashboard/discovery.py, the store's and the collector's client
    *(Connection(pod, "kube-dns", 53, "UDP") for pod in (SERVER, DASHBOARD, TEST)),
    *(Connection(pod, "kube-dns", 53) for pod in (SERVER, DASHBOARD, TEST)),
    Connection(SERVER, "database", 5433),  # service/store, tenants: QUIRE_STORE_URL
    Connection(SERVER, "collector", 443),  # observability/otlp.py
    Connection(SERVER, "hub", 8443),  # service/hub, in the init container
    Connection(DASHBOARD, SERVER, 8000),  # dashboard/client.py, /metrics and playground
    Connection(DASHBOARD, SERVER, 8001),  # dashboard/admin_client.py, feeds
    Connection(DASHBOARD, "identity provider", 8443),  # Streamlit's [auth]
    Connection(TEST, SERVER, 8000),  # files/smoke.py
    Connection(TEST, SERVER, 8001),
    Connection(TEST, DASHBOARD, 8501),
    Connection("ingress", SERVER, 8000),
    Connection("ingress", SERVER, 9000),
    Connection("prometheus", SERVER, 8001),
    Connection("batch", SERVER, 8000),  # extraIngress
    Connection(SERVER, "internet", 514, "UDP"),  # extraEgress
}
PORTS = (53, 443, 514, 5432, 5433, 8000, 8001, 8443, 8501, 9000)


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "matchExpressions are not walked here"
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def within(address: str, block: Manifest) -> bool:
    found = ipaddress.ip_address(address)
    excepted = any(found in ipaddress.ip_network(part) for part in block.get("except", []))
    return found in ipaddress.ip_network(block["cidr"]) and not excepted


class Network:
    """The policies, as Kubernetes documents them: a pod that one selects may only do what one of
    those allows; all others may do everything."""

    def __init__(self, manifests: list[Manifest], others: tuple[Peer, ...]) -> None:
        self.policies = [each for each in manifests if each["kind"] == "NetworkPolicy"]
        self.ports: dict[str, dict[str, int]] = {}
        own = []
        for each in manifests:
            if each["kind"] not in ("Deployment", "Pod"):
                continue
            [(name, spec)] = pod_specs([each])
            about = (
                each["metadata"] if each["kind"] == "Pod" else each["spec"]["template"]["metadata"]
            )
            is_test = each["kind"] == "Pod"
            own.append(Peer(TEST if is_test else name, tuple(about["labels"].items())))
            container = spec["containers"][0]
            self.ports[own[-1].name] = {
                port["name"]: port["containerPort"] for port in container.get("ports", [])
            }
        self.peers = {peer.name: peer for peer in (*own, *others)}

    def allows(self, connection: Connection) -> bool:
        source, target = self.peers[connection.source], self.peers[connection.target]
        return self._side("Egress", source, target, target, connection) and self._side(
            "Ingress", target, source, target, connection
        )

    def _side(
        self, way: str, subject: Peer, other: Peer, target: Peer, connection: Connection
    ) -> bool:
        chosen = [
            policy["spec"]
            for policy in self.policies
            if policy["metadata"]["namespace"] == subject.namespace
            and not subject.address
            and way in policy["spec"]["policyTypes"]
            and selects(policy["spec"]["podSelector"], dict(subject.labels))
        ]
        if not chosen:
            return True
        peers = "to" if way == "Egress" else "from"
        return any(
            self._meets(rule.get(peers), other, subject.namespace)
            and self._opens(rule.get("ports"), target, connection)
            for policy in chosen
            for rule in policy.get(way.lower()) or []
        )

    def _meets(self, peers: list[Manifest] | None, other: Peer, namespace: str) -> bool:
        if not peers:
            return True  # absent and empty are the same: everyone
        return any(self._is(peer, other, namespace) for peer in peers)

    def _is(self, peer: Manifest, other: Peer, namespace: str) -> bool:
        if "ipBlock" in peer:
            return bool(other.address) and within(other.address, peer["ipBlock"])
        if other.address:
            return False
        labels = {"kubernetes.io/metadata.name": other.namespace}
        if "namespaceSelector" in peer:
            in_namespace = selects(peer["namespaceSelector"], labels)
        else:
            in_namespace = other.namespace == namespace
        return in_namespace and selects(peer.get("podSelector", {}), dict(other.labels))

    def _opens(self, ports: list[Manifest] | None, target: Peer, connection: Connection) -> bool:
        if not ports:
            return True
        named = self.ports.get(target.name, {})
        return any(
            port.get("protocol", "TCP") == connection.protocol
            and named.get(port["port"], port["port"]) == connection.port
            for port in ports
        )


@pytest.fixture
def network(rendered_cases: Callable[[str], dict[str, str]]) -> Network:
    return Network(objects(rendered_cases("network")), OTHERS)


@pytest.mark.proves("network", "chart")
def test_every_connection_is_allowed_and_every_other_pair_denied(network: Network) -> None:
    own = {SERVER, DASHBOARD, TEST}
    pairs = [
        pair
        for pair in itertools.product(network.peers, repeat=2)
        if pair[0] != pair[1] and own & set(pair)
    ]
    allowed = {
        connection
        for source, target in pairs
        for port in PORTS
        for protocol in ("TCP", "UDP")
        if network.allows(connection := Connection(source, target, port, protocol))
    }
    assert allowed == WANTED


@pytest.mark.parametrize(
    ("policy", "connection", "is_allowed"),
    [
        ({}, Connection("stranger", SERVER, 8000), True),
        ({}, Connection("internet", SERVER, 8000), True),
        ({}, Connection("stranger", SERVER, 8001), False),
        ({"apiFrom": []}, Connection("stranger", SERVER, 8000), False),
        ({"apiFrom": []}, Connection(DASHBOARD, SERVER, 8000), True),
        ({"dashboardFrom": []}, Connection("stranger", DASHBOARD, 8501), False),
        ({}, Connection("stranger", DASHBOARD, 8501), True),
        ({"dns": []}, Connection(SERVER, "kube-dns", 53), False),
        ({}, Connection(SERVER, "internet", 443), False),
        ({}, Connection(DASHBOARD, "internet", 443), False),
        ({"enabled": False}, Connection(SERVER, "internet", 443), True),
    ],
)
def test_who_is_let_in_by_default(
    helm: Helm, policy: Any, connection: Connection, is_allowed: bool
) -> None:
    values = {
        "networkPolicy": {"enabled": True} | policy,
        "dashboard": {"enabled": True},
        "admin": {"existingSecret": "admin"},
    }
    assert Network(objects(helm.render(values)), OTHERS).allows(connection) == is_allowed
