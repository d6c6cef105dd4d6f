"""A message on the WebSocket of ``/v1/responses``."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from service.errors import BodyTooLargeError, InvalidRequestError, OverloadedError, QuireError
from service.http.body import as_utf8
from service.tenants.caller import Caller
from service.tenants.upload_room import UploadRoom

_MOST_STREAM_ID = 256


class Envelope(msgspec.Struct, frozen=True):
    """The fields of a message that concern the connection; the route reads the request itself."""

    type: str | None = None
    stream_id: str | None = None
    generate: bool | None = None
    previous_response_id: str | None = None


_envelope = msgspec.json.Decoder(Envelope)


def _read_envelope(message: bytes) -> Envelope:
    """Raises InvalidRequestError."""
    try:
        asked = _envelope.decode(message)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(
            f"A message must be a JSON object with a 'type' of 'response.create': {error}."
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"The message is not valid JSON: {error}.") from None
    if asked.type != "response.create":
        raise InvalidRequestError(
            f"The message type {asked.type!r:.80} is not supported; send 'response.create'.",
            param="type",
        )
    if len(asked.stream_id or "") > _MOST_STREAM_ID:
        raise InvalidRequestError(
            f"'stream_id' must be a string of at most {_MOST_STREAM_ID} characters.",
            param="stream_id",
        )
    return asked


class SocketMessage:
    """A received message; ``refusal``: why it is rejected. Its bytes count as an arriving body
    until they are taken."""

    def __init__(self, room: UploadRoom, caller: Caller, event: Any, limit: int) -> None:
        text = event.get("text")
        self._data: bytes = event.get("bytes") or b"" if text is None else text.encode()
        self._place = contextlib.ExitStack()
        self.refusal: QuireError | None = None
        if len(self._data) > limit:
            self._refuse(BodyTooLargeError(f"A message may have at most {limit} bytes."))
            return
        try:
            self._place.enter_context(room.arriving(caller))(len(self._data))
            self._data = as_utf8(self._data)
        except (OverloadedError, InvalidRequestError) as error:
            self._refuse(error)

    def _refuse(self, error: QuireError) -> None:
        self.refusal = error
        self.take()

    def envelope(self) -> Envelope:
        """Raises QuireError."""
        if self.refusal is not None:
            raise self.refusal
        return _read_envelope(self._data)

    def take(self) -> bytes:
        """Return its bytes and stop counting them; empty on later calls."""
        data, self._data = self._data, b""
        self._place.close()
        return data
