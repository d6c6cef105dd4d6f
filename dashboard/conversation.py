"""A chat as turns of question and answer, its branches, and the request for the next answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """``messages``: the visitor's question, or the results of this pane's calls before it."""

    messages: tuple[Message, ...]
    generation: Generation


@dataclass(eq=False, slots=True)
class Turn:
    """``exchanges``: one for each pane that was open; None for a pane that had called no tool when
    the other got results. At least one is there."""

    exchanges: tuple[Exchange | None, ...]

    @property
    def asked(self) -> tuple[Exchange, ...]:
        """Those of the panes that were asked."""
        return tuple(one for one in self.exchanges if one is not None)

    @property
    def generations(self) -> tuple[Generation, ...]:
        return tuple(exchange.generation for exchange in self.asked)

    @property
    def generation(self) -> Generation:
        """That of the first pane that has one."""
        return self.generations[0]

    @property
    def brings_results(self) -> bool:
        return self.asked[0].messages[0].role == "tool"

    @property
    def question(self) -> str:
        return "\n".join(message.content for message in self.asked[0].messages)

    @property
    def size(self) -> int:
        """Characters. The panes share a question."""
        messages = {message for exchange in self.asked for message in exchange.messages}
        asked = sum(len(message.content) for message in messages)
        return asked + sum(generation.size for generation in self.generations)

    @property
    def running(self) -> bool:
        return any(generation.running for generation in self.generations)

    def in_pane(self, pane: int) -> Exchange | None:
        """The first pane's where there was no second."""
        return self.exchanges[min(pane, len(self.exchanges) - 1)]


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
        return sum(turn.size for turn in turns.values())

    def copy(self) -> Conversation:
        """With the turns that have ended; they do not change any more."""
        return Conversation(_ended(self.turns), [_ended(path) for path in self.branches])

    def messages(self, pane: int = 0) -> tuple[Message, ...]:
        """The chat as the model gets it. An answer's reasoning is not sent back, as chat templates
        expect; a turn without any answer is left out."""
        told: list[Message] = []
        for exchange in self._path(pane):
            answer = exchange.generation.answer()
            if answer.text or answer.tool_calls:
                told += [*exchange.messages, _said(answer)]
        return tuple(told)

    def _path(self, pane: int) -> list[Exchange]:
        """A second pane begins with the first one's chat: what it had itself before it was closed
        does not lead to what the first was asked then."""
        path: list[Exchange] = []
        for turn in reversed(self.turns):
            pane = min(pane, len(turn.exchanges) - 1)
            exchange = turn.exchanges[pane]
            if exchange is not None:
                path.append(exchange)
        return path[::-1]

    def request(self, messages: tuple[Message, ...], choices: Choices, pane: int = 0) -> Request:
        """The whole conversation so far and ``messages``."""
        told = (*self.messages(pane=pane), *messages)
        return Request(choices.api, choices.ask(told))

    def ask(self, url: str, question: str, panes: tuple[Choices, ...], api_key: str) -> None:
        """One answer for each of ``panes``, all begun at once."""
        self.send(url, ((Message("user", question),),) * len(panes), panes, api_key)

    def send(
        self,
        url: str,
        messages: Sequence[tuple[Message, ...]],
        panes: tuple[Choices, ...],
        api_key: str,
    ) -> None:
        """``messages``: for each of ``panes``; one without any is not asked. Does nothing if none
        is."""
        asked = [pane for pane, own in enumerate(messages) if own]
        if not asked:
            return
        for generation in self.turns[-1].generations if self.turns else ():
            generation.forget_events()  # only the last answer's are shown
        requests = [self.request(messages[pane], panes[pane], pane) for pane in asked]
        begun = dict(zip(asked, Generation.all_at_once(url, requests, api_key), strict=True))
        turn = Turn(
            tuple(
                Exchange(messages[pane], begun[pane]) if pane in begun else None
                for pane in range(len(panes))
            )
        )
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
        stays in a separate branch. Does nothing if none of ``panes`` can be asked."""
        self.stop()
        if question is None:
            messages = self.messages_again(index, len(panes))
        else:
            messages = [(Message("user", question),)] * len(panes)
        if any(messages):
            self.turns = self.turns[:index]
            self.send(url, messages, panes, api_key)

    def messages_again(self, index: int, panes: int) -> list[tuple[Message, ...]]:
        """What each of ``panes`` panes is sent for another answer to the turn at ``index``: a
        question is for all, but results only for a pane whose calls they are of."""
        turn, before = self.turns[index], Conversation(self.turns[:index])
        messages: list[tuple[Message, ...]] = []
        for pane in range(panes):
            exchange = turn.in_pane(pane)
            own = () if exchange is None else exchange.messages
            calls = [call.id for call in before.open_calls(pane)]
            fits = not turn.brings_results or [message.call_id for message in own] == calls
            messages.append(own if fits else ())
        return messages

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

    def open_calls(self, pane: int = 0) -> tuple[Call, ...]:
        """The calls of the pane's last answer, if they await results."""
        if not self.turns or self.running:
            return ()
        exchange = self.turns[-1].in_pane(pane)
        if exchange is None:
            return ()
        answer = exchange.generation.answer()
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
