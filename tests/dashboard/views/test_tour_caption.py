"""The strip that the tour shows on every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.tour.caption import VARIABLE, Caption, write


def page() -> None:
    from dashboard.views.tour_caption import strip

    strip()


def test_the_strip_shows_the_act_that_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "caption.json"
    monkeypatch.setenv(VARIABLE, str(path))
    write(
        path, Caption(3, 4, "A prompt joins", "It is read in pieces.", "Live.", "/live", 70, "key")
    )
    app = AppTest.from_function(page).run()
    assert "3/4 A prompt joins" in app.info[0].value
    assert "It is read in pieces." in app.info[0].value


def test_without_a_tour_there_is_no_strip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not AppTest.from_function(page).run().info
