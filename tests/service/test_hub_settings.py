"""The settings of models by name."""

from __future__ import annotations

import msgspec
import pytest

from engine.options import OptionError
from service.hub_settings import HubSettings


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/3", "feature/x_y-z", "0" * 40])
def test_revisions(revision: str) -> None:
    assert msgspec.convert({"revision": revision}, HubSettings).revision == revision


@pytest.mark.parametrize("revision", ["", "/etc", "-x", "a b", "a\n", ".hidden", "x" * 257])
def test_what_is_no_revision(revision: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"revision": revision}, HubSettings)


def test_a_revision_stays_in_the_cache() -> None:
    with pytest.raises(OptionError, match="--revision"):
        HubSettings(revision="a/../../b")
