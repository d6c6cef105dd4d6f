"""The content blocks of ``/v1/messages``: what each has, and what of it the model is shown."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from service.wire.sampling import Name


class _Block(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Fields of type Any are not shown to the model."""


class TextBlock(_Block, frozen=True, tag="text"):
    text: str
    citations: Any = None
    cache_control: Any = None


class SearchResultBlock(_Block, frozen=True, tag="search_result"):
    """A passage that the client found."""

    source: str
    title: str
    content: list[TextBlock]
    citations: Any = None
    cache_control: Any = None

    @property
    def text(self) -> str:
        return "\n".join([f"{self.title} ({self.source})", *(part.text for part in self.content)])


class CompactionBlock(_Block, frozen=True, tag="compaction"):
    """A summary that takes the place of all blocks before it. ``content``: None or empty if there
    is none, or if only the vendor can read it."""

    content: str | None = None
    encrypted_content: Any = None
    signature: Any = None
    tool_changes: Any = None
    cache_control: Any = None


class MediumBlock(_Block, frozen=True, kw_only=True):
    """An image or document, which a text-only model cannot read."""

    source: Any = None
    title: Any = None
    context: Any = None
    citations: Any = None
    cache_control: Any = None


class ImageBlock(MediumBlock, frozen=True, tag="image"):
    pass


class DocumentBlock(MediumBlock, frozen=True, tag="document"):
    @property
    def text(self) -> str | None:
        """The title, context and text of a document of text; None for another."""
        source = self.source if isinstance(self.source, dict) else {}
        text: str | None = None
        match source:
            case {"type": "text", "data": str(data)} | {"type": "content", "content": str(data)}:
                text = data
            case {"type": "content", "content": [*parts]}:
                texts = [_text_of_part(part) for part in parts]
                text = None if None in texts else "\n".join(filter(None, texts))
        if text is None:
            return None
        above = [each for each in (self.title, self.context) if isinstance(each, str) and each]
        return "\n".join([*above, text])


def _text_of_part(part: Any) -> str | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
    return None


class ThinkingBlock(_Block, frozen=True, tag="thinking"):
    thinking: str
    signature: Annotated[str, Meta(max_length=65536)] = ""
    cache_control: Any = None


class RedactedThinkingBlock(_Block, frozen=True, tag="redacted_thinking"):
    """We create none; other servers' cannot be decrypted here."""

    data: str
    cache_control: Any = None


class ToolUseBlock(_Block, frozen=True, tag="tool_use"):
    id: Name
    name: Name
    input: dict[str, Any]
    caller: Any = None
    toolset_name: Any = None
    cache_control: Any = None


class ToolReferenceBlock(_Block, frozen=True, tag="tool_reference"):
    """A tool that the client's search for tools has found."""

    tool_name: Name
    cache_control: Any = None

    @property
    def text(self) -> str:
        return self.tool_name


class HostedBlock(msgspec.Struct, frozen=True, tag_field="type"):
    """What a tool that the vendor runs was asked, or returned, and other changes that the vendor
    makes to a conversation. The model is not shown it; nor are its fields read."""

    takes_any: ClassVar[bool] = True


class BrowserStateBlock(HostedBlock, frozen=True, tag="browser_state"):
    """The tabs and downloads of a browser that the vendor's own tools drive."""


ResultPart = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
    | BrowserStateBlock
)


class ToolResultBlock(_Block, frozen=True, tag="tool_result"):
    tool_use_id: Name
    content: str | list[ResultPart] | None = None
    is_error: bool = False
    toolset_name: Any = None
    cache_control: Any = None


class ServerToolUseBlock(HostedBlock, frozen=True, tag="server_tool_use"):
    pass


class McpToolUseBlock(HostedBlock, frozen=True, tag="mcp_tool_use"):
    pass


class McpToolResultBlock(HostedBlock, frozen=True, tag="mcp_tool_result"):
    pass


class McpToolListingBlock(HostedBlock, frozen=True, tag="mcp_tool_listing"):
    pass


class WebSearchResultBlock(HostedBlock, frozen=True, tag="web_search_tool_result"):
    pass


class WebFetchResultBlock(HostedBlock, frozen=True, tag="web_fetch_tool_result"):
    pass


class CodeResultBlock(HostedBlock, frozen=True, tag="code_execution_tool_result"):
    pass


class BashResultBlock(HostedBlock, frozen=True, tag="bash_code_execution_tool_result"):
    pass


class TextEditorResultBlock(HostedBlock, frozen=True, tag="text_editor_code_execution_tool_result"):
    pass


class ToolSearchResultBlock(HostedBlock, frozen=True, tag="tool_search_tool_result"):
    pass


class AdvisorResultBlock(HostedBlock, frozen=True, tag="advisor_tool_result"):
    pass


class ContainerUploadBlock(HostedBlock, frozen=True, tag="container_upload"):
    pass


class FallbackBlock(HostedBlock, frozen=True, tag="fallback"):
    pass


class ToolAdditionBlock(HostedBlock, frozen=True, tag="tool_addition"):
    pass


class ToolRemovalBlock(HostedBlock, frozen=True, tag="tool_removal"):
    pass


InputBlock = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | CompactionBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | McpToolUseBlock
    | McpToolResultBlock
    | McpToolListingBlock
    | WebSearchResultBlock
    | WebFetchResultBlock
    | CodeResultBlock
    | BashResultBlock
    | TextEditorResultBlock
    | ToolSearchResultBlock
    | AdvisorResultBlock
    | ContainerUploadBlock
    | FallbackBlock
    | ToolAdditionBlock
    | ToolRemovalBlock
)
