"""Days and months: neighbours, order, numbers, lengths."""

from collections.abc import Callable
from typing import Final

from pocket.text import phrasing, ways_numbers, ways_wider
from pocket.text.dice import Dice
from pocket.text.document import Exchange
from pocket.text.facts import DAYS, MONTHS

AFTER: Final = (
    *ways_numbers.DAY_AFTER,
    "[what|which] {k} [comes|is|goes] [after|right after|directly after|next after] {x}",
    "[what|which] {k} [follows|succeeds] {x}",
    "[the|] [next|] {k} after {x}",
    "[what is|what's|whats|tell me] [the {k} after|after|next after] {x}",
    "[what|which {k}] [comes|is] next[,| after] {x}",
    "{x} [is followed by|comes before] [what|which {k}|...]",
    "after {x} [comes|comes what|is|which {k} comes|what {k} is it]",
    "[what|which] {k} do we have after {x}",
)
BEFORE: Final = (
    *ways_numbers.DAY_BEFORE,
    "[what|which] {k} [comes|is|goes] [before|right before|directly before|just before] {x}",
    "[what|which] {k} [precedes|is in front of] {x}",
    "[the|] {k} [before|in front of] {x}",
    "[what is|what's|whats|tell me] [the {k} before|before] {x}",
    "{x} [comes after|follows|is after] [what|which {k}|...]",
    "before {x} [comes|comes what|is|which {k} comes|what {k} is it]",
    "[what|which] {k} do we have before {x}",
)
TOMORROW: Final = (
    *ways_numbers.TOMORROW,
    "today is {x}[, what|. what| and what] [is|day is|will be] tomorrow",
    "[if it is|it is|it's] {x} [today|now], what [is|day is] [tomorrow|it tomorrow]",
    "[what is|what day is] tomorrow[,|] if [it is|today is] {x}[ today|]",
    "today is {x}, so tomorrow is",
    "tomorrow is what if today is {x}",
    "[if|when] yesterday was {x}, [what|which day] is [it today|today]",
    "yesterday was {x}. [what day is it|what is today|what's today]",
    "yesterday it was {x}, [and today|what is it now]",
)
YESTERDAY: Final = (
    "today is {x}[, what|. what| and what] [was|day was] yesterday",
    "[if it is|it is|it's] {x} [today|now], what [was|day was] [yesterday|it yesterday]",
    "[what was|what day was] yesterday[,|] if [it is|today is] {x}[ today|]",
    "today is {x}, so yesterday was",
    "[if|when] tomorrow is {x}, [what|which day] is [it today|today]",
    "tomorrow [will be|is going to be] {x}, [what|which day] is [it today|today]",
)
ALL: Final = (
    "[list|name|tell me|give me|write|say|show me] [all |][the |]{a}",
    "[list|name|tell me|give me|write|say] [all |][the |]{a} in order",
    "[what|which] are the {a}",
    "[which|what] {a} are there",
    "[can|could] you [list|name|tell me|say] [all |]the {a}",
    "[the|all] {a}",
    "do you know [all |]the {a}",
    "how many {a} are there and [what are they|which]",
)
NTH: Final = (
    *ways_numbers.NTH,
    "[what|which] is the {o} {k} [of the {w}|in the {w}|]",
    "[what|which] {k} is [the |]{o}",
    "[name|tell me|say|give me] the {o} {k}[ of the {w}|]",
    "[the |]{o} {k}[ of the {w}|]",
    "what is the name of the {o} {k}",
    "{k} number {n}[ is| of the {w}|]",
)
PLACE: Final = (
    *ways_numbers.PLACE,
    "[which|what] number is {x}",
    "what is the number of {x}",
    "{x} is [which|what] number",
    "[which|what] place [has|does] {x}[ have|] [in the year|in a year|]",
    "{x} is the how manieth month",
    "[what|which] month of the year is {x}",
)
LENGTH: Final = (
    *ways_numbers.LENGTH,
    "how many days [are in|does|has|are there in the month of|are there in the month] {x}[ have|]",
    "how [long|many days] is {x}",
    "[what is|tell me] the [number of days|length] [in|of] {x}",
    "number of days in {x}",
    "{x} has how many days",
)
ORDER: Final = (
    "[is|does] {x} [come |]{r} {y}",
    "{x} [comes|is] {r} {y}, [right|true or false|yes or no]",
    "[does|is] {x} earlier than {y}",
)
WHICH_FIRST: Final = (
    *ways_wider.BEFORE_OR_AFTER,
    "[what|which] comes first, {x} or {y}",
    "[which|what] is [first|earlier], {x} or {y}",
    "does {x} come before or after {y}",
    "{x} comes before or after {y}",
    "[is {x} earlier or later than|where is {x} compared with] {y}",
)
WORK_WEEK: Final = ways_numbers.WORK_WEEK
_ORDINALS: Final = (
    *(
        [
            "first",
            "second",
            "third",
            "fourth",
            "fifth",
            "sixth",
            "seventh",
            "eighth",
            "ninth",
            "tenth",
            "eleventh",
            "twelfth",
        ]
    ),
)
_SHORT: Final = ("1st", "2nd", "3rd", *(f"{n}th" for n in range(4, 13)))
_LONG_MONTHS: Final = (1, 3, 5, 7, 8, 10, 12)


def _days_in(month: int) -> str:
    if month == 2:
        return "February has 28 days, and 29 in a leap year."
    return f"{MONTHS[month - 1]} has {31 if month in _LONG_MONTHS else 30} days."


def _typed(dice: Dice, name: str) -> str:
    return name.lower() if dice.chance(0.4) else name


def _tomorrow(dice: Dice, shown: str, after: str, before: str) -> Exchange:
    pattern = phrasing.expand(dice, dice.choice(TOMORROW + YESTERDAY))
    if "yesterday was {x}" in pattern or "yesterday it was" in pattern:
        answer = f"Today is {after}."
    elif "tomorrow is {x}" in pattern or "tomorrow will be" in pattern or "going to" in pattern:
        answer = f"Today is {before}."
    elif "yesterday" in pattern:
        answer = f"Yesterday was {before}."
    else:
        answer = f"Tomorrow is {after}."
    return Exchange(phrasing.say(dice, pattern, x=shown), answer, _THOUGHT)


def _compared(dice: Dice, cycle: tuple[str, ...], name: str) -> Exchange:
    at = cycle.index(name)
    near = [cycle[i] for i in (at - 1, at + 1) if 0 <= i < len(cycle)]
    other = dice.choice(near if dice.chance(0.4) else [item for item in cycle if item != name])
    said = "before" if cycle.index(name) < cycle.index(other) else "after"
    x, y = _typed(dice, name), _typed(dice, other)
    if dice.chance(0.5):
        asked = phrasing.say(dice, dice.choice(WHICH_FIRST), x=x, y=y)
        return Exchange(asked, f"{name} comes {said} {other}.", _THOUGHT)
    pattern = phrasing.expand(dice, dice.choice(ORDER))
    relation = dice.pick("before", "after") if "{r}" in pattern else "before"
    verdict = "Yes" if said == relation else "No"
    asked = phrasing.say(dice, pattern, r=relation, x=x, y=y)
    return Exchange(asked, f"{verdict}, {name} comes {said} {other}.", _THOUGHT)


def _listed(dice: Dice, kind: str, cycle: tuple[str, ...], whole: str) -> Exchange:
    every = dice.pick(
        f"{kind}s of the {whole}", f"{kind}s in a {whole}", f"{len(cycle)} {kind}s", f"{kind}s"
    )
    asked = phrasing.say(dice, dice.choice(ALL), a=every)
    return Exchange(asked, ", ".join(cycle) + ".", _THOUGHT)


def _nth(dice: Dice, kind: str, cycle: tuple[str, ...], whole: str) -> Exchange:
    at = dice.randrange(len(cycle))
    last = at == len(cycle) - 1 and dice.chance(0.5)
    ordinal = "last" if last else dice.pick(_ORDINALS[at], _SHORT[at])
    pattern = phrasing.expand(
        dice, dice.choice([w for w in NTH if "{n}" not in w] if last else NTH)
    )
    asked = phrasing.say(dice, pattern, o=ordinal, k=kind, w=whole, n=at + 1)
    return Exchange(asked, f"The {ordinal} {kind} is {cycle[at]}.", _THOUGHT)


_THOUGHT: Final = "I know the days and the months."
_Asking = Callable[[Dice], Exchange]


def calendar(dice: Dice) -> Exchange:
    """A question about the week or the year."""
    kind, cycle, whole = dice.pick(("day", DAYS, "week"), ("month", MONTHS, "year"))
    at = dice.randrange(len(cycle))
    name, after, before = cycle[at], cycle[(at + 1) % len(cycle)], cycle[at - 1]
    shown = _typed(dice, name)
    makers: list[tuple[float, _Asking]] = [
        (30, lambda d: Exchange(phrasing.say(d, d.choice(AFTER), x=shown, k=kind),
                                f"{after} comes after {name}.", _THOUGHT)),
        (20, lambda d: Exchange(phrasing.say(d, d.choice(BEFORE), x=shown, k=kind),
                                f"{before} comes before {name}.", _THOUGHT)),
        (14, lambda d: _listed(d, kind, cycle, whole)),
        (10, lambda d: _nth(d, kind, cycle, whole)),
        (18, lambda d: _compared(d, cycle, name)),
    ]  # fmt: skip
    if kind == "day":
        makers.append((24, lambda d: _tomorrow(d, shown, after, before)))
        first = "The first day of the week is Monday."
        makers.append(
            (5, lambda d: Exchange(phrasing.say(d, d.choice(WORK_WEEK)), first, _THOUGHT))
        )
    else:
        makers += [
            (12, lambda d: Exchange(phrasing.say(d, d.choice(LENGTH), x=shown), _days_in(at + 1),
                                    _THOUGHT)),
            (10, lambda d: Exchange(phrasing.say(d, d.choice(PLACE), x=shown),
                                    f"{name} is month number {at + 1}.", _THOUGHT)),
        ]  # fmt: skip
    return dice.choices([maker for _, maker in makers], [weight for weight, _ in makers])[0](dice)
