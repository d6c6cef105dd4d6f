"""Patterns of the standard's string formats, for strings that are not written as JSON."""

from __future__ import annotations

from service.constraint.exact_formats import LEAP_YEAR

_DAY = "(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = (
    f"(?:[0-9]{{4}}-(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)"
    f"|(?:0[13578]|1[02])-31)|{LEAP_YEAR}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[zZ]|[+-]{_CLOCK})"
_TIMES = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DATES = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"{_BYTE}(?:\\.{_BYTE}){{3}}"
_HEX = "[0-9a-fA-F]{1,4}"
_IPV6 = "(?:{})".format(
    "|".join(
        [
            f"(?:{_HEX}:){{7}}{_HEX}",
            f"(?:{_HEX}:){{1,7}}:",
            *(f"(?:{_HEX}:){{1,{7 - n}}}(?::{_HEX}){{1,{n}}}" for n in range(1, 7)),
            f":(?::{_HEX}){{1,7}}",
            "::",
        ]
    )
)
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_ENCODED = "%[0-9a-fA-F]{2}"
_NAME = f"(?:[a-zA-Z0-9._~!$&'()*+,;=-]|{_ENCODED})*"
_PATH = f"(?:[a-zA-Z0-9._~!$&'()*+,;=:@/-]|{_ENCODED})*"
_QUERY = f"(?:[a-zA-Z0-9._~!$&'()*+,;=:@/?-]|{_ENCODED})*"
_SEGMENT = f"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|{_ENCODED})"
_HOST = f"(?:\\[{_IPV6}\\]|{_NAME})(?::[0-9]*)?"

TEXT_FORMATS = {
    name: f"^(?:{regex})$"
    for name, regex in {
        "date-time": f"{_DATE}[tT]{_TIME}",
        "time": _TIME,
        "date": _DATE,
        "duration": f"P(?:{_DATES}(?:T{_TIMES})?|T{_TIMES}|[0-9]+W)",
        "email": f"{_ATOM}(?:\\.{_ATOM})*@{_LABEL}(?:\\.{_LABEL})*",
        "hostname": f"{_LABEL}(?:\\.{_LABEL})*",
        "ipv4": _IPV4,
        "ipv6": _IPV6,
        "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "uri": (
            f"[a-zA-Z][a-zA-Z0-9+.-]*:(?://(?:{_NAME}@)?{_HOST}(?:/{_PATH})?|/?{_SEGMENT}{_PATH}|/)?"
            f"(?:\\?{_QUERY})?(?:#{_QUERY})?"
        ),
    }.items()
}
