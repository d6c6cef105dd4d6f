"""Settings that can be changed while the server runs: each is bound to what it changes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from observability.admin_api import HotSetting, Settings
from service.admin.problem import ProblemError, invalid
from service.problems import plain

HotValue = float | int | str


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting. ``read`` returns the value in force, ``write`` changes it. It has ``choices``,
    or is a number from ``minimum`` to ``maximum``."""

    name: str
    help: str
    kind: str  # "int", "float", "choice"
    read: Callable[[], HotValue]
    write: Callable[[Any], None]
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""

    def check(self, value: object) -> HotValue:
        """Return the value in this setting's type. Raises ProblemError."""
        if self.kind == "choice":
            if value in self.choices:
                return str(value)
            raise invalid(f"'{self.name}' must be one of {', '.join(self.choices)}.", self.name)
        low, high = self.minimum, self.maximum
        assert low is not None
        assert high is not None
        types: tuple[type, ...] = (int,) if self.kind == "int" else (int, float)
        if isinstance(value, types) and not isinstance(value, bool):
            assert isinstance(value, int | float)
            if low <= value <= high:
                return value if self.kind == "int" else float(value)
        what = "a whole number" if self.kind == "int" else "a number"
        raise invalid(
            f"'{self.name}' must be {what} from {plain(low)} to {plain(high)}.", self.name
        )


@dataclass(frozen=True, slots=True)
class SettingChange:
    name: str
    before: HotValue
    after: HotValue


class HotSettings:
    """The values at the start are the defaults."""

    def __init__(self, knobs: Iterable[Knob]) -> None:
        self._knobs = {knob.name: knob for knob in knobs}
        self._defaults = {name: knob.read() for name, knob in self._knobs.items()}
        self._changed: dict[str, tuple[str, float]] = {}  # by whom, and when

    def current(self) -> Settings:
        """Return all settings with their values now."""
        rows = []
        for name, knob in self._knobs.items():
            by, at = self._changed.get(name, (None, None))
            rows.append(
                HotSetting(
                    name=name,
                    help=knob.help,
                    kind=knob.kind,
                    value=knob.read(),
                    default=self._defaults[name],
                    minimum=knob.minimum,
                    maximum=knob.maximum,
                    choices=knob.choices,
                    unit=knob.unit,
                    changed_by=by,
                    changed=at,
                )
            )
        return Settings(self.revision, tuple(rows))

    @property
    def revision(self) -> str:
        """What ``If-Match`` must carry: it changes with every value."""
        values = {name: knob.read() for name, knob in self._knobs.items()}
        return hashlib.blake2b(msgspec.json.encode(values), digest_size=8).hexdigest()

    def changed(self) -> dict[str, tuple[HotValue, str]]:
        """Return the values that operators have set, by name, each with who did."""
        return {name: (self._knobs[name].read(), by) for name, (by, _) in self._changed.items()}

    def take_over(self, values: Mapping[str, object], actor: str) -> None:
        """Set values that another worker of this server has checked. Raises ProblemError."""
        for name, value in values.items():
            knob = self._knobs[name]
            checked = knob.check(value)
            if knob.read() != checked:
                knob.write(checked)
            self._changed[name] = (actor, time.time())

    def change(
        self, wanted: Mapping[str, object], revision: str | None, actor: str
    ) -> list[SettingChange]:
        """Change all or, if one is invalid, none of them; return those that differ. ``revision``:
        the caller's ``If-Match``. Raises ProblemError."""
        self._check_revision(revision)
        checked: dict[str, HotValue] = {}
        for name, value in wanted.items():
            knob = self._knobs.get(name)
            if knob is None:
                raise invalid(
                    f"'{name[:64]}' is not a setting that can be changed while the server runs. "
                    f"These are: {', '.join(self._knobs)}.",
                    name[:64],
                )
            checked[name] = knob.check(value)
        changes = []
        for name, checked_value in checked.items():
            knob = self._knobs[name]
            before = knob.read()
            if before != checked_value:
                knob.write(checked_value)
                self._changed[name] = (actor, time.time())
                changes.append(SettingChange(name, before, checked_value))
        return changes

    def _check_revision(self, given: str | None) -> None:
        """``given``: as RFC 9110 (13.1.1) has it: tags of which one must be exactly the current
        revision, or ``*``, which any matches. Quotes may be missing."""
        if given is None:
            raise ProblemError(
                428,
                "revision_required",
                "Send the revision from GET /admin/v1/settings as 'If-Match', so that you do not "
                "overwrite a change that you have not seen.",
            )
        tags = [tag.strip() for tag in given.split(",")]
        if tags == ["*"] or self.revision in (tag.strip('"') for tag in tags):
            return
        if all(tag.startswith("W/") for tag in tags):
            raise ProblemError(
                412,
                "revision",
                "'If-Match' has only weak tags (W/\"…\", as some proxies make them); send the "
                "exact 'revision' from GET /admin/v1/settings, in quotes.",
            )
        raise ProblemError(
            412, "revision", "The settings have changed since they were read; read them again."
        )
