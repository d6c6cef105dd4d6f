"""The settings of the admin API."""

from __future__ import annotations

from typing import Annotated

from engine.options import OptionError, setting
from service.admin_keys import AdminKey, admin_keys
from service.tracing_settings import TracingSettings

_ADMIN = "Admin API"


class AdminSettings(TracingSettings, frozen=True, kw_only=True):
    """Where the admin API listens, and who may use it."""

    admin: Annotated[bool, setting(_ADMIN, "Serve the admin API, on a separate port.")] = True
    admin_host: Annotated[str, setting(_ADMIN, "Address on which the admin API listens.")] = (
        "127.0.0.1"
    )
    admin_port: (
        Annotated[
            int,
            setting(
                _ADMIN,
                "Port of the admin API; 0: any free one. Default: --port plus 10000, or any free "
                "one if that is taken.",
                ge=0,
                le=65535,
            ),
        ]
        | None
    ) = None
    admin_key: Annotated[
        tuple[str, ...],
        setting(
            _ADMIN,
            "Keys for the admin API, each KEY, SCOPE=KEY or SCOPE:ALIAS=KEY. The scope is read "
            "(see everything) or operate (also make changes; the scope of a key without one); the "
            "audit trail shows the alias. Default: no key; then only clients on this machine may "
            "read, and nothing can be changed.",
            max_length=64,
            secret=True,
        ),
    ] = ()

    def __post_init__(self) -> None:
        """Raise OptionError for a key or a fault that is not valid."""
        super().__post_init__()
        try:
            _ = self.admin_keys
        except ValueError as error:
            raise OptionError(f"--admin-key: {error}") from None

    @property
    def admin_keys(self) -> tuple[AdminKey, ...]:
        """Return every key of the admin API once; empty: none is configured."""
        return admin_keys(self.admin_key)
