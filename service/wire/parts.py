"""Converts the content parts of chat and Responses messages to text.

A text-only model cannot read an image. In a user's message that is an error. In a tool's output,
which the user did not choose, it is replaced by a sentence, so that the conversation can continue,
and reported.
"""

from __future__ import annotations

from typing import Any

from service.errors import InvalidRequestError

_TEXT_KINDS = frozenset(
    {"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"}
)
_THINKING_KINDS = frozenset({"thinking", "redacted_thinking", "reasoning"})
# Keys of text parts that have no meaning to a text model, even if it could see them.
_IDLE_KEYS = frozenset({"annotations", "cache_control", "logprobs", "prompt_cache_breakpoint"})

_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
    **dict.fromkeys(("document", "file", "input_file"), "document"),
}


def medium_of(kind: object) -> str | None:
    """Return ``image``, ``audio``, ``video`` or ``document`` for the type of a media part."""
    return _MEDIA.get(kind) if isinstance(kind, str) else None


def stand_in(medium: str) -> str:
    """Return the text that replaces an image (or other medium) from a tool."""
    return f"[{medium}: this server reads text only]"


def text_only_error(kind: object, path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{path}' has the type {str(kind)[:64]!r}; this server takes text only.",
        param=f"{path}.type",
    )


def is_thinking(part: dict[str, Any]) -> bool:
    return part.get("type") in _THINKING_KINDS


def part_text(part: dict[str, Any], path: str, *, of_a_tool: bool = False) -> str:
    """Return a part's text for the template. ``of_a_tool``: the part is in a tool's output.

    Raises InvalidRequestError for a part that is not text.
    """
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _TEXT_KINDS:
        medium = medium_of(kind)
        if of_a_tool and medium is not None:
            return stand_in(medium)
        raise text_only_error(kind, path)
    key = "refusal" if kind == "refusal" else "text"
    text = part.get(key)
    if not isinstance(text, str):
        raise InvalidRequestError(
            f"Missing required parameter: '{path}.{key}'.", param=f"{path}.{key}"
        )
    return text


def thinking_text(part: dict[str, Any]) -> str:
    """Return an assistant's thoughts from a part that has them, as a text or as parts of text."""
    thought = part.get("thinking", part.get("text"))
    if isinstance(thought, list):
        texts = (each.get("text") for each in thought if isinstance(each, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return thought if isinstance(thought, str) else ""


def ignored_in(part: dict[str, Any], path: str) -> list[str]:
    """Return the paths of what is dropped from a part: a medium as a whole, or a text's other
    fields."""
    kind = part.get("type")
    if medium_of(kind) is not None:
        return [f"{path}.{kind}"]
    if is_thinking(part):
        return []
    taken = ("type", "refusal" if kind == "refusal" else "text")
    return [f"{path}.{key}" for key in part if key not in taken and key not in _IDLE_KEYS]
