"""What do people who watch cost? The dashboard's process, and the server that it shows.

    python -m bench.viewers                    # 20 tabs of the Live page, then of the KV cache
    python -m bench.viewers --viewers 5 --seconds 30

Real tabs in Chromium, on a server that streams to 32 clients. CPU time of the processes, in percent
of a core, once all tabs are drawn: without viewers, with them, and what they added.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.report import print_table, write_result
from bench.visibility import STREAMS, Clients, Load, cpu_seconds
from tests.dashboard.running import CHROMIUM, PATIENCE_MS, chromium, dashboard_of
from tests.service.running import RunningService, free_port
from tests.service.tiny_model import write_tiny_model

STEP_MS = 20


def load(port: int, over: threading.Event) -> None:
    """Keep ``STREAMS`` chats going until ``over``."""
    clients = Clients(port, Load(STREAMS, 256))
    while not over.is_set():
        clients.run(2.0)


def share_of_core(pids: dict[str, int], seconds: float) -> dict[str, float]:
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    begun = time.monotonic()
    time.sleep(seconds)  # what is measured is what happens meanwhile
    took = time.monotonic() - begun
    return {name: (cpu_seconds(pid) - before[name]) / took * 100 for name, pid in pids.items()}


def measure(page: str, viewers: int, seconds: float) -> list[dict[str, Any]]:
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_tiny_model(folder / "model")
        simulated = f"simulated:step={STEP_MS}ms,context=100000,tokenizer={model}"
        admin_port = free_port()
        service = stack.enter_context(
            RunningService(
                model,
                folder,
                engine_args=("--model", simulated),
                worker_args=("--admin-port", str(admin_port), "--store-url", "none"),
            )
        )
        started: list[int] = []
        url = stack.enter_context(
            dashboard_of(
                f"http://127.0.0.1:{service.port}",
                folder / "dashboard.log",
                started,
                admin=f"http://127.0.0.1:{admin_port}",
            )
        )
        over = threading.Event()
        loading = threading.Thread(target=load, args=(service.port, over))
        loading.start()
        stack.callback(loading.join)
        stack.callback(over.set)
        pids = {"dashboard": started[0], "worker": service.worker.popen.pid}
        found = {"none": share_of_core(pids, seconds)}
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        for _ in range(viewers):
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            tab.set_default_timeout(PATIENCE_MS)
            tab.goto(f"{url}/{page}")
            tab.locator("canvas").first.wait_for()
        found[f"{viewers}"] = share_of_core(pids, seconds)
    return [{"page": page, "viewers": name, **shares} for name, shares in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--viewers", type=int, default=20, help="tabs (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each (%(default)s)")
    parser.add_argument("--pages", nargs="+", choices=["live", "kv"], default=["live", "kv"])
    options = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("bench.viewers needs Chromium: apt install chromium")
    rows = [
        row for page in options.pages for row in measure(page, options.viewers, options.seconds)
    ]
    print_table(rows)
    print(write_result("viewers", rows, seconds=options.seconds))


if __name__ == "__main__":
    main()
