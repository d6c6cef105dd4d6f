"""Anthropic's tools that the client runs itself: requests only name them, so what the model is
shown of them is declared here."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from service.conversation import JsonObject

_TYPE: Final = re.compile(r"(bash|text_editor|memory)_([0-9]{8})")


class VendorTool(NamedTuple):
    description: str
    parameters: JsonObject


def vendor_tool(tool_type: str) -> VendorTool | None:
    """Return what the model is shown of a tool by its type, such as ``bash_20250124``; None for the
    type of another tool. A version newer than those known is shown as the newest of them."""
    match = _TYPE.fullmatch(tool_type)
    if match is None:
        return None
    kind, version = match.groups()
    if kind == "text_editor":
        return _editor(version)
    return _BASH if kind == "bash" else _MEMORY


def _object(required: list[str], **properties: Any) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _commands(*names: str) -> JsonObject:
    return {"type": "string", "enum": list(names), "description": "What to do."}


_INSERT_LINE: Final[JsonObject] = {
    "type": "integer",
    "description": "For insert: the line after which the text is put; 0 for the beginning.",
}
_VIEW_RANGE: Final[JsonObject] = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "For view: the first and the last line to show; -1 for the end of the file.",
}
_FILE_TEXT: Final = _text("For create: the text of the file.")
_OLD_STR: Final = _text("For str_replace: the text to replace, which must occur exactly once.")
_NEW_STR: Final = _text("For str_replace: the text that takes its place.")
_INSERT_TEXT: Final = _text("For insert: the text to put there.")

_BASH: Final = VendorTool(
    "Runs a command in a bash shell that stays open, and returns its output.",
    _object(
        [],
        command=_text("The command to run. Needed unless the shell is restarted."),
        restart={"type": "boolean", "description": "True to restart the shell."},
    ),
)

_MEMORY: Final = VendorTool(
    "Keeps notes in files under /memories, which stay for later conversations. View the directory "
    "before you begin, and write down what will be needed again.",
    _object(
        ["command"],
        command=_commands("view", "create", "str_replace", "insert", "delete", "rename"),
        path=_text("The file or directory, such as /memories/notes.txt; for all but rename."),
        file_text=_FILE_TEXT,
        old_str=_OLD_STR,
        new_str=_NEW_STR,
        insert_line=_INSERT_LINE,
        insert_text=_INSERT_TEXT,
        old_path=_text("For rename: the path so far."),
        new_path=_text("For rename: the path from now on."),
        view_range=_VIEW_RANGE,
    ),
)


def _editor(version: str) -> VendorTool:
    commands = ["view", "create", "str_replace", "insert"]
    properties = {
        "path": _text("The absolute path of the file or directory."),
        "file_text": _FILE_TEXT,
        "old_str": _OLD_STR,
        "new_str": _NEW_STR,
        "insert_line": _INSERT_LINE,
        "view_range": _VIEW_RANGE,
    }
    if version < "20250429":
        commands.append("undo_edit")
    if version < "20250728":
        properties["new_str"] = _text("For str_replace and insert: the new text.")
    else:
        properties["insert_text"] = _INSERT_TEXT
    return VendorTool(
        "Views, creates and edits text files.",
        _object(["command", "path"], command=_commands(*commands), **properties),
    )
