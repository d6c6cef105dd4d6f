"""How much of a prompt the server has read, as its admin API says: the stream does not."""

from __future__ import annotations

import time

from dashboard.admin_client import AdminClient, AdminRefusalError

_LEAST_SECONDS = 0.25  # between two questions


class PromptReading:
    """Asks about one request, and not again once the server has refused to say. ``admin`` is None
    where the visitor may not read the server's requests."""

    def __init__(self, admin: AdminClient | None) -> None:
        self._admin = admin
        self._asked = 0.0
        self._share: float | None = None

    def share(self, request_id: str) -> float | None:
        """0 to 1; None if it is not known."""
        now = time.monotonic()
        if self._admin is None or not request_id or now - self._asked < _LEAST_SECONDS:
            return self._share
        self._asked = now
        try:
            kept = self._admin.request(request_id)
        except AdminRefusalError:
            self._admin = self._share = None
            return None
        if kept.prompt_tokens:
            read = kept.cached_tokens + kept.prompt_tokens_computed
            self._share = min(read / kept.prompt_tokens, 1.0)
        return self._share
