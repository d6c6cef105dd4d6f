"""The common form of requests of all conversation APIs."""

from __future__ import annotations

from typing import NamedTuple

from service.constraint.request import AnswerShape, ToolShape
from service.conversation import Conversation
from service.tenants.tier import Tier
from service.wire.sampling import SamplingFields


class Task(NamedTuple):
    """``sets_limit``: the client itself set ``token_limit``, if there is one. ``logprobs`` as in
    SamplingParams. ``answer``: the required form of the text; ``tools``: the constraints on calls.
    ``may_free``: a constraint that cannot be enforced is reported rather than rejected."""

    conversation: Conversation
    sampling: SamplingFields
    token_limit: int | None
    sets_limit: bool = True
    logprobs: int | None = None
    answer: AnswerShape | None = None
    tools: tuple[ToolShape, ...] = ()
    may_free: bool = False
    tier: Tier | None = None
