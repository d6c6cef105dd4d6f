"""The trial kernel runs where kernels do."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.trial import run_chain, run_trial


def test_the_trial_passes_where_kernels_run(device: torch.device) -> None:
    run_trial(device)


def test_each_kernel_of_a_chain_sees_what_the_one_before_has_written(device: torch.device) -> None:
    run_chain(device)
