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
            "Store a record of each request (no content). Usage is stored in any case.",
        ),
    ] = True
    store_max_requests: Annotated[
        int,
        setting(
            _ARCHIVE,
            "Maximum number of request records in the store; beyond it, the oldest are deleted, in "
            "PostgreSQL by whole days.",
            ge=1000,
            le=1_000_000_000,
        ),
    ] = 1_000_000
    store_request_days: Annotated[
        float,
        setting(_ARCHIVE, "Days for which the record of a request is stored.", gt=0, le=3650),
    ] = 7.0
    store_usage_days: Annotated[
        int,
        setting(_ARCHIVE, "Days for which usage and audit rows are stored.", ge=1, le=3650),
    ] = 400
