"""The settings of the requests and the usage that the store keeps."""

from __future__ import annotations

from typing import Annotated

from engine.options import setting
from service.admin_settings import AdminSettings

_ARCHIVE = "Stored requests and usage"


class ArchiveSettings(AdminSettings, frozen=True, kw_only=True):
    """What is kept in the database of the stored responses, and for how long."""

    store_requests: Annotated[
        bool,
        setting(
            _ARCHIVE,
            "Whether the store keeps a record of each request (no content). Usage is kept in any "
            "case.",
        ),
    ] = True
    store_max_requests: Annotated[
        int,
        setting(
            _ARCHIVE,
            "Most records of requests in the store; beyond it, the oldest are deleted, in "
            "PostgreSQL by whole days.",
            ge=1000,
            le=1_000_000_000,
        ),
    ] = 1_000_000
    store_request_days: Annotated[
        float,
        setting(_ARCHIVE, "Days that the record of a request stays stored.", gt=0, le=3650),
    ] = 7.0
    store_usage_days: Annotated[
        int,
        setting(
            _ARCHIVE, "Days that usage by the hour, and audit rows, stay stored.", ge=1, le=3650
        ),
    ] = 400
