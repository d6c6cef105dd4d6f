"""Reads a Secret in the API's protobuf format, in which Helm 4 sends the record of a release."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from tests.chart.helms import Manifest

MAGIC = b"k8s\x00"
_LENGTH_DELIMITED = 2


def secret(body: bytes) -> Manifest:
    """Return the Secret as an object. ``body`` begins with the magic bytes of the format."""
    envelope = dict(_fields(body.removeprefix(MAGIC)))
    parts = list(_fields(envelope[2]))
    metadata = list(_fields(dict(parts)[1]))
    named = dict(metadata)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": named[1].decode(),
            "labels": {
                pair[1].decode(): pair.get(2, b"").decode()
                for pair in (dict(_fields(value)) for field, value in metadata if field == 11)
            },
        },
        "data": {
            pair[1].decode(): base64.b64encode(pair[2]).decode()
            for pair in (dict(_fields(value)) for field, value in parts if field == 2)
        },
        "type": dict(parts)[3].decode(),
    }


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each field that has a length; others are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        length, at = _varint(message, at)
        if tag & 7 == _LENGTH_DELIMITED:
            yield tag >> 3, message[at : at + length]
            at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
