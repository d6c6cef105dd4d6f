"""Converts what a request needs from the engine to messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from engine.messages import Copy, Generate, Submit, Task
from engine.queueing import Following, QueueBounds
from service.tenants.caller import Caller
from service.tenants.tier import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One prompt and what to do with it. ``seeds``: one for each choice of a generation; empty: a
    single choice with the task's own seed. ``priority``, ``tier`` and ``cache_salt`` are the
    request's; the engine gets the values that ``caller`` is allowed. ``deadline``: when the first
    token is no longer wanted, in monotonic seconds. ``keeps_place``: the engine has accepted an
    earlier part of the request. ``following``: later parts, which keep their place if this one gets
    one."""

    request_id: str
    prompt_token_ids: list[int]
    task: Task
    caller: Caller
    arrival_time: float
    seeds: Sequence[int] = ()
    priority: int = 0
    tier: Tier | None = None
    cache_salt: str = ""
    deadline: float | None = None
    keeps_place: bool = False
    following: Following | None = None

    def messages(self, handles: Iterator[int], bounds: QueueBounds | None = None) -> list[Submit]:
        """Return one message for each choice, as if it were sent separately. ``bounds``: of the
        engine's waiting queue."""
        caller = self.caller
        priority = caller.priority(self.priority)
        cache_salt = caller.cache_salt(self.cache_salt)
        return [
            Submit(
                handle=next(handles),
                request_id=self.request_id,
                prompt_token_ids=self.prompt_token_ids,
                task=task,
                priority=priority,
                arrival_time=self.arrival_time,
                cache_salt=cache_salt,
                tenant=caller.tenant,
                weight=caller.weight,
                service_class=caller.class_of(self.priority, self.tier),
                bounds=bounds,
                keeps_place=self.keeps_place,
                following=self.following,
                deadline=self.deadline,
            )
            for task in self._tasks()
        ]

    def _tasks(self) -> list[Task]:
        task = self.task
        if not self.seeds or not isinstance(task, Generate):
            return [task]
        replace = msgspec.structs.replace
        return [Generate(replace(task.params, seed=seed)) for seed in self.seeds]


def together(messages: list[Submit]) -> Submit:
    """Combine all choices of a request into one message, so that shared data is sent once."""
    first, *others = messages
    copies = [
        Copy(one.handle, one.task.params.seed) for one in others if isinstance(one.task, Generate)
    ]
    return msgspec.structs.replace(first, copies=copies) if copies else first
