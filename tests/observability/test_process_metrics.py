"""Memory and CPU time of the server's processes."""

from __future__ import annotations

import os

from prometheus_client import generate_latest

from observability.process_metrics import process_registry, workers_registry

CPU = "process_cpu_seconds_total"


def test_one_process_shows_itself() -> None:
    page = generate_latest(process_registry()).decode()
    assert f"\n{CPU} " in page
    assert "python_gc_objects_collected_total" in page


def test_every_worker_is_shown_by_whichever_answers_and_only_while_it_lives() -> None:
    running = {0: os.getpid(), 2: os.getppid(), 3: 2**22 + 1}  # there is no such process
    registry = workers_registry(lambda: running)
    page = generate_latest(registry).decode()
    shown = [line.split(" ")[0] for line in page.splitlines() if line.startswith(CPU)]
    assert shown == [f'{CPU}{{worker="0"}}', f'{CPU}{{worker="2"}}']
    assert page.count(f"# TYPE {CPU} counter") == 1
    del running[2]
    assert 'worker="2"' not in generate_latest(registry).decode()
