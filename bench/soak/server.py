"""The server under soak, and what its processes use."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from bench.soak.load import KEYS
from bench.soak.questions import AIMED_TOKENS, MODELS
from tests.e2e.quire_server import QuireServer, command_of, descendants, free_port

_OPERATE = "soak-operator"
_AIM = f"max_tokens={AIMED_TOKENS}"
# How each fault is injected, at the request of an operator.
SOAKED_FAULTS = {
    "engine_kill": "",
    "slow_step": "seconds=0.3",
    "step_oom": _AIM,
    "nan_logits": f"{_AIM}:output=2",
    "worker_kill": "",
    "worker_stall": "seconds=1",
    "parser_error": "",
    "clock_jump": "seconds=5",
    "store_down": "seconds=2",
    "store_full": "seconds=2",
}


def _fault_flags() -> Iterator[str]:
    for name, keys in SOAKED_FAULTS.items():
        yield from ("--fault", ":".join(filter(None, (name, "times=0", keys))))


class SoakedServer(QuireServer):
    """Has its keys from the environment, and its admin API for the soak."""

    def __init__(self, *args: str, faults: bool) -> None:
        self.grpc_port, self.admin_port = free_port(), free_port()
        self._injects = faults
        super().__init__(
            *("--served-model-name", ",".join(MODELS)),
            *("--grpc-port", str(self.grpc_port), "--admin-port", str(self.admin_port)),
            *("--log-format", "json", "--log-level", "warning"),
            *(_fault_flags() if faults else ()),
            *args,
        )

    def start(self) -> SoakedServer:
        keys = ",".join(f"{alias}={key}" for alias, key in KEYS.items())
        secrets = {"QUIRE_API_KEY": keys, "QUIRE_ADMIN_KEY": f"operate:soak={_OPERATE}"}
        with mock.patch.dict(os.environ, secrets):
            super().start()
        return self

    def __enter__(self) -> SoakedServer:
        super().__enter__()
        return self

    def admin(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin_port}{path}",
            data=b"{}" if method == "POST" else None,
            headers={"authorization": f"Bearer {_OPERATE}", "content-type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310  an http URL
            return bytes(reply.read())

    def _metrics_page(self) -> str:
        return self.admin("GET", "/metrics").decode()

    def inject(self, name: str) -> None:
        self.admin("POST", f"/admin/v1/faults/{name}")

    def injected(self) -> dict[str, int]:
        if not self._injects:
            return {}
        told: Any = json.loads(self.admin("GET", "/admin/v1/faults"))
        return {one["name"]: one["injected"] for one in told["faults"]}

    def processes(self) -> dict[int, str]:
        """Return what each is, by process id, without short-lived helpers."""
        assert self.process is not None
        found = {}
        for pid in {self.process.pid, *descendants(self.process.pid)}:
            for name in (b"engine", b"service.worker", b"service.cli"):
                if name in command_of(pid):
                    found[pid] = name.decode()
        return found


def resident_mib(pid: int) -> float | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(one.split()[1]) / 1024 for one in lines if one.startswith("VmRSS")), None)


def open_files(server: SoakedServer) -> dict[str, int]:
    """Return how many descriptors each kind of process has."""
    found: dict[str, int] = defaultdict(int)
    for pid, name in server.processes().items():
        found[name] += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return dict(found)


class Memory:
    """Resident memory of each process over time."""

    def __init__(self, server: SoakedServer) -> None:
        self._server = server
        self._begin = time.monotonic()
        self.samples: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)

    def weigh(self) -> None:
        now = time.monotonic() - self._begin
        for pid, name in self._server.processes().items():
            weight = resident_mib(pid)
            if weight is not None:
                self.samples[pid, name].append((now, weight))

    def rows(self, seconds: float) -> list[dict[str, Any]]:
        """Return how much each process grew that lived to the end, once it had settled: over the
        last four fifths of the time, or of its life."""
        rows = []
        for (_, name), weights in self.samples.items():
            begin, end = weights[0][0], weights[-1][0]
            settled = [weight for when, weight in weights if when >= begin + (end - begin) / 5]
            if end < seconds * 0.95 or len(settled) < 10:
                continue
            half = len(settled) // 2
            rows.append(
                {
                    "process": name,
                    "lived s": end - begin,
                    "rss MiB, after 1/5": settled[0],
                    "rss MiB, end": settled[-1],
                    "second half minus first, MiB": sum(settled[half:]) / len(settled[half:])
                    - sum(settled[:half]) / half,
                }
            )
        return rows
