"""Patterns of string formats, as far as the library's own ones allow more than the standard."""

from __future__ import annotations

LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = f"(?:[0-9]{{4}}-(?:0[13-9]|1[0-2]|02-(?:[01]|2[0-8]))|{LEAP_YEAR}-02-29)[-0-9]*"
# Leap seconds are at the end of a day in UTC.
_TIME = r"(?:[^:]*:[^:]*:[0-5].*|23:59:60(?:\.[0-9]+)?(?:[zZ]|[+-]00:00))"
# What a text in a format matches as well.
EXACT_FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[tT]{_TIME}$",
    "hostname": "^.{0,253}$",
}
