"""The connections that ``test_network`` knows are those that running pods open: recorded while a
model is downloaded, a server with a database and a collector answers, a visitor signs in to the
dashboard and chats, and `helm test` runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from dashboard.settings import ADMIN_KEY_VARIABLE
from pocket import MODEL_DIR
from tests.chart.helms import ROOT
from tests.chart.test_network import DASHBOARD, SERVER, TEST, WANTED, Connection
from tests.chart.test_smoke import SMOKE, MountedSecret, Running
from tests.dashboard.oidc_provider import OidcProvider, oidc_provider
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, chromium, dashboard_of
from tests.e2e.quire_server import QuireServer, command_of, descendants, free_port
from tests.observability.otlp_receiver import Receiver, http_receiver
from tests.service.hub_server import HubServer, Repository
from tests.service.running_postgres import Postgres, programs

pytestmark = [
    *IN_CHROMIUM,
    pytest.mark.integration,
    pytest.mark.skipif(programs() is None, reason="needs Debian's postgresql"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

PODS = (SERVER, DASHBOARD, TEST)
NAME = "quire/pocket"
ADMIN = "sk-admin-0123456789"
RECORD_VARIABLE = "RECORD_CONNECTIONS_IN"


class Recorder:
    """Writes down what the processes of each pod listen at, connect to and look up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "recorder.so"
        source = Path(__file__).with_name("recorder.c")
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"]
        subprocess.run(command, check=True)

    @contextmanager
    def starting(self, pod: str, **environment: str) -> Iterator[None]:
        """Processes that are started meanwhile, and all that they start later, are the pod's."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(self._library))
            patch.setenv(RECORD_VARIABLE, str(self._folder / pod))
            for name, value in environment.items():
                patch.setenv(name, value)
            yield

    def records(self, pid: int) -> bool:
        """True also if the process has ended meanwhile."""
        maps = ""
        with suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text()
        return not maps or str(self._library) in maps

    def lines(self, pod: str) -> list[list[str]]:
        """As recorder.c writes them, in words."""
        path = self._folder / pod
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


class Record:
    """What was recorded, in the terms of ``test_network``. ``names``: whose each port is here, and
    which one it is in the chart."""

    def __init__(self, recorder: Recorder, names: dict[int, tuple[str, int]]) -> None:
        self._lines = {pod: recorder.lines(pod) for pod in PODS}
        self._names = names

    def _named(self, port: str) -> tuple[str, int]:
        return self._names.get(int(port), ("unknown", int(port)))

    def opened(self) -> set[Connection]:
        """Every connection that a pod has opened to something other than itself."""
        found = set()
        for pod, lines in self._lines.items():
            for words in lines:
                if words[0] == "lookup":
                    found |= {Connection(pod, "kube-dns", 53, kind) for kind in ("UDP", "TCP")}
                elif words[0] == "connect":
                    found.add(Connection(pod, *self._named(words[2]), words[1]))
        return {connection for connection in found if connection.target != connection.source}

    def accepted(self) -> set[tuple[str, int]]:
        """Every port at which a pod listens."""
        return {
            (pod, self._named(words[2])[1])
            for pod, lines in self._lines.items()
            for words in lines
            if words[0] == "listen"
        }


@dataclass(frozen=True)
class Surroundings:
    """What the pods connect to."""

    postgres: Postgres
    collector: Receiver
    hub: HubServer
    provider: OidcProvider

    def names(self) -> dict[int, tuple[str, int]]:
        return {
            port_of(self.postgres.url): ("database", 5433),
            port_of(self.collector.endpoint): ("collector", 443),
            self.hub.port: ("hub", 8443),
            self.provider.server_port: ("identity provider", 8443),
        }


@contextmanager
def surroundings() -> Iterator[Surroundings]:
    binaries = programs()
    assert binaries is not None
    with (
        TemporaryDirectory(prefix="quire-postgres-") as folder,
        Postgres(binaries, Path(folder)) as postgres,
        http_receiver() as collector,
        HubServer({NAME: Repository.of(MODEL_DIR)}) as hub,
        oidc_provider() as provider,
    ):
        yield Surroundings(postgres, collector, hub, provider)


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def by_name(url: str) -> str:
    """The URL with a name that has to be looked up, as all URLs in a cluster have."""
    return url.replace("127.0.0.1", "localhost")


def download(recorder: Recorder, hub: HubServer, folder: Path) -> None:
    """As the init container does."""
    environment = hub.environment(folder / "home") | {"HF_ENDPOINT": by_name(hub.url)}
    command = [sys.executable, "-m", "service.cli", "pull", NAME]
    with recorder.starting(SERVER, **environment):
        done = subprocess.run(
            [*command, "--download-dir", str(folder / "claim")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr


@contextmanager
def running(
    recorder: Recorder, around: Surroundings, folder: Path
) -> Iterator[tuple[Running, dict[int, tuple[str, int]]]]:
    """A server that has downloaded its model, and a dashboard; and whose their ports are."""
    secret = MountedSecret(folder / "secrets")
    secret.write(admin=f"read:watch={ADMIN}")
    admin_port, grpc_port, dashboard_port = free_port(), free_port(), free_port()
    (folder / ".streamlit").mkdir()
    oidc = around.provider.secrets_file(f"http://127.0.0.1:{dashboard_port}", "")
    (folder / ".streamlit" / "secrets.toml").write_text(oidc)
    server = QuireServer(
        *(NAME, "--download-dir", str(folder / "claim"), "--threads", "1"),
        *("--admin-port", str(admin_port), "--grpc-port", str(grpc_port)),
        *("--store-url", by_name(around.postgres.url)),
    )
    pids: list[int] = []
    with ExitStack() as stack:
        with recorder.starting(
            SERVER,
            HF_HUB_OFFLINE="1",
            QUIRE_ADMIN_KEY_FILE=str(secret.folder / "admin"),
            OTEL_EXPORTER_OTLP_ENDPOINT=by_name(around.collector.endpoint),
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        ):
            stack.enter_context(server)
        servers = [f"dns+http://localhost:{port}" for port in (server.port, admin_port)]
        shown = dashboard_of(
            servers[0], folder / "log", pids, admin=servers[1], port=dashboard_port
        )
        with recorder.starting(DASHBOARD, HOME=str(folder), **{ADMIN_KEY_VARIABLE: ADMIN}):
            dashboard = stack.enter_context(shown)
        assert server.process is not None
        for root in (server.process.pid, *pids):
            for pid in (root, *descendants(root)):
                assert recorder.records(pid), command_of(pid)
        ours = {
            server.port: (SERVER, 8000),
            admin_port: (SERVER, 8001),
            grpc_port: (SERVER, 9000),
            dashboard_port: (DASHBOARD, 8501),
        }
        yield Running(server, f"http://127.0.0.1:{admin_port}", dashboard, secret), ours


def sign_in_and_chat(dashboard: str) -> None:
    """As a visitor does, in a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        page = chromium(driver).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(dashboard)
        page.get_by_role("main").get_by_role("button", name="Sign in").click()
        page.locator(".tile").first.wait_for()
        page.goto(f"{dashboard}/playground")
        question = page.get_by_test_id("stChatInputTextArea")
        question.fill("Hello")
        question.press("Enter")
        page.get_by_text("finish:").first.wait_for()


def helm_test(recorder: Recorder, release: Running) -> None:
    urls = {"metrics": release.admin, "dashboard": release.dashboard}
    with recorder.starting(TEST):
        for name in SMOKE["TESTS"]:
            status, _, error = release.test(name, by_name(urls.get(name, release.server.url)))
            assert status == 0, error


@pytest.mark.proves("network", "process")
@pytest.mark.timeout(400)
def test_running_pods_open_what_the_policies_allow_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with surroundings() as around:
        download(recorder, around.hub, tmp_path)
        with running(recorder, around, tmp_path) as (release, ours):
            sign_in_and_chat(release.dashboard)
            helm_test(recorder, release)
            around.collector.wait_for(1, 30)
    record = Record(recorder, around.names() | ours)
    assert record.opened() == {
        connection
        for connection in WANTED
        if connection.source in PODS and connection.target != "internet"  # extraEgress
    }
    assert record.accepted() == {(to, port) for _, to, port, _ in WANTED if to in PODS}
