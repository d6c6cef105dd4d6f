"""A PostgreSQL server of the tests' own, by Debian's programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.service.running import free_port


def programs() -> Path | None:
    """Where Debian's newest PostgreSQL has its programs, if it is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


class Postgres:
    """``with Postgres(programs, folder) as server``: a cluster in ``folder``, empty at first. It
    refuses to run as root, so root's tests run it as the user postgres, who must be able to reach
    the folder: pytest's own are closed to others."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._port = free_port()
        self._become: tuple[str, ...] = ()
        if os.geteuid() == 0:
            self._become = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups")
            shutil.chown(folder, "postgres", "postgres")

    @property
    def url(self) -> str:
        return f"postgresql://quire@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        arguments = [
            "-D",
            str(self._folder / "data"),
            "-p",
            str(self._port),
            "-k",
            str(self._folder),
        ]
        with (self._folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                [
                    *self._become,
                    str(self._binaries / "postgres"),
                    *arguments,
                    "-F",
                    "-h",
                    "127.0.0.1",
                ],
                stdout=log,
                stderr=log,
            )
        ready = [str(self._binaries / "pg_isready"), "-h", "127.0.0.1", "-p", str(self._port)]
        ready += ["-t", "1"]
        deadline = time.monotonic() + 30
        while subprocess.run(ready, capture_output=True).returncode != 0:
            assert self._server.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline

    def stop(self) -> None:
        """At once: connections are cut."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(30)

    def __enter__(self) -> Postgres:
        data = self._folder / "data"
        options = ("-A", "trust", "-U", "quire", "--no-sync", "-E", "UTF8", "--no-locale")
        subprocess.run(
            [*self._become, self._binaries / "initdb", "-D", data, *options],
            check=True,
            capture_output=True,
        )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
