"""Query parameters of the admin API, checked."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping

from observability.admin_api import MAX_PAGE, SORTABLE, RequestQuery
from observability.outcomes import ROUTES, is_outcome
from observability.phases import PHASES
from service.admin.problem import invalid
from service.problems import plain
from service.records.matching import UNNAMED

_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# What ``float`` also takes: other scripts' digits, underscores, blanks.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
# The year 5138. Beyond it no request has ended, and databases' integers overflow.
_LATEST = 1e11
_MOST_CHARS = 1024

_FILTERS = ("since", "until", "phase", "key", "model", "route", "outcome", "min_ms")

Parameters = Mapping[str, str]


def only(query: Parameters, *names: str) -> None:
    """Raise ProblemError for a parameter that the path does not have."""
    for name, value in query.items():
        if name not in names:
            known = f"its parameters are {', '.join(names)}" if names else "it takes none"
            raise invalid(f"'{name[:64]}' is not a parameter of this path; {known}.", name[:64])
        if len(value) > _MOST_CHARS:
            raise invalid(f"'{name}' is longer than {_MOST_CHARS} characters.", name)


def moment(query: Parameters, name: str, now: float | None = None) -> float | None:
    """Return a time as epoch seconds; written so, or as what has passed since: 30s, 5m, 2h, 7d."""
    text = query.get(name)
    if text is None:
        return None
    match = _AGO.fullmatch(text)
    if match is not None:
        return (time.time() if now is None else now) - int(match[1]) * _SECONDS[match[2]]
    value = _number(text)
    if value is None or not 0 <= value <= _LATEST:
        raise invalid(
            f"'{name}' must be epoch seconds, from 0 to {plain(_LATEST)}, or how long ago: 30s, "
            "5m, 2h, 7d.",
            name,
        )
    return value


def engine_index(query: Parameters, engines: int) -> int:
    """Return the index that the query gives of one of so many engines; by default the first.
    Raises ProblemError."""
    return int(number(query, "engine", 0, 0, engines - 1))


def number(query: Parameters, name: str, default: float, low: float, high: float) -> float:
    """Return a number between two bounds. Raises ProblemError."""
    text = query.get(name)
    if text is None:
        return default
    value = _number(text)
    if value is None or not low <= value <= high:
        raise invalid(f"'{name}' must be a number from {plain(low)} to {plain(high)}.", name)
    return value


def _number(text: str) -> float | None:
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def choice(
    query: Parameters, name: str, choices: tuple[str, ...], default: str | None
) -> str | None:
    """Return one of the choices. Raises ProblemError."""
    value = query.get(name, default)
    if value is not None and value not in choices:
        raise invalid(f"'{name}' must be one of {', '.join(choices)}.", name)
    return value


def _named(query: Parameters, name: str) -> str | None:
    """Return a name. Raises ProblemError for an empty one, which nothing has."""
    value = query.get(name)
    if value == "":
        raise invalid(
            f"'{name}' is empty; leave it out to find all requests, or send '{UNNAMED[name]}' for "
            f"those without a {name}.",
            name,
        )
    return value


def request_query(query: Parameters) -> RequestQuery:
    """Return the query for requests. Raises ProblemError."""
    only(query, *_FILTERS, "state", "sort", "limit", "cursor")
    outcome = query.get("outcome")
    if outcome is not None and not is_outcome(outcome):
        raise invalid(
            "'outcome' must be the name of an outcome, such as stop, length, client_gone or "
            "refused:overloaded; docs/metrics.md lists them.",
            "outcome",
        )
    sorts = (*SORTABLE, *(f"-{name}" for name in SORTABLE))
    phases = tuple(phase.name for phase in PHASES)
    is_live = choice(query, "state", ("live", "ended"), "ended") == "live"
    now = time.time()
    since, until = moment(query, "since", now), moment(query, "until", now)
    if since is not None and until is not None and since >= until:
        raise invalid("'since' must be before 'until'.", "since")
    return RequestQuery(
        live=is_live,
        since=since,
        until=until,
        key=_named(query, "key"),
        model=_named(query, "model"),
        route=choice(query, "route", ROUTES, None),
        outcome=outcome,
        phase=choice(query, "phase", phases, None),
        min_seconds=number(query, "min_ms", 0.0, 0.0, 1e9) / 1e3,
        sort=choice(query, "sort", sorts, "-received") or "-received",
        limit=int(number(query, "limit", 100, 1, MAX_PAGE)),
        cursor=query.get("cursor"),
    )


def export_query(query: Parameters) -> RequestQuery:
    """Return the query for all ended requests, in the order in which they ended. Raises
    ProblemError."""
    only(query, *_FILTERS)
    return request_query(query)
