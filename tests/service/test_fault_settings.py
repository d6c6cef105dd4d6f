"""Faults are configured by name, or the server does not start."""

from __future__ import annotations

import pytest

from engine.faults.table import Fault
from engine.options import OptionError
from service.settings import ServiceSettings


def test_no_fault_is_injected_by_default() -> None:
    assert ServiceSettings().faults == ()


def test_faults_are_read_from_the_setting() -> None:
    settings = ServiceSettings(fault=("engine_kill", "slow_step:seconds=1"))
    assert settings.faults == (Fault(name="engine_kill"), Fault(name="slow_step", seconds=1))


def test_a_fault_that_there_is_not_stops_the_start() -> None:
    with pytest.raises(OptionError, match=r"--fault: 'meteor' is not a fault"):
        ServiceSettings(fault=("meteor",))
