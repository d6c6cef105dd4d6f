"""The stream of documents: how much of each task, and how exchanges become chats.

Shares are per document. The feasibility study gives the start; see the README for what was found.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pocket.text import (
    about_quire,
    arithmetic,
    calendar,
    copying,
    declining,
    facts,
    humour,
    meeting,
    quantities,
    recall,
    rhymes,
    showpieces,
    small_talk,
    spoken_tools,
    themes,
    tools,
    unknown,
    wordplay,
)
from pocket.text.dice import Dice
from pocket.text.document import Document, Exchange, Turn

EXCHANGES: Final[dict[str, Callable[[Dice], Exchange]]] = {
    "small_talk": small_talk.small_talk,
    "fact": facts.fact,
    "refusal": unknown.refusal,
    "lookup": unknown.lookup_without_tool,
    "counting": showpieces.counting,
    "listing": showpieces.listing,
    "story": showpieces.story,
    "echo": copying.echo,
    "coverage": copying.coverage,
    "arithmetic": arithmetic.problem,
    "spelling": copying.spelling,
    "letters": copying.letter_question,
    "extraction": copying.extraction,
    "not_told": recall.not_told,
    "mood": about_quire.mood,
    "about_quire": about_quire.about_quire,
    "meeting": meeting.meeting,
    "nameless": meeting.nameless,
    "joke": humour.joke,
    "haiku": humour.haiku,
    "poem": humour.poem,
    "comparing": quantities.comparing,
    "sorting": quantities.sorting,
    "stepping": quantities.stepping,
    "converting": quantities.converting,
    "calendar": calendar.calendar,
    "colours": wordplay.colours,
    "opposite": wordplay.opposite,
    "rhyme": rhymes.rhyme,
    "rhyming": rhymes.rhyming,
    "theme": themes.theme,
    "declined": declining.declined,
}
"""Tasks that are one question and one answer, and so may stand anywhere in a chat."""

SHARES: Final[dict[str, float]] = {
    "small_talk": 2.5,
    "fact": 2.5,
    "refusal": 0.8,
    "lookup": 1.2,
    "counting": 0.8,
    "listing": 0.8,
    "story": 0.4,
    "echo": 2,
    "coverage": 5,
    "arithmetic": 5,
    "spelling": 5,
    "letters": 0.3,
    "extraction": 1,
    "not_told": 0.2,
    "recall": 1,
    "plain": 0.3,
    "known_tool": 1.2,
    "unseen_tool": 6,
    "parallel": 4,
    "none_needed": 1.5,
    "tool_result": 3,
    "mood": 9,
    "about_quire": 5,
    "meeting": 11,
    "nameless": 2,
    "joke": 3.5,
    "haiku": 3,
    "poem": 2.5,
    "comparing": 11,
    "sorting": 24,
    "stepping": 8,
    "converting": 6,
    "calendar": 8,
    "colours": 4,
    "opposite": 4,
    "rhyme": 8,
    "rhyming": 20,
    "theme": 6,
    "declined": 13,
    "acquaintance": 11,
    "jokes_on": 4,
    "refusals_on": 5,
    "spoken_tool": 27,
}
"""How often each task is drawn, relative to the others."""

WARM_UP: Final = ("echo", "coverage", "spelling")
"""Short copying tasks, most of the stream at first: copying must come before all else."""

DRILLED: Final = ("arithmetic", "spelling", "letters", "fact", "coverage")
"""Tasks learnt by number of examples: several of the same often stand in one document."""

_FILLERS: Final = (
    "small_talk",
    "fact",
    "fact",
    "refusal",
    "lookup",
    "counting",
    "listing",
    "echo",
    "coverage",
    "arithmetic",
    "arithmetic",
    "story",
)
VISITOR_TASKS: Final = (
    *(
        "mood",
        "about_quire",
        "meeting",
        "nameless",
        "joke",
        "haiku",
        "poem",
        "comparing",
        "sorting",
    ),
    *("stepping", "converting", "calendar", "colours", "opposite", "rhyme", "theme", "declined"),
    "rhyming",
)
"""What a visitor chats about: short questions in careless words."""

_CHATS: Final = (*VISITOR_TASKS, "acquaintance", "jokes_on", "refusals_on")
"""What ends a chat as visitors have them, who seldom ask for thinking."""

_TOOL_TASKS: Final = ("known_tool", "unseen_tool", "parallel", "none_needed", "tool_result")


def exchange(dice: Dice, task: str, pieces: Sequence[str] = ()) -> Exchange:
    """One exchange of a task."""
    if task == "coverage" and pieces and dice.chance(0.35):
        return copying.coverage(dice, pieces=pieces)
    if task == "spelling":
        return copying.spelling(dice, pieces)
    return EXCHANGES[task](dice)


def _system(dice: Dice, share: float) -> list[Turn]:
    return [Turn("system", unknown.system_prompt(dice))] if dice.chance(share) else []


def recall_chat(dice: Dice, thinking: bool, length: int) -> Document:
    """Something is told, then `length` characters of other talk, then it is asked."""
    told, asked, as_system = recall.memory(dice)
    if dice.chance(0.12):
        turns = [Turn("system", dice.pick("", "You are a helpful assistant. ") + as_system)]
    else:
        turns = _system(dice, 0.3) + told.turns()
    used = 0
    while used < length:
        filler = exchange(dice, dice.choice(_FILLERS))
        used += len(filler.user) + len(filler.answer) + 40
        turns += filler.turns()
    return Document("recall", turns + asked.turns(), [], thinking)


def chat(dice: Dice, task: str, thinking: bool) -> Document:
    """A chat as visitors have them, which ends with a question of the task."""
    turns = _system(dice, 0.1)
    if task in ("rhyming", "sorting") and dice.chance(0.5):  # judgements need many examples
        drill = [quantities.sorting(dice) for _ in range(dice.randint(2, 5))]
        for item in rhymes.rhyme_drill(dice) if task == "rhyming" else drill:
            turns += item.turns()
    for _ in range(dice.choices(range(4), (55, 22, 14, 9))[0]):
        again = task if task in VISITOR_TASKS and dice.chance(0.5) else dice.choice(VISITOR_TASKS)
        if again == "declined":  # a refusal in the words of the one before would sound deaf
            said = tuple(turn.content for turn in turns if turn.role == "assistant")
            turns += declining.declined(dice, said).turns()
        else:
            turns += exchange(dice, again).turns()
    if task == "acquaintance":
        telling, asked = meeting.acquaintance(dice)
        for told in telling:
            turns += told.turns()
        for _ in range(dice.choices(range(5), (45, 25, 15, 10, 5))[0]):
            turns += exchange(dice, dice.choice(VISITOR_TASKS)).turns()
        last = [asked]
    elif task == "jokes_on":
        last = humour.jokes_on(dice)
    elif task == "refusals_on":
        last = declining.refusals_on(dice)
    elif task == "declined":
        said = tuple(turn.content for turn in turns if turn.role == "assistant")
        last = [declining.declined(dice, said)]
    else:
        last = [exchange(dice, task)]
    for item in last:
        turns += item.turns()
    return Document(task, turns, [], thinking)


def single_task(dice: Dice, task: str, thinking: bool, pieces: Sequence[str] = ()) -> Document:
    """A document of one task: maybe a system prompt, maybe a little chat before."""
    if task == "plain":
        return Document(task, plain=showpieces.plain_text(dice))
    if task == "recall":
        low, high = dice.choice(((0, 300), (100, 1200), (800, 4200)))
        return recall_chat(dice, thinking, dice.randint(low, high))
    if task in _CHATS:
        return chat(dice, task, thinking)
    if task == "spoken_tool":
        return spoken_tools.document(dice, thinking)
    if task in _TOOL_TASKS:
        document = tools.document(dice, task, thinking)
        before: list[Turn] = []
        if dice.chance(0.12):
            before = exchange(dice, dice.choice(_FILLERS[:6])).turns()
        return replace(document, turns=_system(dice, 0.3) + before + document.turns)
    turns = _system(dice, 0.3)
    # Drill is cheap: another problem costs a fifth of another document.
    drill = task in DRILLED and dice.chance(0.8)
    weights = (10, 10, 20, 20, 20, 20) if drill else (60, 20, 12, 8, 0, 0)
    for _ in range(dice.choices(range(6), weights)[0]):
        turns += exchange(dice, task if drill else dice.choice(_FILLERS), pieces).turns()
    return Document(task, turns + exchange(dice, task, pieces).turns(), [], thinking)


def stream(
    dice: Dice,
    warm_up: Callable[[], bool],
    shares: dict[str, float],
    pieces: Sequence[str] = (),
    thinking: float = 0.5,
) -> Iterator[Document]:
    """Documents without end. While `warm_up()` holds, seven in ten are short copying tasks."""
    tasks, weights = list(shares), list(shares.values())
    while True:
        if warm_up() and dice.chance(0.7):
            task = dice.choice(WARM_UP)
            turns = exchange(dice, task, pieces).turns()
            for _ in range(dice.randint(0, 3)):
                turns += exchange(dice, dice.choice(WARM_UP), pieces).turns()
            yield Document(task, turns, [], dice.chance(thinking))
        else:
            task = dice.choices(tasks, weights)[0]
            share = thinking * (0.7 if task in _CHATS else 1.0)
            yield single_task(dice, task, dice.chance(share), pieces)
