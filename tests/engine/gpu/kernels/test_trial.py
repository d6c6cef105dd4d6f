"""The trial kernel runs where kernels do."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.trial import run_trial


def test_the_trial_passes_where_kernels_run(device: torch.device) -> None:
    run_trial(device)
