"""From a document to token ids: the trainer's own rendering, and which tokens carry loss.

A test holds this rendering equal to `template.jinja` as transformers runs it; it exists because
Jinja is too slow for training and does not say which tokens are targets.
"""

import json
from dataclasses import dataclass
from typing import Final

from tokenizers import Tokenizer

from pocket.text.document import Call, Document, Json, Turn

NO_THOUGHT: Final = "<think>\n\n</think>\n\n"
_TOOLS_OPEN: Final = "# Tools\n\nYou may call one or more of these functions:\n<tools>"
_TOOLS_CLOSE: Final = (
    "\n</tools>\n\nFor each call write:\n<tool_call>\n"
    '{"name": <name>, "arguments": <object>}\n</tool_call>'
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text; `learn` says whether its tokens are targets, all of them or all but one."""

    text: str
    learn: bool = False
    skip_first: bool = False


def dumps(value: object) -> str:
    """JSON as the chat template's `tojson` writes it."""
    return json.dumps(value, ensure_ascii=False)


def head(system: str, tools: list[Json]) -> str:
    """The system turn, with the tool preamble where there are tools."""
    if not tools:
        return f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    listed = "".join(f"\n{dumps(tool.get('function', tool))}" for tool in tools)
    lead = f"{system}\n\n" if system else ""
    return f"<|im_start|>system\n{lead}{_TOOLS_OPEN}{listed}{_TOOLS_CLOSE}<|im_end|>\n"


def spoken(content: str, calls: tuple[Call, ...]) -> str:
    """What an assistant turn says: its content and its calls."""
    written = [
        f"<tool_call>\n{dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"
        for call in calls
    ]
    return "\n".join([content, *written] if content else written)


def pieces(document: Document) -> list[Piece]:
    """The document cut into text with and without loss.

    The last turn is the answer: the template's pre-filled empty thought is prompt, a real thought
    is learnt. Earlier answers are learnt too, except their first token: they follow the role line
    directly, and learning that would teach the model not to open `<think>` there.
    """
    if document.plain:
        return [Piece(document.plain + "<|endoftext|>", learn=True)]
    turns = list(document.turns)
    system = turns.pop(0).content if turns[0].role == "system" else ""
    out = [Piece(head(system, document.tools))]
    asked = max(i for i, turn in enumerate(turns) if turn.role == "user")
    for index, turn in enumerate(turns):
        last = index == len(turns) - 1
        if turn.role == "assistant":
            out.append(Piece("<|im_start|>assistant\n"))
            out += _answer(turn, document.thinking, index > asked, last)
        elif turn.role == "tool":
            first = turns[index - 1].role != "tool"
            final = last or turns[index + 1].role != "tool"
            out.append(
                Piece(
                    f"{'<|im_start|>user' if first else ''}\n<tool_response>\n{turn.content}\n"
                    f"</tool_response>{'<|im_end|>' + chr(10) if final else ''}"
                )
            )
        else:
            out.append(Piece(f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n"))
    return out


def _answer(turn: Turn, thinking: bool, current: bool, last: bool) -> list[Piece]:
    said = spoken(turn.content, turn.calls) + "<|im_end|>"
    if current and thinking and turn.reasoning:
        thought = f"<think>\n{turn.reasoning}\n</think>\n\n"
        return [Piece(thought + said, learn=True), Piece("\n")]
    if last:
        return [Piece(NO_THOUGHT), Piece(said, learn=True), Piece("\n")]
    return [Piece(said, learn=True, skip_first=True), Piece("\n")]


def text(document: Document) -> str:
    """The whole rendering as text."""
    return "".join(piece.text for piece in pieces(document))


def encode(tokenizer: Tokenizer, documents: list[Document]) -> list[tuple[list[int], list[bool]]]:
    """Token ids of each document, and for each token whether it is a target."""
    cut = [pieces(document) for document in documents]
    flat = iter(
        tokenizer.encode_batch_fast(
            [piece.text for document in cut for piece in document], add_special_tokens=False
        )
    )
    out = []
    for document in cut:
        ids: list[int] = []
        learn: list[bool] = []
        for piece in document:
            new = next(flat).ids
            ids += new
            learn += [piece.learn and not (piece.skip_first and i == 0) for i in range(len(new))]
        out.append((ids, learn))
    return out
