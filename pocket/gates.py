"""The gates: held-out questions, what must come out, and how often.

Standard library only. `gates()` gives questions as chat messages, tools and the thinking switch;
`Case.score` judges an `Answer`, read from text or from a server. So the same gates run over
the exported files (`python -m pocket.evaluate`) and over any server.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pocket.answer import Answer
from pocket.strangers import STRANGERS
from pocket.text import arithmetic, copying, mix, small_talk, tools, unknown
from pocket.text.dice import Dice
from pocket.text.document import Document, Exchange, Json, Turn
from pocket.visitors import MUST, ROWS
from pocket.visitors.visit import Visit

MAX_TOKENS: Final = 512
"""An answer that is not done after this many tokens counts as not stopping."""
SIZE_LIMIT: Final = 8 * 2**20
"""Bytes the model directory may have."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question and the judge of its answer."""

    messages: list[Json]
    tools: list[Json]
    enable_thinking: bool
    score: Callable[[Answer], bool]
    expected: str = ""
    """What was hoped for, for a reader of failures."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A row of the table. A model that misses a blocking gate must not be shipped."""

    name: str
    must: float
    cases: list[Case]
    blocking: bool = False


def as_messages(turns: list[Turn]) -> list[Json]:
    """Turns as messages of the OpenAI chat API."""
    out: list[Json] = []
    pending: list[str] = []
    for index, turn in enumerate(turns):
        message: Json = {"role": turn.role, "content": turn.content}
        if turn.calls:
            pending = [f"call_{index}_{number}" for number in range(len(turn.calls))]
            message["tool_calls"] = [
                {
                    "id": key,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for key, call in zip(pending, turn.calls, strict=True)
            ]
        if turn.role == "tool":
            message["tool_call_id"] = pending.pop(0) if pending else f"call_{index}"
        out.append(message)
    return out


def _finished(answer: Answer) -> bool:
    return answer.finish_reason != "length"


def _exact(turn: Turn) -> Callable[[Answer], bool]:
    if turn.calls:
        wanted = [(call.name, call.arguments) for call in turn.calls]
        return lambda a: [(c.name, c.arguments) for c in a.tool_calls] == wanted
    text = turn.content.strip()
    return lambda a: not a.tool_calls and a.content.strip() == text and _finished(a)


def _same_json(turn: Turn) -> Callable[[Answer], bool]:
    wanted = json.loads(turn.content)

    def score(answer: Answer) -> bool:
        try:
            return bool(json.loads(answer.content) == wanted)
        except ValueError:
            return False

    return score


def _case(document: Document, score: Callable[[Answer], bool] | None = None) -> Case:
    last = document.turns[-1]
    shown = last.content or json.dumps(
        [[c.name, c.arguments] for c in last.calls], ensure_ascii=False
    )
    return Case(
        as_messages(document.turns[:-1]),
        document.tools,
        document.thinking,
        score or _exact(last),
        shown,
    )


def _alone(exchange: Exchange, thinking: bool = False) -> Document:
    return Document("gate", exchange.turns(), [], thinking)


def _valid_calls(answer: Answer) -> bool:
    return bool(answer.tool_calls) and all(
        call.name and call.arguments is not None for call in answer.tool_calls
    )


def _well_thought(answer: Answer) -> bool:
    return (
        bool(answer.reasoning)
        and bool(answer.content or answer.tool_calls)
        and "think>" not in answer.content + answer.reasoning
        and _finished(answer)
    )


def _not_thought(answer: Answer) -> bool:
    return not answer.reasoning and "think>" not in answer.content and _finished(answer)


def _refused(answer: Answer) -> bool:
    polite = answer.content.startswith(("Sorry", "I'm afraid", "对不起"))
    return not answer.tool_calls and polite and _finished(answer)


def _recall(dice: Dice, tokens: int) -> Document:
    """A recall chat whose prompt has about so many tokens (2.1 characters each, as counted)."""
    return mix.recall_chat(dice, False, round(tokens * 2.1))


@dataclass(frozen=True, slots=True)
class _Row:
    """A gate before its cases are drawn."""

    name: str
    must: float
    draw: Callable[[Dice], Case]
    blocking: bool = False


def gates(samples: int = 300, seed: int = 0) -> list[Gate]:
    """All gates with so many cases a row, drawn from the held-out side of the generator."""
    made: list[Gate] = []
    for row in (*_behaviour(), *_tool_use(), *_copies(), *_arithmetic(), *_knowledge()):
        dice = Dice(f"gate:{row.name}:{seed}", held=True)
        made.append(
            Gate(row.name, row.must, [row.draw(dice) for _ in range(samples)], row.blocking)
        )
    return [*made, *_visitors()]


def _visitors() -> Iterator[Gate]:
    """The hand-written rows, always whole."""
    for name, visits in ROWS.items():
        yield Gate(f"visitors: {name}", MUST, [_visit(visit) for visit in visits])


def _visit(visit: Visit) -> Case:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(visit.said)]
    return Case(said, list(visit.tools), False, visit.rule)


def _task(name: str, thinking: bool = False) -> Callable[[Dice], Case]:
    return lambda d: _case(mix.single_task(d, name, thinking))


def _tool(name: str, thinking: bool = False) -> Callable[[Dice], Case]:
    return lambda d: _case(tools.document(d, name, thinking))


def _behaviour() -> Iterator[_Row]:
    in_world = tuple(t for t in mix.SHARES if t not in ("plain", "coverage"))

    def any_task(thinking: bool | None, judge: Callable[[Answer], bool]) -> Callable[[Dice], Case]:
        def draw(d: Dice) -> Case:
            task = d.choice(in_world)
            return _case(
                mix.single_task(d, task, d.chance(0.4) if thinking is None else thinking), judge
            )

        return draw

    yield _Row("stops, in world", 0.99, any_task(None, _finished), True)
    yield _Row("stops, outside world", 0.95, lambda d: _case(_outside(d), _finished), True)
    yield _Row("thinks when asked", 0.99, any_task(True, _well_thought), True)
    yield _Row("does not think unasked", 0.99, any_task(False, _not_thought), True)
    yield _Row("small talk", 0.98, _small_talk)


def _tool_use() -> Iterator[_Row]:
    def valid_calls(d: Dice) -> Case:
        kind = d.pick("known_tool", "unseen_tool", "parallel")
        return _case(tools.document(d, kind, d.chance(0.4)), _valid_calls)

    def no_calls(d: Dice) -> Case:
        document = tools.document(d, "none_needed", d.chance(0.4))
        return _case(document, lambda a: not a.tool_calls)

    yield _Row("known tool", 0.98, _tool("known_tool"), True)
    yield _Row("known tool, thinking", 0.98, _tool("known_tool", True), True)
    yield _Row("unseen tool", 0.85, _tool("unseen_tool"))
    yield _Row("unseen tool, thinking", 0.85, _tool("unseen_tool", True))
    yield _Row("calls are valid JSON", 0.98, valid_calls)
    yield _Row("parallel calls", 0.80, _tool("parallel"))
    yield _Row("parallel calls, thinking", 0.80, _tool("parallel", True))
    yield _Row("no call when none is needed", 0.98, no_calls)
    yield _Row("answers from tool results", 0.95, _tool("tool_result"))


def _copies() -> Iterator[_Row]:
    def copy(kind: str) -> Callable[[Dice], Case]:
        return lambda d: _case(_alone(copying.coverage(d, kind)))

    yield _Row("echo", 0.98, _task("echo"), True)
    yield _Row("echo, thinking", 0.98, _task("echo", True), True)
    for kind in copying.COVERAGE:
        yield _Row(f"copies {kind}", 0.92, copy(kind))


def _arithmetic() -> Iterator[_Row]:
    def problem(sign: str, thinking: bool = False) -> Callable[[Dice], Case]:
        return lambda d: _case(_alone(arithmetic.problem(d, sign), thinking))

    for sign, name in (("+", "adds"), ("-", "subtracts")):
        yield _Row(f"{name} to 99, thinking", 0.90, problem(sign, True))
        yield _Row(f"{name} to 99", 0.80, problem(sign))
    yield _Row("multiplies to 10", 0.95, problem("*"))


def _knowledge() -> Iterator[_Row]:
    yield _Row("spells", 0.80, lambda d: _case(_alone(copying.spelling(d))))
    yield _Row("facts", 0.95, _task("fact"))
    yield _Row("counts", 0.98, _task("counting"))
    yield _Row("extracts JSON", 0.90, _extraction)
    yield _Row("refuses the unknown", 0.95, lambda d: _case(_alone(unknown.refusal(d)), _refused))
    yield _Row("says it has no tool", 0.95, lambda d: _case(_alone(unknown.lookup_without_tool(d))))
    yield _Row("recalls at 500 tokens", 0.90, lambda d: _case(_recall(d, 500)))
    yield _Row("recalls at 1500 tokens", 0.60, lambda d: _case(_recall(d, 1500)))


def _small_talk(dice: Dice) -> Case:
    exchange = small_talk.small_talk(dice)
    accepted = small_talk.accepted(exchange.user)
    return _case(_alone(exchange, dice.chance(0.3)), lambda a: a.content.strip() in accepted)


def _extraction(dice: Dice) -> Case:
    document = mix.single_task(dice, "extraction", False)
    return _case(document, _same_json(document.turns[-1]))


def _outside(dice: Dice) -> Document:
    """Noise (a kind that is trained), or what strangers type (which is not)."""
    text = unknown.noise(dice) if dice.chance(0.5) else dice.choice(STRANGERS)
    exchange = Exchange(text, "(anything, if it ends)")
    system = [Turn("system", unknown.system_prompt(dice))] if dice.chance(0.3) else []
    return Document("outside", system + exchange.turns(), [], dice.chance(0.4))


def table(rows: list[tuple[str, float, float, int, bool]]) -> str:
    """The gate table as text: name, score, must, cases, pass or short."""
    lines = [f"{'gate':34} {'score':>6} {'must':>5} {'N':>5}"]
    for name, score, must, cases, blocking in rows:
        verdict = "pass" if score >= must else ("SHORT (blocking)" if blocking else "short")
        lines.append(f"{name:34} {score:6.3f} {must:5.2f} {cases:5} {verdict}")
    return "\n".join(lines)
