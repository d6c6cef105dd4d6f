"""What the bench makes of a profile of the device."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from bench.gpu.engine import timeline


def test_the_gap_lies_between_the_last_kernel_of_a_step_and_the_first_of_the_next() -> None:
    events = []
    for step in range(3):
        begin = 1000.0 * step
        events += [
            ("_advance", begin, begin + 10),
            ("gemm<128>", begin + 20, begin + 500),
            ("_sample", begin + 500, begin + 980),
            ("Memcpy DtoH", begin + 980, begin + 985),
        ]
    events.append(("Memcpy HtoD", 2985.0, 2990.0))
    row = timeline(events[::-1], steps=3)
    assert row["gap_us"] == 20
    assert row["gap_share"] == 0.02
    assert row["busy_share"] == pytest.approx((3 * 975 + 5) / 2990)
    assert row["kernels_a_step"] == 3
    assert row["copies_to_device_a_step"] == pytest.approx(1 / 3)
    assert row["us_a_step_by_kernel"] == {"gemm": 480.0, "_sample": 480.0, "_advance": 10.0}
