"""Which ``QUIRE_*`` variables no part of Quire reads: most likely misspelt settings.

``quire serve`` warns of them and starts all the same: a refusal would break a rolling update, in
which an older version gets the variables of a newer one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.options import ENVIRONMENT_PREFIX
from service.settings_page import settings

# Of the client, the dashboard, the image and the tests.
_OTHERS = re.compile(
    r"QUIRE_(BASE_URL|DASHBOARD_.+|TOUR_FILE|CPU_LIBRARY_DIR|TESTS?_.+|FUZZ_EXAMPLES|LAW_BYTES)"
)
# What Kubernetes puts into each pod for each Service whose name begins with "quire".
_SERVICE_LINKS = re.compile(
    r"QUIRE_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)="
    r"|QUIRE_(.+_)?PORT=(tcp|udp|sctp)://"
)
_LEAST_LIKENESS = 0.75


class UnknownVariable(NamedTuple):
    """``nearest``: the variable of a setting that may have been meant."""

    name: str
    nearest: str | None


def unknown_variables(environ: Mapping[str, str]) -> Iterator[UnknownVariable]:
    known = {
        variable
        for option in settings()
        for variable in (option.variable, *([option.file_variable] if option.secret else []))
    }
    # A common beginning would make all of them alike.
    shortened = [name.removeprefix(ENVIRONMENT_PREFIX) for name in sorted(known)]
    for name, value in environ.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in known or _OTHERS.fullmatch(name):
            continue
        if _SERVICE_LINKS.match(f"{name}={value}"):
            continue
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        near = difflib.get_close_matches(rest, shortened, n=1, cutoff=_LEAST_LIKENESS)
        yield UnknownVariable(name, f"{ENVIRONMENT_PREFIX}{near[0]}" if near else None)
