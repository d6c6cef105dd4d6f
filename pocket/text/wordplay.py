"""Colours and opposites."""

from typing import Final

from pocket.text import phrasing, ways_wider, ways_words
from pocket.text.dice import Dice
from pocket.text.document import Exchange
from pocket.text.facts import COLOUR_OF, OPPOSITES

MIXED: Final[dict[tuple[str, str], str]] = {
    ("blue", "yellow"): "green",
    ("red", "blue"): "purple",
    ("red", "yellow"): "orange",
    ("red", "white"): "pink",
    ("black", "white"): "grey",
    ("red", "green"): "brown",
    ("blue", "white"): "light blue",
}
MIXING: Final = (
    *ways_words.MIXING,
    "{a} paint and {b} paint [together|mixed][ make| give|]",
    "[what|which colo[u|]r] comes [out of|from] {a} and {b}",
    "[put|pour|stir] {a} [into|and|to] {b}[, what happens|, which color|]",
    "[what|which colo[u|]r] [do|will|would] [you|i|we] get [when|if] [you|i|we] mix {a} and {b}",
    "[what|which|what colo[u|]r] [is|makes|does] {a} [and|plus|with] {b}[ make| give| mixed|]",
    "[mix|combine|blend] {a} [and|with] {b}",
    "[mixing|blending|combining] {a} and {b} [makes|gives|makes what|gives what|is]",
    "[if|when] [you|i] [mix|combine] {a} [and|with] {b}, [what|which colo[u|]r] [is it|do i get]",
    "{a} [and|plus|+|mixed with] {b} [is|makes|gives|=|makes what|gives which color]",
    "i [mix|mixed] {a} [and|with] {b}[ paint|], [what is it|what do i have|which color is it]",
    "how do {a} and {b} mix",
)
THINGS: Final[dict[str, str]] = {
    **COLOUR_OF,
    "the sea": "blue",
    "a frog": "green",
    "a strawberry": "red",
    "a cucumber": "green",
    "milk": "white",
    "the night": "black",
    "a rose": "red",
    "an elephant": "grey",
    "a polar bear": "white",
    "a pumpkin": "orange",
    "a leaf": "green",
    "a cloud": "white",
    "coffee": "brown",
    "a flamingo": "pink",
    "a plum": "purple",
    "a crow": "black",
    "a cherry": "red",
    "salt": "white",
    "the ocean": "blue",
    "fire": "red",
}
COLOUR: Final = (
    *ways_words.COLOUR,
    "[what|which] colo[u|]r [is|has|does] {t}[ have|]",
    "[what is|what's|tell me|whats] the colo[u|]r of {t}",
    "[do you know|tell me|say] [what|which] colo[u|]r {t} [is|has]",
    "{t} [is|has] [what|which] colo[u|]r",
    "{t}: [what|which] colo[u|]r",
    "of [what|which] colo[u|]r is {t}",
    "the colo[u|]r of {t} is",
    "what colo[u|]r [do you think|would you say] {t} is",
    "[what|which] colo[u|]r [should|would|must] {t} [be|have]",
    "how is {t} colo[u|]red",
)
EITHER: Final = (
    *ways_words.EITHER,
    "is {t} {x} or {y}",
    "{t}, is it {x} or {y}",
    "which is {t}, {x} or {y}",
)
IS_IT: Final = ("is {t} {x}", "{t} is {x}, [right|true|isn't it|yes or no]")

PAIRS: Final[dict[str, str]] = {
    **OPPOSITES,
    "tall": "short",
    "begin": "end",
    "start": "stop",
    "cheap": "expensive",
    "loud": "quiet",
    "heavy": "light",
    "rich": "poor",
    "strong": "weak",
    "clean": "dirty",
    "always": "never",
    "push": "pull",
    "summer": "winter",
    "buy": "sell",
    "win": "lose",
    "good": "bad",
    "black": "white",
    "long": "short",
    "near": "far",
    "wide": "narrow",
    "thick": "thin",
    "love": "hate",
    "yes": "no",
    "in": "out",
    "on": "off",
    "above": "below",
    "first": "last",
    "front": "back",
    "inside": "outside",
    "easy": "difficult",
    "warm": "cool",
    "new": "old",
    "safe": "dangerous",
    "sweet": "sour",
    "smooth": "rough",
    "brave": "afraid",
    "give": "take",
    "come": "go",
    "laugh": "cry",
    "more": "less",
    "many": "few",
    "before": "after",
    "asleep": "awake",
    "alive": "dead",
    "friend": "enemy",
    "north": "south",
    "east": "west",
    "top": "bottom",
    "sunrise": "sunset",
    "question": "answer",
    "morning": "evening",
    "noisy": "silent",
    "sharp": "blunt",
    "deep": "shallow",
    "war": "peace",
    "rise": "fall",
    "remember": "forget",
    "beautiful": "ugly",
    "arrive": "leave",
    "accept": "refuse",
}
_OPPOSITE: Final = "[opposite|antonym|contrary|opposite word|reverse]"
OPPOSITE: Final = (
    *ways_words.OPPOSITE,
    *ways_wider.OPPOSITE,
    f"[look for|find|search|list] the {_OPPOSITE} of {{x}}",
    f"{{x}}: [what is|tell me|name] the {_OPPOSITE}",
    "when [it|something|he] is not {x}, what is [it|he]",
    "a word that is not {x} but the [opposite|contrary]",
    "{x} becomes its opposite",
    f"[what is|what's|whats|tell me|give me|name|say|do you know] the {_OPPOSITE} of {{x}}",
    f"[the|] {_OPPOSITE} [of|to] {{x}}",
    f"{{x}} [is the {_OPPOSITE} of|has which opposite|has what opposite]",
    f"[which|what] word is the {_OPPOSITE} of {{x}}",
    "[an|one] [antonym|opposite] [of|to] {x}",
    "if [it is|it's|something is] not {x}, [it is|then it is|what is it]",
    "[what|which word] is [opposite to|the other way round from] {x}",
    f"[can|could|would] you [tell|give] me the {_OPPOSITE} of {{x}}",
    "{x} and its [opposite|antonym]",
    "{x}, [opposite|the opposite|antonym]",
    "the [opposite|contrary] of the word {x}",
    "[what is|what's] the antonym of {x}",
    "{x} versus [what|...]",
    "not {x}, [what then|so what]",
    "i [need|want|am looking for] the [opposite|antonym] of {x}",
)


def colours(dice: Dice) -> Exchange:
    """Mixing two colours, or the colour of a thing."""
    if dice.chance(0.4):
        (a, b), made = dice.choice(tuple(MIXED.items()))
        if dice.chance(0.5):
            a, b = b, a
        asked = phrasing.say(dice, dice.choice(MIXING), a=a, b=b)
        return Exchange(asked, f"{a.capitalize()} and {b} make {made}.", "I mix the colours.")
    thing, colour = dice.choice(tuple(THINGS.items()))
    bare = thing.split(" ", 1)[-1] if dice.chance(0.3) else thing
    other = dice.choice([c for c in ("red", "blue", "green", "white", "black") if c != colour])
    full = f"{thing[0].upper()}{thing[1:]} is {colour}."
    if dice.chance(0.2):
        pattern, shown = dice.choice(EITHER), dice.sample((colour, other), 2)
        asked = phrasing.say(dice, pattern, t=bare, x=shown[0], y=shown[1])
        return Exchange(asked, full, "I know its colour.")
    if dice.chance(0.12):
        right = dice.chance(0.5)
        asked = phrasing.say(dice, dice.choice(IS_IT), t=bare, x=colour if right else other)
        start = "Yes, " if right else "No, "
        return Exchange(asked, f"{start}{thing} is {colour}.", "I know its colour.")
    return Exchange(phrasing.say(dice, dice.choice(COLOUR), t=bare), full, "I know its colour.")


def opposite(dice: Dice) -> Exchange:
    """The opposite of a word."""
    a, b = dice.choice(tuple(PAIRS.items()))
    known = {**{v: k for k, v in PAIRS.items()}, **PAIRS}
    word = dice.pick(a, b)
    p, q = dice.choice([pair for pair in PAIRS.items() if a not in pair])
    shown = f'"{word}"' if dice.chance(0.12) else word
    asked = phrasing.say(dice, dice.choice(OPPOSITE), x=shown, p=p, q=q)
    return Exchange(asked, f"The opposite of {word} is {known[word]}.", "I know its opposite.")
