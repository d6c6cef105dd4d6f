"""Marked prompts, outputs, names, values and keys are found in nothing that shows requests.

Each sink is a row of ``SINKS``: what is new gets one here.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.dashboard.running import PATIENCE_MS, chromium, dashboard_of, in_chromium
from tests.e2e.quire_server import QuireServer, command_of, descendants, free_port, until
from tests.observability.otlp_receiver import Receiver, grpc_receiver

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# What must not be found, by where it was put. No word of one is part of another.
CANARIES = {
    "prompt": "promptbird",
    "output": "outputbird",
    "tool": "toolbird",
    "property": "propertybird",
    "value": "valuebird",
    "user": "userbird",
    "stop": "stopbird",
    "key": "keybirdkeybird",
    "wrong key": "wrongkeybird",
    "admin key": "adminbirdadminbird",
    "header": "headerbird",
    "file key": "filebirdfilebird",
    "stored key": "",  # random: known once it is made
}
KEY = {"authorization": f"Bearer {CANARIES['key']}"}
ADMIN = {"authorization": f"Bearer {CANARIES['admin key']}"}
REPLY = {"when": "", "reply": f"{CANARIES['output']} " * 200, "end": False}


@dataclass
class Scene:
    """A server that has served marked requests, and all around it."""

    server: QuireServer
    admin_port: int
    spans: Receiver
    folder: Path
    killed_memory: bytes = b""  # when a worker had just been killed

    def admin(self, path: str) -> bytes:
        """A worker that has just begun says 503 until it has opened the store."""

        def answered() -> tuple[int, bytes] | None:
            reply = self.at_admin("GET", f"/admin/v1{path}")
            return None if reply[0] == 503 else reply

        status, body = until(answered, 30, path)
        assert status == 200, body
        return body

    def at_admin(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: Any = None
    ) -> tuple[int, bytes]:
        listener = QuireServer()
        listener.port = self.admin_port
        data = None if body is None else json.dumps(body).encode()
        return listener.request(method, path, data, ADMIN | (headers or {}))

    def operate(self, path: str, body: Any) -> None:
        status, reply = self.at_admin("POST", f"/admin/v1{path}", body=body)
        assert status == 200, reply

    def memory(self) -> bytes:
        """What the supervisor keeps for workers: ledger and history."""
        assert self.server.process is not None
        kept = b""
        for descriptor in Path(f"/proc/{self.server.process.pid}/fd").iterdir():
            if os.readlink(descriptor).startswith("/memfd:quire-"):
                kept += descriptor.read_bytes()
        return kept

    def worker(self) -> int:
        assert self.server.process is not None

        def found() -> int | None:
            assert self.server.process is not None
            for pid in descendants(self.server.process.pid):
                if b"service.worker" in command_of(pid):
                    return pid
            return None

        return until(found, 30, "a worker")


def _bundle(scene: Scene) -> bytes:
    with zipfile.ZipFile(io.BytesIO(scene.admin("/bundle"))) as archive:
        return b"\n".join(archive.read(name) for name in archive.namelist())


def _exports(scene: Scene) -> bytes:
    said = b""
    for name in ("requests", "usage"):
        said += scene.admin(f"/{name}.csv")
        table = pq.read_table(io.BytesIO(scene.admin(f"/{name}.parquet")))
        said += str(table.to_pylist()).encode()
    return said


def _load_trace(scene: Scene) -> bytes:
    """Of several workers the lead's requests alone are in it, and the kernel chooses the worker."""

    def recorded() -> bytes:
        ask(scene.server)
        return scene.admin("/loadtrace")

    return until(recorded, 60, "the lead to serve a request")


def _feed(scene: Scene) -> bytes:
    """One frame, with the live requests and the map of the KV cache."""
    connection = http.client.HTTPConnection("127.0.0.1", scene.admin_port, timeout=30)
    connection.request("GET", "/admin/v1/feed?kv=1", headers=ADMIN)
    reply = connection.getresponse()
    said = b""
    while b'"overview"' not in said or b'"runs"' not in said:
        said += reply.readline()
    connection.close()
    return said


def _store(scene: Scene) -> bytes:
    return b"".join(path.read_bytes() for path in scene.folder.glob("store.sqlite3*"))


def _spans(scene: Scene) -> bytes:
    return b"".join(span.SerializeToString() for span in scene.spans.spans)


_OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def _metrics(scene: Scene) -> bytes:
    return b"".join(scene.at_admin("GET", "/metrics", form)[1] for form in ({}, _OPENMETRICS))


# By name: how to read it all, and what it must hold to prove that it was read.
SINKS: dict[str, tuple[Callable[[Scene], bytes], bytes]] = {
    "log": (lambda scene: scene.server.output().encode(), b'"event":"request"'),
    "metrics": (_metrics, b"quire_requests_total"),
    "spans": (_spans, b"quire.outcome"),
    "ledger": (Scene.memory, b"QUIRELG1"),
    "ledger of a killed worker": (lambda scene: scene.killed_memory, b"chat_completions"),
    "audit log": (lambda scene: (scene.folder / "audit.log").read_bytes(), b"loglevel"),
    "store": (_store, b"quire_requests"),
    "overview": (lambda scene: scene.admin("/overview"), b"verdict"),
    "ended requests": (lambda scene: scene.admin("/requests?since=1h"), b"client_gone"),
    "series": (lambda scene: scene.admin("/series?names=tokens_out&from=15m"), b"tokens_out"),
    "usage": (lambda scene: scene.admin("/usage?by=key"), b"team"),
    "prefixes": (lambda scene: scene.admin("/kv/prefixes"), b"prefixes"),
    "KV map": (lambda scene: scene.admin("/kv"), b"runs"),
    "keys": (lambda scene: scene.admin("/keys"), b"stored-team"),
    "audit rows": (lambda scene: scene.admin("/audit"), b"loglevel"),
    "settings": (lambda scene: scene.admin("/settings"), b"revision"),
    "bundle": (_bundle, b"versions"),
    "exports": (_exports, b"chat_completions"),
    "load trace": (_load_trace, b"hash_ids"),
    "feed": (_feed, b"verdict"),
}
# By path: what says that the page is drawn. Left out is the playground, which needs no admin key
# and shows its visitor's own texts.
PAGES = {
    "": "Healthy",
    "requests": "Longest phase",
    "kv": "Shared prefixes",
    "usage": "Days start at midnight UTC",
    "load": "There has been no load run",
    "admin": "loglevel",
}


def ask(server: QuireServer, key: dict[str, str] = KEY, **fields: Any) -> int:
    body = {
        "messages": [
            {"role": "system", "content": CANARIES["prompt"]},
            {"role": "user", "content": f"{CANARIES['prompt']} " * 40},
        ],
        "max_tokens": 30,
        "user": CANARIES["user"],
        "stop": [CANARIES["stop"]],
        **fields,
    }
    headers = {**key, "x-whatever": CANARIES["header"], "user-agent": "agent"}
    return int(server.post("/v1/chat/completions", body, headers)[0])


def begin(server: QuireServer) -> http.client.HTTPConnection:
    """Return a connection on which a long answer has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    messages = [{"role": "user", "content": CANARIES["prompt"]}]
    body = {"messages": messages, "stream": True, "max_tokens": 400}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), KEY)
    reply = connection.getresponse()
    assert reply.status == 200
    for _ in range(10):
        reply.readline()
    return connection


def drive(scene: Scene) -> None:
    server = scene.server
    assert ask(server) == 200
    tool = {"name": CANARIES["tool"], "parameters": {"type": "object", "properties": {}}}
    assert ask(server, tools=[{"type": "function", "function": tool}]) == 200
    assert ask(server, unknown=CANARIES["value"]) == 200
    assert ask(server, temperature=CANARIES["value"]) == 400
    schema = {"type": "object", "properties": {CANARIES["property"]: {"type": CANARIES["value"]}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert ask(server, response_format=form) == 400
    # Until the worker has read the stored keys, it says 503: the key may be one of them.
    wrong = {"authorization": f"Bearer {CANARIES['wrong key']}"}
    until(lambda: ask(server, wrong) == 401, 30, "the stored keys to be read")
    assert ask(server, {"authorization": f"Bearer {CANARIES['file key']}"}) == 200
    order = {"alias": "stored-team", "tokens_per_day": 10**6}
    status, made = scene.at_admin("POST", "/admin/v1/keys", body=order)
    assert status == 201
    CANARIES["stored key"] = json.loads(made)["key"]
    assert ask(server, {"authorization": f"Bearer {CANARIES['stored key']}"}) == 200
    begin(server).close()
    scene.operate("/loglevel", {"level": "debug", "seconds": 600})
    assert ask(server) == 200
    cut = begin(server)
    os.kill(scene.worker(), signal.SIGKILL)
    scene.killed_memory = scene.memory()
    cut.close()
    server.wait_ready()
    scene.operate("/loadtrace", {"seconds": 600})
    assert ask(server) == 200
    scene.operate("/loglevel", {"level": "info", "seconds": 600})

    def logged() -> bool:
        return sum(line["event"] == "request" for line in server.log_lines()) >= 10

    until(logged, 30, "the log lines of all requests")

    def stored() -> bool:
        status, body = scene.at_admin("GET", "/admin/v1/usage?by=key")
        return status == 200 and b"team" in body

    until(stored, 30, "the usage in the store")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("canary")
    script = folder / "replies.jsonl"
    script.write_text(json.dumps(REPLY))
    keys = folder / "keys.toml"
    keys.write_text(f'[[keys]]\nalias = "file-team"\nkey = "{CANARIES["file key"]}"\n')
    admin_port = free_port()
    variables = {
        "QUIRE_API_KEY": f"team={CANARIES['key']}",
        "QUIRE_ADMIN_KEY": f"operate:ann={CANARIES['admin key']}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    with pytest.MonkeyPatch.context() as patch, grpc_receiver() as receiver:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        with QuireServer(
            f"simulated:step=5ms,script={script}",
            *("--admin-port", str(admin_port), "--audit-log", str(folder / "audit.log")),
            *("--store-url", f"sqlite:///{folder}/store.sqlite3"),
            *("--stored-keys", "--keys-file", str(keys)),
        ) as server:
            scene = Scene(server, admin_port, receiver, folder)
            drive(scene)
            for name in variables:
                patch.delenv(name)
            yield scene


def found(text: bytes) -> list[str]:
    return [where for where, canary in CANARIES.items() if canary.encode() in text]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("sink", SINKS)
def test_no_marked_text_is_found(sink: str, scene: Scene) -> None:
    read, proof = SINKS[sink]

    def proven() -> bytes:
        text = read(scene)
        return text if proof in text else b""

    text = until(proven, 30, f"{proof!r} in the sink")  # of several workers records come late
    assert not found(text)


@in_chromium
@pytest.mark.timeout(300)
def test_no_page_of_the_dashboard_says_a_marked_text(scene: Scene) -> None:
    """Neither what is drawn nor what the browser gets, nor the dashboard's log."""
    from playwright.sync_api import sync_playwright

    admin = f"http://127.0.0.1:{scene.admin_port}"
    log = scene.folder / "dashboard.log"
    said: dict[str, list[str]] = {}
    with (
        dashboard_of(scene.server.url, log, admin=admin) as dashboard,
        sync_playwright() as driver,
    ):
        browser = chromium(driver)
        [ended, *_] = json.loads(scene.admin("/requests?since=1h"))["requests"]
        for path, proof in {**PAGES, f"request?id={ended['request_id']}": "Phases"}.items():
            said[path] = found(drawn(browser, f"{dashboard}/{path}", proof))
        browser.close()
    said["log"] = found(log.read_bytes())
    assert {path: marked for path, marked in said.items() if marked} == {}


def drawn(browser: Browser, address: str, proof: str) -> bytes:
    """Return a page as it is drawn for a visitor who has signed in, and all that was sent to it."""
    page: Page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    received: list[bytes] = []

    def receive(frame: str | bytes) -> None:
        received.append(frame.encode() if isinstance(frame, str) else frame)

    page.on("websocket", lambda socket: socket.on("framereceived", receive))
    page.goto(address)
    page.get_by_label("Admin key").fill(CANARIES["admin key"])
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_text(proof).first.wait_for(state="attached")  # a table's cells are hidden
    text = page.content().encode()
    page.close()
    return text + b"".join(received)
