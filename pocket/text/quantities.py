"""Comparing, ordering and stepping through numbers, and simple changes of unit."""

from typing import Final

from pocket.text import phrasing, ways_framed, ways_numbers, ways_wider, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

_MORE: Final = "[bigger|larger|greater|more|higher]"
_LESS: Final = "[smaller|less|lower|fewer]"
IS_MORE: Final = (
    *ways_numbers.IS_MORE,
    *(way % _MORE for way in ways_wider.COMPARED),
    f"[has|does] {{a}} [count |weigh |have |]{_MORE} than {{b}}",
    "is {a} [beyond|past|ahead of] {b}",
    f"could {{a}} be {_MORE} than {{b}}",
    f"is {{a}} {_MORE} than {{b}}",
    f"[do you think|can you say if|tell me if|i think] {{a}} is {_MORE} than {{b}}",
    "[is|would] {a} [above|be above|over] {b}",
    f"{{a}} is {_MORE} than {{b}}, [right|true or false|yes or no|correct|isn't it]",
    "{a} > {b}",
    f"is the number {{a}} {_MORE} than [the number |]{{b}}",
    f"[so|now] {{a}} is {_MORE} than {{b}}",
    f"isn't {{a}} {_MORE} than {{b}}",
    "[does|can] {a} beat {b}",
)
IS_LESS: Final = (
    *ways_numbers.IS_LESS,
    *(way % _LESS for way in ways_wider.COMPARED),
    f"could {{a}} be {_LESS} than {{b}}",
    f"[has|does] {{a}} [count |weigh |have |]{_LESS} than {{b}}",
    f"is {{a}} {_LESS} than {{b}}",
    f"[do you think|can you say if|tell me if|i think] {{a}} is {_LESS} than {{b}}",
    "is {a} [below|under] {b}",
    f"{{a}} is {_LESS} than {{b}}, [right|true or false|yes or no|correct|isn't it]",
    "{a} < {b}",
    f"isn't {{a}} {_LESS} than {{b}}",
)
IS_SAME: Final = (
    *ways_numbers.IS_SAME,
    "is {a} [equal to|the same as|as big as|as much as] {b}",
    "are {a} and {b} the same[ number|]",
    "{a} = {b}, [right|true or false|yes or no]",
    "does {a} equal {b}",
)
_MOST: Final = "[biggest|largest|greatest|highest|bigger|larger|higher]"
_LEAST: Final = "[smallest|lowest|least|smaller|lower]"
WHICH_MOST: Final = (
    *ways_numbers.WHICH_MOST,
    f"[choose|take|select|look for] the {_MOST}: {{l}}",
    "[who|which side] has more, {l}",
    "compare {l}",
    f"{{l}}, the {_MOST} [is|one is|please]",
    f"[i need|i want] the {_MOST} [one |number |]of {{l}}",
    f"[which|what|which number|which one] is {_MOST}, {{l}}",
    f"[which|which one|what number|which number] is {_MOST}: {{l}}",
    f"[what|which] is the {_MOST} [number |one |]of {{l}}",
    f"[what|which] is the {_MOST} [number |]in {{l}}",
    f"[find|give me|name|choose|show me|say] the {_MOST} [number |]of {{l}}",
    f"[find|give me|name|choose|show me] the {_MOST} [number|one]: {{l}}",
    f"the {_MOST} of {{l}}",
    f"{{l}}: [which|which one|what] is [the |]{_MOST}",
    f"{{l}}. [which|which one|what] is [the |]{_MOST}",
    "[maximum|the maximum|the max] [of|from|in] {l}",
    "max {l}",
    "[what is|which is] more[:|,|] {l}",
    f"i have {{l}}, which is [the |]{_MOST}",
    f"among {{l}}, [which|what] is [the |]{_MOST}",
)
WHICH_LEAST: Final = (
    *ways_numbers.WHICH_LEAST,
    f"[choose|take|select|look for] the {_LEAST}: {{l}}",
    f"{{l}}, the {_LEAST} [is|one is|please]",
    f"[i need|i want|tell me] the {_LEAST} [one |number |]of {{l}}",
    f"[which|what|which number|which one] is {_LEAST}, {{l}}",
    f"[which|which one|what number|which number] is {_LEAST}: {{l}}",
    f"[what|which] is the {_LEAST} [number |one |]of {{l}}",
    f"[what|which] is the {_LEAST} [number |]in {{l}}",
    f"[find|give me|name|choose|show me|say] the {_LEAST} [number |]of {{l}}",
    f"[find|give me|name|choose|show me] the {_LEAST} [number|one]: {{l}}",
    f"the {_LEAST} of {{l}}",
    f"{{l}}: [which|which one|what] is [the |]{_LEAST}",
    f"{{l}}. [which|which one|what] is [the |]{_LEAST}",
    "[minimum|the minimum|the min] [of|from|in] {l}",
    "min {l}",
    "[what is|which is] less[:|,|] {l}",
    f"i have {{l}}, which is [the |]{_LEAST}",
    f"among {{l}}, [which|what] is [the |]{_LEAST}",
)
_UP: Final = (
    "[ascending|from small to big|from smallest to largest|from low to high|smallest first"
    "|in ascending order|from least to greatest|increasing|going up|lowest first|by size]"
)
_DOWN: Final = (
    "[descending|from biggest to smallest|from large to small|from high to low|largest first"
    "|in descending order|from greatest to least|decreasing|going down|highest first|biggest first]"
)
_SET: Final = "[the numbers |these numbers: |these: |these numbers |the list |numbers: |: |this: |]"
SORT_UP: Final = (
    *ways_numbers.SORT_UP,
    *ways_wider.SORTED,
    *ways_framed.SORT_UP,
    f"[the order of|correct order of|right order for] {_SET}{{l}}",
    f"[i need|i want|give me] {_SET}{{l}} {_UP}",
    f"which order do {{l}} have {_UP}",
    f"[sort|order|arrange|rank|sort out] {_SET}{{l}}",
    f"[sort|order|arrange|rank] {_SET}{{l}} {_UP}",
    f"[sort|order|arrange|rank|put|write] {_SET}{{l}} {_UP}",
    f"[put|bring|get|write|list|place] {_SET}{{l}} [in|into] [order|the right order|ascending "
    "order]",
    f"[sort|order|list|rank] {_UP}: {{l}}",
    "{l}[:| -|,|.] [sort|order|sort them|sort it|order them|put them in order|sorted|in order]",
    f"{{l}} {_UP}",
    f"[can|could|would|will] you [sort|order|arrange] {_SET}{{l}}",
    f"here are [some |my |]numbers: {{l}}. [sort|order|arrange] them[| {_UP}]",
    "i want {l} [sorted|in order]",
    f"what is {{l}} [sorted|in order|{_UP}]",
    "[sort|order] from [smallest|lowest|small] to [biggest|highest|largest|big]: {l}",
)
SORT_DOWN: Final = (
    *ways_numbers.SORT_DOWN,
    *ways_framed.SORT_DOWN,
    f"[i need|i want|give me] {_SET}{{l}} {_DOWN}",
    f"{_DOWN}: {{l}}",
    f"turn {{l}} into a list {_DOWN}",
    f"[sort|order|arrange|rank] {_SET}{{l}} {_DOWN}",
    f"[sort|order|arrange|rank|put|write] {_SET}{{l}} {_DOWN}",
    f"[sort|order|list|rank|put] {_DOWN}: {{l}}",
    f"{{l}}, {_DOWN}",
    f"{{l}} {_DOWN}",
    f"[can|could|would|will] you [sort|order|arrange] {_SET}{{l}} {_DOWN}",
    f"here are [some |my |]numbers: {{l}}. [sort|order|arrange] them {_DOWN}",
    f"[sort|put] {_SET}{{l}} in [reverse|descending|falling] order",
    "[sort|order] from [biggest|highest|largest|big] to [smallest|lowest|small]: {l}",
)
AFTER: Final = (
    *ways_numbers.AFTER,
    "[my number is|i have|we are at|here is] {a}, what comes [next|after it|after that]",
    "[add one to|plus one:] {a}",
    "what follows {a}",
    "[what|which] [number |]comes [after|next after|right after|directly after] {a}",
    "[what|which] [number|one] [follows|is next after|is after|is one more than] {a}",
    "[what is|what's] [the number after|the next number after|after|one more than] {a}",
    "[the |]next number [after|from] {a}",
    "[what|which number] do i get after {a}",
    "one more than {a}",
)
BEFORE: Final = (
    *ways_numbers.BEFORE,
    "[what|which] [number |]comes [before|just before|directly before] {a}",
    "[what|which] [number|one] is [before|one less than|just before] {a}",
    "[what is|what's] [the number before|before|one less than] {a}",
    "the number before {a}",
    "one less than {a}",
)
CONTINUE: Final = (
    *ways_numbers.CONTINUE,
    "{l}[, |... |...| ]what comes next",
    "[continue|go on|what comes next|what is next|next number]: {l}",
    "{l}, [and|then|next]",
    "{l}...",
    "[after|which number follows] {l}[ comes|]",
)
COUNT: Final = (
    *ways_numbers.COUNT,
    "[beginning|starting] [at|with|from] {a}, count [up |]to {b}",
    "[upwards|up|on] from {a} to {b}",
    "[recite|tell me|type] the numbers {a} to {b}",
    "count [from {a} to {b}|{a} to {b}|from {a} up to {b}|from {a} through {b}|from {a} till {b}]",
    "[list|write|give me|show me|name|print] [all |]the numbers from {a} to {b}",
    "[numbers|the numbers] [from |]{a} to {b}",
    "[can you|could you|would you|i want you to|let's|try to] count from {a} to {b}",
    "[start|begin] [with|at|from] {a} and [go up|go on|count up] to {b}",
    "[write|list|give me] {a} to {b}",
    "all numbers between {a} and {b}",
    "[go|run] from {a} to {b}",
)
COUNT_TO: Final = (
    *ways_numbers.COUNT_TO,
    "count [to|up to|till|until] {b}",
    "[can you|could you|would you|i want you to|try to|do you know how to] count to {b}",
    "[let's|let us] count [up |]to {b}",
    "[count|counting] from [1|one] to {b}",
    "[list|say|write|give me] [the |all |]numbers [up |]to {b}",
    "the first {b} numbers",
    "[how do you|show me how you] count to {b}",
    "[numbers|count] 1 to {b}",
)
COUNT_DOWN: Final = (
    *ways_numbers.COUNT_DOWN,
    "count [down|backwards|back] [from |]{b} to {a}",
    "[can you|could you] count [down|backwards] from {b} to {a}",
    "[start|begin] [at|with|from] {b} and [go down|count down] to {a}",
    "from {b} [down|back|backwards] to {a}",
    "[list|write] the numbers from {b} down to {a}",
)
COUNT_ZERO: Final = ways_numbers.COUNT_ZERO
COUNT_BY: Final = (
    *ways_numbers.COUNT_BY,
    "skip count by {s} [from {a} |]to {b}",
    "[from {a} |]up to {b}, always plus {s}",
    "[only |]every [{o}] number [from {a} |]to {b}",
    "count [by|in] {s}s [from {a} |]to {b}",
    "count [from {a} |]to {b} [by|in] {s}s",
    "count [from {a} |]to {b} in steps of {s}",
    "[list|give me|write] every [{o}] number from {a} to {b}",
    "[from {a} |]to {b} in steps of {s}",
    "count [from {a} |]to {b}, {s} at a time",
)
_STEPS: Final = {2: ("two", "second"), 3: ("three", "third"), 5: ("five", "fifth"),
                 10: ("ten", "tenth")}  # fmt: skip
WORDS: Final = words.split("""
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty""")
UNITS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...], int], ...]] = (
    (("m", "meters", "metres", "meter"), ("cm", "centimeters", "centimetres"), 100),
    (("km", "kilometers", "kilometres"), ("m", "meters", "metres"), 1000),
    (("cm", "centimeters", "centimetres"), ("mm", "millimeters", "millimetres"), 10),
    (("m", "meters"), ("mm", "millimeters"), 1000),
    (("kg", "kilograms", "kilos", "kilo"), ("g", "grams", "gram"), 1000),
    (("l", "liters", "litres", "liter"), ("ml", "milliliters", "millilitres"), 1000),
    (("hours", "h", "hour", "hrs"), ("minutes", "min", "mins"), 60),
    (("minutes", "min"), ("seconds", "s", "sec"), 60),
    (("days", "day"), ("hours", "h"), 24),
    (("weeks", "week"), ("days", "day"), 7),
    (("years", "year"), ("months", "month"), 12),
    (("tons", "tonnes"), ("kg", "kilograms", "kilos"), 1000),
)
CONVERT: Final = (
    *ways_numbers.CONVERT,
    "{n} {u} [would be|makes|equals|gives] [how many|what in] {v}",
    "[write|say|show] {n} {u} as {v}",
    "in {v}[ please|]: {n} {u}",
    "if [it|something|a thing] [is|has] {n} {u}, how many {v} is [it|that]",
    "i [have|need|bought|ran] {n} {u}. [And in {v}|What is that in {v}]",
    "[the number of|number of] {v} in {n} {u}",
    "[how many|how much] {v} [are|is|are in|is in|in|make|are there in|fit into] {n} {u}",
    "how many {v} [does|do|has|have] {n} {u}[ have|]",
    "[convert|change|translate] {n} {u} [to|into] {v}",
    "[what is|what's|what are|how much is|how much are] {n} {u} in {v}",
    "{n} {u} [to|in|into|as] {v}",
    "{n}{u} [to|in|into] {v}",
    "{n} {u} [is|are|equals] how many {v}",
    "[can you|could you|would you] [convert|change|turn] {n} {u} [to|into] {v}",
    "[give me|tell me|write|show me] {n} {u} in {v}",
    "{n} {u} = ? {v}",
    "{n} {u}, [what is that in|how much is that in] {v}",
    "i have {n} {u}, how many {v} [is that|are that|is it]",
    "how [long|far|heavy|much] is {n} {u} in {v}",
    "in {v}, [how much is|what is] {n} {u}",
)


def _number(dice: Dice) -> int:
    return dice.randint(0, dice.choices((9, 20, 99, 999), (3, 3, 8, 2))[0])


def _pair(dice: Dice) -> tuple[int, int]:
    """Two different numbers; often the same digits in another order, where length misleads."""
    a = _number(dice)
    b = int(str(a)[::-1]) if dice.chance(0.2) else a + dice.randint(-9, 9)
    b = abs(b) if dice.chance(0.5) else _number(dice)
    return (a, b) if a != b else (a, b + 1)


def _spoken(dice: Dice, numbers: list[int], joined: bool = False) -> str:
    shown = [str(number) for number in numbers]
    style = dice.randrange(7)
    if joined or style == 0:
        link = dice.pick(" and ", " or ", " and ", " or ", " versus ", " against ")
        return f"{', '.join(shown[:-1])}{link}{shown[-1]}"
    if style == 1:
        return " ".join(shown)
    if style == 6:
        return dice.pick("; ", " / ", " - ", " | ", "\n", " and ", " then ", "... ").join(shown)
    if style == 2:
        return f"[{', '.join(shown)}]"
    return dice.pick(", ", ", ", ",").join(shown)


def comparing(dice: Dice) -> Exchange:
    """Yes or no to a comparison of two numbers, or the largest or smallest of some."""
    roll = dice.random()
    if roll < 0.5:
        a, b = _pair(dice)
        if roll < 0.07:
            b = a if dice.chance(0.4) else b
            asked = phrasing.say(dice, dice.choice(IS_SAME), a=a, b=b)
            same = f"Yes, {a} and {b} are equal." if a == b else f"No, {a} and {b} are not equal."
            return Exchange(asked, same, f"I compare {a} and {b}.")
        more = roll < 0.32
        asked = phrasing.say(dice, dice.choice(IS_MORE if more else IS_LESS), a=a, b=b)
        verdict = "Yes" if (a > b) == more else "No"
        relation = "bigger" if a > b else "smaller"
        return Exchange(asked, f"{verdict}, {a} is {relation} than {b}.", f"I compare {a} and {b}.")
    count = dice.choices((2, 3, 4), (6, 4, 1))[0]
    numbers = list(_pair(dice)) if count == 2 else _several(dice, count)
    most = dice.chance(0.6)
    listed = _spoken(dice, numbers, count == 2 or dice.chance(0.4))
    asked = phrasing.say(dice, dice.choice(WHICH_MOST if most else WHICH_LEAST), l=listed)
    best = max(numbers) if most else min(numbers)
    kind = (
        ("the biggest" if most else "the smallest")
        if count > 2
        else "bigger"
        if most
        else "smaller"
    )
    return Exchange(asked, f"{best} is {kind}.", f"I compare {' and '.join(map(str, numbers))}.")


def _several(dice: Dice, count: int) -> list[int]:
    top = dice.choices((9, 20, 99, 999), (5, 3, 9, 1))[0]
    mixed = dice.chance(0.35)  # of one, two and three digits
    numbers: list[int] = []
    while len(numbers) < count:
        number = dice.randint(0, dice.pick(9, 99, 999) if mixed else top)
        if mixed and dice.chance(0.3):
            number = number // 10 * 10
        if number not in numbers:
            numbers.append(number)
    return numbers


def numbers_to_sort(dice: Dice, count: int) -> list[int]:
    """Return `count` different numbers: evenly spaced, of different lengths, made of the same
    digits, or any; mixed, falling or rising."""
    kind = dice.choices(("any", "row", "lengths", "digits"), (10, 4, 4, 2))[0]
    if kind == "row":
        step = dice.choices((1, 2, 3, 5, 10, 100), (6, 2, 1, 2, 2, 1))[0]
        start = dice.randint(0, dice.pick(3, 9, 20, 90)) * (step if step > 3 else 1)
        numbers = [start + step * i for i in range(count)]
    elif kind == "lengths":
        made: set[int] = set()
        while len(made) < count:
            unit = 10 ** (len(made) % 3 if dice.chance(0.7) else dice.randrange(3))
            round_number = dice.randint(1, 9) * unit
            made.add(round_number if dice.chance(0.5) else round_number + dice.randrange(unit))
        numbers = sorted(made)
    elif kind == "digits" and count < 6:
        a, b = dice.sample("123456789", 2)
        pool = (a, b, a + b, b + a, a + a, b + b, a + "0", b + "0", a + "00", a + b + "0")
        numbers = [int(shown) for shown in dice.sample(pool, count)]
    else:
        numbers = _several(dice, count)
    order = dice.choices(("mixed", "falling", "rising"), (6, 3, 1))[0]
    if order == "mixed":
        dice.shuffle(numbers)
    else:
        numbers.sort(reverse=order == "falling")
    return numbers


def sorting(dice: Dice) -> Exchange:
    """Two to seven numbers in order."""
    numbers = numbers_to_sort(dice, dice.choices((2, 3, 4, 5, 6, 7), (2, 12, 7, 3, 2, 1))[0])
    down = dice.chance(0.35)
    pattern = dice.choice(SORT_DOWN if down else SORT_UP)
    asked = phrasing.say(dice, pattern, ".", l=_spoken(dice, numbers, dice.chance(0.2)))
    return Exchange(
        asked, ", ".join(map(str, sorted(numbers, reverse=down))), "I put the numbers in order."
    )


def _shown(dice: Dice, number: int) -> str:
    return WORDS[number] if number <= 20 and dice.chance(0.25) else str(number)


def stepping(dice: Dice) -> Exchange:
    """The next number, the one before, counting up, down and in steps, however it is asked."""
    roll = dice.random()
    if roll < 0.2:
        a = dice.randint(0, dice.pick(20, 99, 999))
        if dice.chance(0.6):
            asked = phrasing.say(dice, dice.choice(AFTER), a=a)
            return Exchange(asked, f"After {a} comes {a + 1}.", "I count on by one.")
        asked = phrasing.say(dice, dice.choice(BEFORE), a=a + 1)
        return Exchange(asked, f"Before {a + 1} comes {a}.", "I count back by one.")
    if roll < 0.28:
        a = dice.randint(0, dice.pick(9, 30, 90))
        step = dice.choices((1, 2, 5, 10), (6, 2, 1, 1))[0]
        run = [a + step * i for i in range(dice.randint(3, 5))]
        asked = phrasing.say(
            dice, dice.choice(CONTINUE), l=dice.pick(", ", " ").join(map(str, run))
        )
        return Exchange(asked, f"Next comes {run[-1] + step}.", "I count on.")
    if roll < 0.43:
        step = dice.choice(tuple(_STEPS))
        pattern = phrasing.expand(dice, dice.choice(COUNT_BY))
        start = step * (dice.pick(1, 1, 2, 0) if "{a}" in pattern else 1)
        end = start + step * dice.randint(3, 8)
        word, ordinal = _STEPS[step]
        asked = phrasing.say(dice, pattern, ".", a=start, b=end, o=ordinal, s=dice.pick(word, step))
        return Exchange(
            asked, ", ".join(map(str, range(start, end + 1, step))), "I count in steps."
        )
    if roll < 0.47:
        end = dice.randint(2, 20)
        asked = phrasing.say(dice, dice.choice(COUNT_ZERO), ".", b=_shown(dice, end))
        down_to_one = ", ".join(map(str, range(end, 0, -1)))
        return Exchange(asked, down_to_one, f"I count from {end} to 1.")
    if roll < 0.68:
        end = dice.randint(2, 20)
        asked = phrasing.say(dice, dice.choice(COUNT_TO), ".", b=_shown(dice, end))
        return Exchange(asked, ", ".join(map(str, range(1, end + 1))), f"I count from 1 to {end}.")
    start = dice.randint(0, dice.pick(9, 20, 80))
    end = start + dice.randint(2, 9)
    down = dice.chance(0.4)
    ends = {"a": _shown(dice, start), "b": _shown(dice, end)}
    pattern = dice.choice(COUNT_DOWN if down else COUNT)
    asked = phrasing.say(dice, pattern, ".", a=ends["a"], b=ends["b"])
    run = list(range(end, start - 1, -1) if down else range(start, end + 1))
    return Exchange(asked, ", ".join(map(str, run)), f"I count from {run[0]} to {run[-1]}.")


def converting(dice: Dice) -> Exchange:
    """A whole number of one unit in another."""
    large, small, factor = dice.choice(UNITS)
    count = dice.randint(1, dice.pick(5, 12) if factor in (7, 12, 24, 60) else dice.pick(9, 20, 60))
    u, v = dice.choice(large), dice.choice(small)
    number, result = count, count * factor
    if dice.chance(0.3):
        u, v, number, result = v, u, result, number
    shown = _shown(dice, number) if dice.chance(0.5) else str(number)
    asked = phrasing.say(dice, dice.choice(CONVERT), n=shown, u=u, v=v)
    return Exchange(asked, f"{number} {u} = {result} {v}", f"I change {u} to {v}.")
