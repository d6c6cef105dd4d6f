from __future__ import annotations

import pytest

from service.telemetry.requests import Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(["m", "alias"], version="1.2.3")
