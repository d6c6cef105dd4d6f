"""HAProxy and nginx, configured as docs/proxies.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from tests.e2e.quire_server import ROOT, free_port, until

PAGE = ROOT / "docs" / "proxies.md"
SERVED_BY = "x-served-by"

# Debian installs both where only root's PATH leads.
HAPROXY, NGINX = (
    shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("haproxy", "nginx")
)


class Listens(Protocol):
    @property
    def port(self) -> int: ...


Command = Callable[[Path, list[int]], list[str]]


def configuration(language: str, ports: list[int]) -> str:
    """A configuration of the page, with these ports instead of 8000 and the next ones."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    text = found[1]
    for number, port in enumerate(ports):
        assert f"127.0.0.1:{8000 + number}" in text
        text = text.replace(f"127.0.0.1:{8000 + number}", f"127.0.0.1:{port}")
    return text


def haproxy(folder: Path, ports: list[int]) -> list[str]:
    assert HAPROXY is not None
    file = folder / "haproxy.cfg"
    # What the page has, and which replica an answer comes from.
    named = f"backend quire\n    http-response set-header {SERVED_BY} %s"
    file.write_text(configuration("haproxy", ports).replace("backend quire", named, 1))
    return [HAPROXY, "-db", "-f", str(file)]


def nginx(folder: Path, ports: list[int]) -> list[str]:
    assert NGINX is not None
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/errors; events {{ }}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; "
        f"proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; "
        f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"{configuration('nginx', ports)} }}\n"
    )
    return [NGINX, "-p", str(folder), "-c", str(file)]


def _needs(package: str, program: str | None) -> list[pytest.MarkDecorator]:
    missing = pytest.mark.skipif(program is None, reason=f"needs Debian's {package}")
    return [pytest.mark.debian, missing]


PROXIES = {
    "haproxy": pytest.param(haproxy, marks=_needs("haproxy", HAPROXY)),
    "nginx": pytest.param(nginx, marks=_needs("nginx", NGINX)),
}


@contextmanager
def proxied(command: Command, replicas: Sequence[Listens]) -> Iterator[str]:
    """The URL of a proxy before these replicas."""
    with tempfile.TemporaryDirectory(prefix="quire-proxy-") as folder:
        Path(folder).chmod(0o755)  # nginx's workers have another user
        port = free_port()
        process = subprocess.Popen(
            command(Path(folder), [port, *(replica.port for replica in replicas)])
        )
        try:
            url = f"http://127.0.0.1:{port}"

            def answers() -> bool:
                assert process.poll() is None
                try:
                    return httpx.get(f"{url}/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(answers, 30, "the proxy to answer")
            yield url
        finally:
            process.terminate()
            process.wait(30)
