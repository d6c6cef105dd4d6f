"""How GPUs are shared out among engines."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.options import OptionError
from service.supervision.engine_devices import engine_environments


def config(engines: int, ranks: int = 1, device: str = "auto", model: str = "m") -> EngineConfig:
    return EngineConfig(
        model=model,
        device=device,  # type: ignore[arg-type]
        data_parallel_size=engines,
        tensor_parallel_size=ranks,
    )


def test_each_engine_gets_gpus_of_its_own() -> None:
    found = engine_environments(config(2, ranks=2), ["0", "1", "2", "3", "4"])
    assert found == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]


@pytest.mark.parametrize(
    ("one", "gpus"),
    [
        (config(1), ["0", "1"]),  # a single engine sees what there is
        (config(3, device="cpu"), ["0"]),
        (config(3), []),
        (config(3, model="simulated:"), ["0"]),
    ],
)
def test_nothing_is_pinned_where_there_is_nothing_to_share(
    one: EngineConfig, gpus: list[str]
) -> None:
    assert engine_environments(one, gpus) == [{}] * one.data_parallel_size


@pytest.mark.parametrize(("device", "gpus"), [("auto", ["0", "1", "2"]), ("cuda", [])])
def test_too_few_gpus_are_refused_with_what_to_do(device: str, gpus: list[str]) -> None:
    with pytest.raises(OptionError, match=f"needs 4 GPUs, and there are {len(gpus)}; lower"):
        engine_environments(config(2, ranks=2, device=device), gpus)
