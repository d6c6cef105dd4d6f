"""Sums, differences and products of small numbers, thought through digit by digit."""

from typing import Final

from pocket.text.dice import Dice
from pocket.text.document import Exchange

_FORMS: Final = (
    "What is {a} {o} {b}?",
    "What is {a} {o} {b}?",
    "{a} {o} {b}",
    "{a} {o} {b} =",
    "{a}{o}{b}",
    "{a}{o}{b}=?",
    "Calculate {a} {o} {b}.",
    "How much is {a} {o} {b}?",
    "what's {a} {o} {b}?",
    "Compute {a} {o} {b}",
    "What is {a} {w} {b}?",
    "{a} {w} {b}",
    "How much is {a} {w} {b}?",
)
_WORDS: Final = {"+": ("plus",), "-": ("minus",), "*": ("times", "multiplied by")}


def added(a: int, b: int) -> str:
    """The written sum, ones first, with the carry said aloud."""
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    return (
        f"{a % 10} + {b % 10} = {ones}, carry {carry}. "
        f"{a // 10} + {b // 10} + {carry} = {tens}. So {a + b}."
    )


def taken(a: int, b: int) -> str:
    """The written difference for a >= b, ones first, with the borrow said aloud."""
    borrow = int(a % 10 < b % 10)
    top = a % 10 + 10 * borrow
    return (
        f"{top} - {b % 10} = {top - b % 10}, borrow {borrow}. "
        f"{a // 10} - {b // 10} - {borrow} = {a // 10 - b // 10 - borrow}. So {a - b}."
    )


def problem(dice: Dice, operator: str = "") -> Exchange:
    """One problem; + and - on operands to 99 that are on this side of the split, x on 0 to 10.

    Products are a table to know, so all of them are trained. Borrowing is the hard part of
    subtraction, so pairs that borrow come more often than chance has them.
    """
    operator = operator or dice.choices("+-*", (4, 5, 2))[0]
    if operator == "*":
        a, b = dice.randint(0, 10), dice.randint(0, 10)
        result, thought = a * b, f"{a} times {b} is {a * b}."
    else:

        def draw() -> tuple[int, int]:
            top = dice.choices((9, 20, 99), (2, 1, 6))[0]
            return dice.randint(0, top), dice.randint(0, top)

        a, b = dice.own(draw, lambda p: f"{min(p)}{operator}{max(p)}")
        if operator == "-":
            a, b = max(a, b), min(a, b)
            if a % 10 >= b % 10 and dice.chance(0.3):
                return problem(dice, "-")
            result, thought = a - b, taken(a, b)
        else:
            result, thought = a + b, added(a, b)
    sign = dice.pick("*", "x", "×", "*") if operator == "*" else operator
    question = dice.choice(_FORMS).format(a=a, b=b, o=sign, w=dice.choice(_WORDS[operator]))
    return Exchange(question, f"{a} {operator} {b} = {result}", thought)
