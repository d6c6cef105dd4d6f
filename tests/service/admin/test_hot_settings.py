"""Settings that change while the server runs."""

from __future__ import annotations

from typing import Any

import pytest

from service.admin.hot_settings import HotSettings, Knob
from service.admin.problem import ProblemError


class Held:
    """Two values, and settings for them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"limit": 10, "ratio": 0.5, "level": "info"}

        def knob(name: str, kind: str, **more: Any) -> Knob:
            def write(value: Any) -> None:
                self.values[name] = value

            return Knob(name, f"The {name}.", kind, lambda: self.values[name], write, **more)

        self.settings = HotSettings(
            [
                knob("limit", "int", minimum=1, maximum=100),
                knob("ratio", "float", minimum=0.0, maximum=1.0),
                knob("level", "choice", choices=("info", "debug")),
            ]
        )

    def change(self, **values: object) -> list[str]:
        changes = self.settings.change(values, f'"{self.settings.revision}"', "ann")
        return [f"{change.name}: {change.before} {change.after}" for change in changes]


def test_a_change_is_in_force_and_says_who_made_it() -> None:
    held = Held()
    assert held.change(limit=20, level="debug") == ["limit: 10 20", "level: info debug"]
    assert held.values == {"limit": 20, "ratio": 0.5, "level": "debug"}
    limit, ratio, _ = held.settings.current().settings
    assert (limit.value, limit.default, limit.changed_by) == (20, 10, "ann")
    assert (ratio.changed_by, ratio.changed) == (None, None)


def test_what_stays_the_same_is_no_change() -> None:
    assert Held().change(limit=10) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": 1.5},
        {"limit": "20"},
        {"limit": True},
        {"ratio": -0.1},
        {"ratio": float("nan")},
        {"ratio": None},
        {"level": "loud"},
        {"level": 1},
        {"unknown": 1},
    ],
)
def test_a_wrong_value_changes_nothing_at_all(wrong: dict[str, object]) -> None:
    held = Held()
    before = dict(held.values)
    with pytest.raises(ProblemError) as caught:
        held.change(**{"ratio": 0.75, "limit": 11, **wrong})
    assert (caught.value.status, caught.value.field) == (422, next(iter(wrong)))
    assert held.values == before


def test_a_change_needs_the_revision_that_is_current() -> None:
    held = Held()
    seen = held.settings.revision
    with pytest.raises(ProblemError) as without:
        held.settings.change({"limit": 20}, None, "ann")
    assert without.value.status == 428
    held.change(ratio=0.25)
    with pytest.raises(ProblemError) as late:
        held.settings.change({"limit": 20}, seen, "bob")
    assert late.value.status == 412
    assert held.values["limit"] == 10


@pytest.mark.parametrize("form", ["*", " * ", "{}", '"{}"', '"other", "{}"', 'W/"{}", "{}"'])
def test_any_revision_or_one_of_several_may_be_named(form: str) -> None:
    held = Held()
    held.settings.change({"limit": 20}, form.format(*[held.settings.revision] * 2), "ann")
    assert held.values["limit"] == 20


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ('W/"{}"', "exact 'revision'"),
        ('W/"{}", W/"other"', "exact 'revision'"),
        ('"other", W/"{}"', "have changed"),
        ('"*"', "have changed"),
        ("", "have changed"),
    ],
)
def test_a_weak_or_an_old_revision_is_refused_as_what_it_is(form: str, said: str) -> None:
    held = Held()
    with pytest.raises(ProblemError, match=said) as caught:
        held.settings.change({"limit": 20}, form.format(held.settings.revision), "ann")
    assert (caught.value.status, caught.value.code) == (412, "revision")
    assert held.values["limit"] == 10


def test_a_whole_number_is_a_number() -> None:
    held = Held()
    held.change(ratio=1)
    assert held.values["ratio"] == 1.0
