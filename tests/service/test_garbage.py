"""The collector leaves alone what serving needs, and is on again after loading."""

from __future__ import annotations

import subprocess
import sys

import pytest

from service.garbage import NEW_OBJECTS

_SERVED = """
import gc
from service.garbage import collect_for_serving
kept = [[] for _ in range(1000)]
collect_for_serving()
print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000, gc.get_threshold()[0])
"""
_LOADED = """
import gc
from service.garbage import while_loading
gc.set_threshold(100)
gc.freeze()
runs = []
gc.callbacks.append(lambda phase, info: runs.append(phase))
try:
    with while_loading():
        loaded = [[] for _ in range(1000)]
        during = len(runs)
        if {fails}:
            raise OSError
except OSError:
    pass
print(during, gc.isenabled(), len(gc.get_objects()) < 1000)
"""


def printed(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_what_is_there_when_serving_begins_is_not_looked_at_again() -> None:
    assert printed(_SERVED) == f"True True {NEW_OBJECTS}"


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_collected_while_loading_and_the_collector_is_on_again(fails: bool) -> None:
    assert printed(_LOADED.format(fails=fails)) == "0 True True"
