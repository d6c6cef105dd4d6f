"""A link and a pool of links can be used in the same way."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from service.engine.engines import Engines
from service.engine.link import EngineLink
from service.engine.pool import EnginePool

MEMBERS = [name for name in vars(Engines) if not name.startswith("_")] + ["on_submit"]


@pytest.mark.parametrize("name", MEMBERS)
def test_both_have_all_of_it_with_the_same_parameters(name: str, tmp_path: Path) -> None:
    link = EngineLink(tmp_path / "engine.sock", on_step=lambda _: None, on_state=lambda _: None)
    pool = EnginePool(lambda state, engine=0: None, 5.0, tmp_path)
    pool.add(link)
    method = vars(Engines).get(name)
    for one in (link, pool):
        found = getattr(one, name)
        if inspect.isfunction(method):
            parameters = list(inspect.signature(method).parameters.values())[1:]
            assert list(inspect.signature(found).parameters.values()) == parameters
