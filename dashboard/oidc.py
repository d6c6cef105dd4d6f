"""How long a sign-in by OIDC lasts."""

from __future__ import annotations

from collections.abc import Mapping

HOURS_VARIABLE = "QUIRE_DASHBOARD_SIGN_IN_HOURS"
_DEFAULT_HOURS = "12"
_MOST_HOURS = 720  # the life of Streamlit's cookie
_CLOCK_SKEW_SECONDS = 120.0  # as Streamlit's OIDC library allows for


def lifetime(environment: Mapping[str, str]) -> float:
    """Return ``QUIRE_DASHBOARD_SIGN_IN_HOURS`` in seconds. Raises ValueError."""
    text = environment.get(HOURS_VARIABLE, "").strip() or _DEFAULT_HOURS
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= _MOST_HOURS:
        raise ValueError(
            f"{HOURS_VARIABLE} must be a number of hours above 0 and at most {_MOST_HOURS} "
            f"(30 days), not {text!r}"
        )
    return hours * 3600


def seconds_left(issued: object, lifetime: float, now: float) -> float:
    """Return for how long a sign-in still lasts; at most 0 once it has ended.

    ``issued``: the ID token's claim ``iat``, in epoch seconds; without a usable one the sign-in has
    ended. The claim ``exp`` does not count: it limits the use of the token, often to five minutes.
    """
    if isinstance(issued, bool) or not isinstance(issued, int | float):
        return 0.0
    age = now - issued
    return lifetime - age if -_CLOCK_SKEW_SECONDS <= age < lifetime else 0.0
