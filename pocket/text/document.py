"""The nouns of the generator: a call, a turn, an exchange, a document."""

from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Call:
    """One function call: the name and its arguments as a JSON object."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `reasoning` and `calls` belong to assistant turns only."""

    role: Role
    content: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question with its answer, the piece that chats are strung together from.

    `thought` is what the model thinks before this answer when it is asked to think.
    """

    user: str
    answer: str
    thought: str = ""
    calls: tuple[Call, ...] = ()

    def turns(self) -> list[Turn]:
        """The exchange as a user turn and an assistant turn."""
        return [Turn("user", self.user), Turn("assistant", self.answer, self.thought, self.calls)]


@dataclass(frozen=True, slots=True)
class Document:
    """One training text. A document without turns is plain text to continue, not a chat."""

    task: str
    turns: list[Turn] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    thinking: bool = False
    plain: str = ""
