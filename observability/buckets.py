"""The bounds of the histograms' buckets."""

from __future__ import annotations

# Every bound that an operator is likely to set as an objective is an exact bucket bound.
LATENCY_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.75),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 10.0),
    *(20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
# Nobody sets an objective for a phase, and there are eight of them for each model name.
PHASE_SECONDS_BOUNDS = (0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0)
# There is a histogram of it for each API.
ROUTE_SECONDS_BOUNDS = (0.1, 0.5, 1.0, 5.0, 30.0, 120.0)
INTER_TOKEN_SECONDS = (
    *(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03),
    *(0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0),
)
STEP_SECONDS_BOUNDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
TOKEN_COUNTS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
SEQUENCE_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PREEMPTION_COUNTS = (0, 1, 2, 3, 5, 10, 20)
