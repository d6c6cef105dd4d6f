"""As much of the Kubernetes API as Helm uses, in memory: discovery, objects, three kinds of patch.

It enforces what a dry rendering cannot show: fields that may not change, defaults that appear when
a field is removed, quantities, and each object's schema.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.chart import merging, protobuf
from tests.chart.helms import Manifest
from tests.chart.kubernetes import VERSIONS, NotAcceptedError, check

KINDS: dict[str, dict[str, str]] = {
    "v1": {
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "secrets": "Secret",
        "pods": "Pod",
        "configmaps": "ConfigMap",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "apps/v1": {"deployments": "Deployment"},
    "leaderworkerset.x-k8s.io/v1": {"leaderworkersets": "LeaderWorkerSet"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "networking.k8s.io/v1": {"ingresses": "Ingress", "networkpolicies": "NetworkPolicy"},
    "monitoring.coreos.com/v1": {
        "servicemonitors": "ServiceMonitor",
        "podmonitors": "PodMonitor",
        "prometheusrules": "PrometheusRule",
    },
    "keda.sh/v1alpha1": {"scaledobjects": "ScaledObject"},
    "gateway.networking.k8s.io/v1": {"httproutes": "HTTPRoute"},
    "inference.networking.k8s.io/v1": {"inferencepools": "InferencePool"},
}
# Fields that an update may not change.
IMMUTABLE = {
    "Deployment": ("selector",),
    "Service": ("clusterIP",),
    "PersistentVolumeClaim": ("accessModes", "storageClassName", "resources"),
    "Pod": ("containers", "volumes"),
}
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei|e[0-9]+)?")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Key(NamedTuple):
    api: str
    resource: str
    namespace: str
    name: str


class RefusedError(Exception):
    """What the API answers with an error. ``reason`` is Kubernetes' word for it."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(message)


class FakeKubernetes:
    """The objects, and who applied which of their fields. ``namespaces``: those that there are;
    None: any."""

    def __init__(self, namespaces: set[str] | None = None) -> None:
        self.namespaces = namespaces
        self.objects: dict[Key, Manifest] = {}
        self._applied: dict[Key, dict[str, Manifest]] = {}
        self._version = 0
        self.lock = threading.RLock()

    def of_kind(self, kind: str) -> dict[str, Manifest]:
        return {key.name: each for key, each in self.objects.items() if each["kind"] == kind}

    def left(self) -> list[tuple[str, str]]:
        """Return kind and name of every object."""
        return sorted((each["kind"], key.name) for key, each in self.objects.items())

    def scale(self, name: str, replicas: int) -> None:
        """Set a Deployment's or LeaderWorkerSet's number, as an autoscaler does."""
        scaled = [(resource, name) for resource in ("deployments", "leaderworkersets")]
        [key] = [key for key in self.objects if key[1::2] in scaled]
        with self.lock:
            self.objects[key]["spec"]["replicas"] = replicas
            managers = self._applied.setdefault(key, {})
            for applied in managers.values():
                applied.get("spec", {}).pop("replicas", None)
            managers["autoscaler"] = {"spec": {"replicas": replicas}}

    def create(self, key: Key, new: Manifest, manager: str = "") -> Manifest:
        if key in self.objects:
            raise RefusedError(409, "AlreadyExists", f"{key.name} already exists")
        if self.namespaces is not None and key.namespace not in self.namespaces:
            raise RefusedError(404, "NotFound", f'namespaces "{key.namespace}" not found')
        return self._put(key, None, new, manager)

    def create_namespace(self, new: Manifest) -> Manifest:
        name, known = new["metadata"]["name"], self.namespaces or set()
        if name in known:
            raise RefusedError(409, "AlreadyExists", f'namespaces "{name}" already exists')
        self.namespaces = {*known, name}
        return new

    def patch(self, key: Key, body: Manifest, kind: str, manager: str, *, force: bool) -> Manifest:
        live = self.objects.get(key)
        if kind == "application/apply-patch+yaml":
            return self._apply(key, live, body, manager, force=force)
        if live is None:
            raise RefusedError(404, "NotFound", f"{key.name} not found")
        if kind == "application/strategic-merge-patch+json":
            return self._put(key, live, merging.strategic(live, body))
        return self._put(key, live, _json_merged(live, body))

    def replace(self, key: Key, new: Manifest) -> Manifest:
        return self._put(key, self.objects.get(key), new)

    def _apply(
        self, key: Key, live: Manifest | None, now: Manifest, manager: str, *, force: bool
    ) -> Manifest:
        managers = self._applied.setdefault(key, {})
        others = {name: each for name, each in managers.items() if name != manager}
        for name, other in others.items():
            if (fields := merging.conflicts(now, other)) and not force:
                message = f'conflict with "{name}": {", ".join(fields)}'
                raise RefusedError(409, "Conflict", message)
        before = managers.get(manager)
        merged = merging.applied(live or {}, before, now, list(others.values()))
        found = self._put(key, live, merged)
        managers[manager] = copy.deepcopy(now)
        return found

    def _put(self, key: Key, live: Manifest | None, new: Manifest, manager: str = "") -> Manifest:
        found = copy.deepcopy(new)
        found.setdefault("apiVersion", key.api)
        found.setdefault("kind", KINDS[key.api][key.resource])
        found["metadata"].setdefault("namespace", key.namespace)
        _default(found, live)
        _validate(found, live)
        self._version += 1
        found["metadata"].setdefault("uid", f"uid-{self._version}")
        found["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = found
        if manager:
            self._applied.setdefault(key, {})[manager] = copy.deepcopy(new)
        return found

    def delete(self, key: Key) -> None:
        self._applied.pop(key, None)
        if self.objects.pop(key, None) is None:
            raise RefusedError(404, "NotFound", f"{key.name} not found")


def _default(new: Manifest, live: Manifest | None) -> None:
    """Fill in what the API does where a field is absent."""
    spec = new.get("spec", {})
    if new["kind"] in ("Deployment", "LeaderWorkerSet"):
        spec.setdefault("replicas", 1)
    if new["kind"] == "Service":
        before = None if live is None else live["spec"].get("clusterIP")
        spec.setdefault("clusterIP", before or "10.96.0.7")


def _validate(new: Manifest, live: Manifest | None) -> None:
    """Raise RefusedError (422) as the API would."""
    name = f"{new['kind']} {new['metadata']['name']}"
    if live is not None:
        for field in IMMUTABLE.get(new["kind"], ()):
            if new.get("spec", {}).get(field) != live.get("spec", {}).get(field):
                raise RefusedError(422, "Invalid", f"{name}: spec.{field}: field is immutable")
    for path, quantity in _quantities(new):
        if not _QUANTITY.fullmatch(str(quantity)):
            raise RefusedError(422, "Invalid", f"{name}: {path}: {quantity!r} is not a quantity")
    sent = copy.deepcopy(new)
    for field in ("uid", "resourceVersion", "managedFields"):
        sent["metadata"].pop(field, None)
    try:
        check(sent, VERSIONS[-1])
    except NotAcceptedError as error:
        raise RefusedError(422, "Invalid", str(error)) from None


def _quantities(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            here = f"{path}.{key}"
            if key in ("limits", "requests") and isinstance(part, dict):
                yield from ((f"{here}.{name}", each) for name, each in part.items())
            elif key == "sizeLimit":
                yield here, part
            else:
                yield from _quantities(part, here)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _quantities(part, f"{path}[{number}]")


def _json_merged(base: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _json_merged(found.get(key), value)
    return found


def discovery(path: list[str]) -> Manifest | None:
    """Return what the API says about itself, if ``path`` is for that."""
    match path:
        case ["version"]:
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0", "platform": "linux/amd64"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            versions = [(api, *api.split("/")) for api in KINDS if "/" in api]
            groups = [
                {
                    "name": group,
                    "versions": [{"groupVersion": api, "version": version}],
                    "preferredVersion": {"groupVersion": api, "version": version},
                }
                for api, group, version in versions
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources("v1")
        case ["apis", group, version] if f"{group}/{version}" in KINDS:
            return _resources(f"{group}/{version}")
        case ["openapi", "v3"]:
            paths = ["api/v1" if api == "v1" else f"apis/{api}" for api in KINDS]
            return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in paths}}
        case ["openapi", "v3", _, *rest]:
            return _openapi("v1" if rest == ["v1"] else "/".join(rest))
    return None


def _resources(api: str) -> Manifest:
    resources = [
        {
            "name": name,
            "singularName": kind.lower(),
            "namespaced": True,
            "kind": kind,
            "verbs": list(_VERBS),
        }
        for name, kind in KINDS[api].items()
    ]
    about = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api}
    return {**about, "resources": resources}


def _openapi(api: str) -> Manifest:
    """Enough for a client to learn that the server validates fields."""
    prefix = "/api/v1" if api == "v1" else f"/apis/{api}"
    group, version = ["", *api.split("/")][-2:]
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    patches = {
        f"{prefix}/namespaces/{{namespace}}/{resource}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": group,
                    "version": version,
                    "kind": kind,
                },
            }
        }
        for resource, kind in KINDS[api].items()
    }
    about = {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}}
    return {**about, "paths": patches, "components": {"schemas": {}}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = url.path.strip("/").split("/")
        cluster = self.server.cluster
        try:
            with cluster.lock:
                found = discovery(path) or self._object(cluster, path, query, body)
            self._send(201 if self.command == "POST" else 200, found)
        except RefusedError as error:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            about = {"reason": error.reason, "code": error.code, "message": str(error)}
            self._send(error.code, {**status, **about})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _object(
        self, cluster: FakeKubernetes, path: list[str], query: dict[str, str], body: bytes
    ) -> Manifest:
        start = 2 if path[0] == "api" else 3
        api, rest = "/".join(path[1:start]), path[start:]
        if rest == ["namespaces"] and self.command == "POST":
            return cluster.create_namespace(yaml.safe_load(body))
        if rest[:1] != ["namespaces"] or api not in KINDS or len(rest) < 3:
            raise RefusedError(404, "NotFound", self.path)
        namespace, resource, name = rest[1], rest[2], rest[3] if len(rest) > 3 else ""
        if resource not in KINDS[api]:
            raise RefusedError(404, "NotFound", self.path)
        key = Key(api, resource, namespace, name)
        if self.command == "GET":
            return self._got(cluster, key, query)
        if self.command == "DELETE":
            cluster.delete(key)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        is_binary = body.startswith(protobuf.MAGIC)
        new = protobuf.secret(body) if is_binary else yaml.safe_load(body)
        manager = query.get("fieldManager", "")
        if self.command == "POST":
            return cluster.create(key._replace(name=new["metadata"]["name"]), new)
        if self.command == "PUT":
            return cluster.replace(key, new)
        kind = self.headers["content-type"]
        return cluster.patch(key, new, kind, manager, force=query.get("force") == "true")

    def _got(self, cluster: FakeKubernetes, key: Key, query: dict[str, str]) -> Manifest:
        if key.name:
            if key not in cluster.objects:
                raise RefusedError(404, "NotFound", f'"{key.name}" not found')
            return cluster.objects[key]
        wanted = dict(
            part.split("=", 1) for part in query.get("labelSelector", "").split(",") if "=" in part
        )
        items = [
            each
            for other, each in cluster.objects.items()
            if other[:3] == key[:3] and wanted.items() <= each["metadata"].get("labels", {}).items()
        ]
        kind = f"{KINDS[key.api][key.resource]}List"
        return {"kind": kind, "apiVersion": key.api, "metadata": {}, "items": items}

    def _send(self, status: int, found: Manifest) -> None:
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cluster: FakeKubernetes


@contextmanager
def serving(cluster: FakeKubernetes, folder: Path) -> Iterator[Path]:
    """Serve it on loopback; yield the kubeconfig that leads there."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.cluster = cluster
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [
                {
                    "name": "fake",
                    "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
                }
            ],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "nobody"}}],
            "users": [{"name": "nobody", "user": {}}],
        }
        path = folder / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            server.shutdown()
            thread.join()
