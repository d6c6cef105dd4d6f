"""What can go wrong between a hub's model and this machine's disk, each as one sentence."""

from __future__ import annotations


class HubError(Exception):
    """The message is one sentence for the operator: what is wrong, and what to do."""


class HubUnreachableError(HubError):
    """The hub does not answer, or must not be asked. A copy in the cache may do."""


class WrongChecksumError(HubError):
    """A file arrived with other bytes than the hub announced."""


class NotServableError(HubError):
    """The repository has no files that this server can load."""
