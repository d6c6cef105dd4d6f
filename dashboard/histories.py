"""The scrapes of one address, by the server that answered: a balancer may lead to several.

Each server's counters are its own. Compared with those of another they would look like a restart,
or like more tokens in a second than any server generates.
"""

from __future__ import annotations

from collections import deque

import observability.catalogue as catalogue
from dashboard.exposition import Page
from dashboard.series import History


class Histories:
    """``seconds``: how far back each server's history goes. One that has not answered for as long
    is forgotten."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._of: dict[str, History] = {}
        self._answered: deque[tuple[float, str]] = deque()  # when whose answers began, oldest first
        self._last: dict[str, float] = {}

    def append(self, time: float, page: Page) -> History:
        """Return the history of the server whose page this is. Servers older than the label are all
        taken for one. ``time``: seconds, larger than that of the scrape before."""
        server = _server(page)
        self._last[server] = time
        history = self._of.setdefault(server, History(self._seconds))
        history.append(time, page)
        if not self._answered or self._answered[-1][1] != server:
            self._answered.append((time, server))
        self._forget(time)
        return history

    def alternating(self) -> list[str]:
        """Return the servers, sorted, if one of them answered, then another, and then it again; a
        server that took the place of another did not."""
        order = [server for _, server in self._answered]
        return sorted(set(order)) if len(order) > len(set(order)) else []

    def _forget(self, time: float) -> None:
        before = time - self._seconds
        while len(self._answered) > 1 and self._answered[1][0] < before:
            self._answered.popleft()
        for server in [server for server, last in self._last.items() if last < before]:
            del self._last[server], self._of[server]


def _server(page: Page) -> str:
    labels = (dict(s.labels) for s in page.gauges if s.name == catalogue.BUILD_INFO.name)
    return next(labels, {}).get("server", "")
