"""What a request of any conversation API comes to."""

from __future__ import annotations

from typing import NamedTuple

from service.constraint.request import AnswerShape, ToolShape
from service.conversation import Conversation
from service.wire.sampling import SamplingFields


class Task(NamedTuple):
    """``logprobs`` as in SamplingParams. ``answer``: the form that the text must have; ``tools``:
    the forms of calls, where the conversation's tools do not say all. ``may_free``: a form that
    cannot be enforced is reported rather than refused."""

    conversation: Conversation
    sampling: SamplingFields
    token_limit: int | None
    logprobs: int | None = None
    answer: AnswerShape | None = None
    tools: tuple[ToolShape, ...] | None = None
    may_free: bool = False
