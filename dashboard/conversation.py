"""A chat as turns of question and answer, and the request for the next answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboard.client import ChatRequest, Generation


@dataclass(frozen=True, slots=True)
class Choices:
    """What a visitor set for the next answer."""

    model: str
    system: str
    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None
    thinking: bool | None


@dataclass(slots=True)
class Turn:
    question: str
    generation: Generation


@dataclass(slots=True)
class Conversation:
    """At most the last turn is still being answered."""

    turns: list[Turn] = field(default_factory=list)

    @property
    def running(self) -> Generation | None:
        if self.turns and self.turns[-1].generation.running:
            return self.turns[-1].generation
        return None

    @property
    def size(self) -> int:
        """Characters of all questions and answers."""
        return sum(len(t.question) + t.generation.answer().size for t in self.turns)

    def copy(self) -> Conversation:
        """With the turns that have ended; they do not change any more."""
        return Conversation([turn for turn in self.turns if not turn.generation.running])

    def request(self, question: str, choices: Choices) -> ChatRequest:
        """The whole conversation so far and ``question``. An answer's reasoning is not sent
        back, as chat templates expect; a turn without any answer text is left out."""
        messages = [("system", choices.system)] if choices.system.strip() else []
        for turn in self.turns:
            if text := turn.generation.answer().text:
                messages += [("user", turn.question), ("assistant", text)]
        return ChatRequest(
            model=choices.model,
            messages=(*messages, ("user", question)),
            temperature=choices.temperature,
            top_p=choices.top_p,
            max_tokens=choices.max_tokens,
            seed=choices.seed,
            thinking=choices.thinking,
        )

    def ask(self, url: str, question: str, choices: Choices, api_key: str) -> None:
        generation = Generation(url, self.request(question, choices), api_key)
        self.turns.append(Turn(question, generation))

    def ask_again(self, url: str, choices: Choices, api_key: str) -> None:
        """Replaces the last answer by a new one to the same question."""
        self.stop()
        self.ask(url, self.turns.pop().question, choices, api_key)

    def stop(self) -> None:
        if self.turns:
            self.turns[-1].generation.cancel()

    def clear(self) -> None:
        self.stop()
        self.turns.clear()
