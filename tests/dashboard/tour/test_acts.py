"""The acts' table. That they play is tested in test_processes.py."""

from __future__ import annotations

from dashboard.tour.acts import ACTS


def test_each_act_says_what_to_look_at_and_where() -> None:
    assert len({act.title for act in ACTS}) == len(ACTS)
    for act in ACTS:
        assert act.page.startswith("/")
        assert act.look.endswith(".")
        assert act.text.endswith(".")
