"""A chat as turns of question and answer, its branches, and the request for the next answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboard.answer import Answer, Ending
from dashboard.apis.ask import Ask, Call, Message, Tool
from dashboard.apis.table import APIS, Api
from dashboard.client import Generation, Request

MOST_BRANCHES = 50


@dataclass(frozen=True, slots=True)
class Choices:
    """What a visitor set for the next answer of one pane. What the API has no field for is not
    sent."""

    model: str
    api: Api = APIS[0]
    system: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, Any] | None = None
    logprobs: bool = False
    documents: tuple[str, ...] = ()

    def ask(self, messages: tuple[Message, ...]) -> Ask:
        """For an API without a conversation, only the last message."""
        uses = self.api.uses
        return Ask(
            model=self.model,
            messages=messages if "conversation" in uses else messages[-1:],
            system=self.system if "system" in uses else "",
            temperature=self.temperature if "temperature" in uses else None,
            top_p=self.top_p if "top_p" in uses else None,
            max_tokens=self.max_tokens if "max_tokens" in uses else None,
            seed=self.seed if "seed" in uses else None,
            thinking=self.thinking if "thinking" in uses else None,
            stop=self.stop if "stop" in uses else (),
            tools=self.tools if "tools" in uses else (),
            schema=self.schema if "schema" in uses else None,
            logprobs=self.logprobs and "logprobs" in uses,
            documents=self.documents if "documents" in uses else (),
        )


@dataclass(eq=False, slots=True)
class Turn:
    """``messages``: the visitor's question, or the results of the calls before it. One generation
    for each pane that was open."""

    messages: tuple[Message, ...]
    generations: tuple[Generation, ...]

    @property
    def generation(self) -> Generation:
        """The first pane's."""
        return self.generations[0]

    @property
    def question(self) -> str:
        return "\n".join(message.content for message in self.messages)

    @property
    def running(self) -> bool:
        return any(generation.running for generation in self.generations)

    def in_pane(self, pane: int) -> Generation:
        """The first pane's where there was no second."""
        return self.generations[min(pane, len(self.generations) - 1)]


@dataclass(slots=True)
class Conversation:
    """``turns``: what is shown. At most the last turn is still being answered. ``branches``: every
    path through the chat that was taken, the shown one included; paths share their turns."""

    turns: list[Turn] = field(default_factory=list)
    branches: list[list[Turn]] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return bool(self.turns) and self.turns[-1].running

    @property
    def size(self) -> int:
        """Characters of all questions and answers, hidden ones included."""
        turns = {id(turn): turn for path in (self.turns, *self.branches) for turn in path}
        return sum(
            len(turn.question) + sum(one.size for one in turn.generations)
            for turn in turns.values()
        )

    def copy(self) -> Conversation:
        """With the turns that have ended; they do not change any more."""
        return Conversation(_ended(self.turns), [_ended(path) for path in self.branches])

    def messages(self, upto: int | None = None, pane: int = 0) -> tuple[Message, ...]:
        """The chat as the model gets it. An answer's reasoning is not sent back, as chat templates
        expect; a turn without any answer is left out."""
        told: list[Message] = []
        for turn in self.turns[:upto]:
            answer = turn.in_pane(pane).answer()
            if answer.text or answer.tool_calls:
                told += [*turn.messages, _said(answer)]
        return tuple(told)

    def request(self, messages: tuple[Message, ...], choices: Choices, pane: int = 0) -> Request:
        """The whole conversation so far and ``messages``."""
        told = (*self.messages(pane=pane), *messages)
        return Request(choices.api, choices.ask(told))

    def ask(self, url: str, question: str, panes: tuple[Choices, ...], api_key: str) -> None:
        """One answer for each of ``panes``, all begun at once."""
        self.send(url, (Message("user", question),), panes, api_key)

    def send(
        self, url: str, messages: tuple[Message, ...], panes: tuple[Choices, ...], api_key: str
    ) -> None:
        for generation in self.turns[-1].generations if self.turns else ():
            generation.forget_events()  # only the last answer's are shown
        requests = [self.request(messages, one, pane) for pane, one in enumerate(panes)]
        turn = Turn(messages, Generation.all_at_once(url, requests, api_key))
        self.turns.append(turn)
        for path in self.branches:
            if len(path) == len(self.turns) - 1 and _same(path, self.turns[:-1]):
                path.append(turn)
                return
        self.branches = [*self.branches[1 - MOST_BRANCHES :], list(self.turns)]

    def ask_again(
        self,
        url: str,
        index: int,
        panes: tuple[Choices, ...],
        api_key: str,
        question: str | None = None,
    ) -> None:
        """Another answer to the turn at ``index``, or to ``question`` in its place. What was there
        stays in a separate branch."""
        self.stop()
        messages = self.turns[index].messages
        if question is not None:
            messages = (Message("user", question),)
        self.turns = self.turns[:index]
        self.send(url, messages, panes, api_key)

    def alternatives(self, index: int) -> list[Turn]:
        """The turns of all branches in the place of the turn at ``index``, the oldest first."""
        before = self.turns[:index]
        found = {
            id(path[index]): path[index]
            for path in self.branches
            if len(path) > index and _same(path[:index], before)
        }
        return list(found.values()) or [self.turns[index]]

    def show(self, index: int, turn: Turn) -> None:
        """Shows the latest branch that has ``turn`` at ``index``."""
        self.stop()
        for path in reversed(self.branches):
            if (
                len(path) > index
                and path[index] is turn
                and _same(path[:index], self.turns[:index])
            ):
                self.turns = list(path)
                return

    def open_calls(self) -> tuple[Call, ...]:
        """The last answer's calls, if they await results."""
        if not self.turns or self.running:
            return ()
        answer = self.turns[-1].generation.answer()
        return () if answer.ending is not Ending.COMPLETE else _said(answer).calls

    def stop(self) -> None:
        for generation in self.turns[-1].generations if self.turns else ():
            generation.cancel()

    def clear(self) -> None:
        self.stop()
        self.turns, self.branches = [], []


def _said(answer: Answer) -> Message:
    calls = (
        Call(call.id or f"call_{number}", call.name, call.arguments)
        for number, call in enumerate(answer.tool_calls)
    )
    return Message("assistant", answer.text, tuple(calls))


def _same(one: list[Turn], other: list[Turn]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _ended(turns: list[Turn]) -> list[Turn]:
    return list(itertools.takewhile(lambda turn: not turn.running, turns))
