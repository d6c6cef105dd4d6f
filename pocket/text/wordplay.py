"""Colours, opposites and rhymes."""

from typing import Final

from pocket.text import phrasing, ways_framed, ways_wider, ways_words
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

FAMILIES: Final = tuple(
    tuple(line.split())
    for line in """
    cat hat bat mat rat flat
    moon spoon soon noon balloon
    light night bright right fight kite
    day way play say may stay
    tree bee sea free key three
    house mouse blouse
    dog frog fog log
    star car far jar guitar
    rain train plane brain chain
    cake lake snake make bake
    king ring sing thing wing spring
    bear chair hair pear air stair
    ball wall tall fall small call
    sun run fun one bun
    boat coat goat note float
    book look cook hook
    red bed head bread said
    blue shoe two zoo true new
    green queen seen bean mean
    cold gold old told
    fish dish wish
    hand sand land stand band
    snow go show know slow low
    sky fly high eye pie why
    clock rock sock lock block
    dream cream team stream
    heart part art start smart
    box fox socks rocks
    nose rose toes close
    door floor more four store
    time rhyme lime climb
    fire wire higher tire
    mind kind find blind
    nest best rest west
    town brown crown down
    big pig dig wig
    tail whale mail snail sail
    nice mice rice ice price dice
    bell well tell shell smell
    top hop shop stop drop
    love dove above glove
    hill bill will still
    power flower tower hour shower
    money honey funny sunny
    ten pen hen men
    wine line mine fine nine
    truck duck luck
    game name same flame
    ship trip lip chip
    word bird heard third
    """.strip().splitlines()
)
WHICH_RHYMES: Final = ways_framed.WHICH_RHYMES
RHYME: Final = (
    *ways_words.RHYME,
    "{x}: [rhyme|what rhymes|a rhyme please]",
    "[rhymes|a rhyme|rhyming words] [on|of|with|to] {x}",
    "[word|words] that end[s|] [in the same sound as|the same as|just like] {x}",
    "[my poem|our song|this line] [needs|wants|is missing] a rhyme [for|with|on] {x}",
    "[what|which word|what word|which words] rhymes with {x}",
    "[what|which] words rhyme with {x}",
    "[give me|tell me|say|write|show me|name] [a|one|some] rhyme[s|] [for|with|to|on] {x}",
    "[give me|tell me|say|name|think of] [a|one|some|any] word[s|] that rhyme[s|] with {x}",
    "[a |]rhyme [for|with|to|on] {x}",
    "[can|could] you [find|tell me|think of|give me] a rhyme [for|with|to] {x}",
    "rhyme {x}",
    "{x} rhymes with",
    "[something|anything|a word|words] [rhyming|that rhymes] with {x}",
    "[what|which word] [ends|sounds] like {x}",
    "i [am looking for|want|search] a rhyme [for|with] {x}",
    "[make|do|try] a rhyme with {x}",
    "[is there a|do you know a|got a|have you got a] rhyme for {x}",
)
DO_RHYME: Final = (
    *ways_words.DO_RHYME,
    *ways_wider.DO_RHYME,
    *ways_framed.DO_RHYME,
    "do {x} and {y} [sound alike|end alike|sound the same|match in sound]",
    "{x} and {y}: [a rhyme|rhyme|do they rhyme] or not",
    "[do|does|would|will] {x} [and|rhyme with] {y}[ rhyme|]",
    "[is|are] {x} and {y} [a rhyme|rhyming|rhymes]",
    "{x} [and|rhymes with] {y}[ rhyme|], [right|yes or no|true or false]",
    "can [i|you] rhyme {x} with {y}",
    "is {x} a rhyme for {y}",
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


def _which(dice: Dice) -> tuple[dict[str, str], str]:
    """A word, several others of which one rhymes with it, and the answer."""
    family = dice.choice(FAMILIES)
    word, match = dice.sample(family, 2)
    others = dice.sample([f for f in FAMILIES if f != family], dice.choice((1, 1, 2, 3)))
    listed = [match, *(dice.choice(other) for other in others)]
    dice.shuffle(listed)
    shown = f"{', '.join(listed[:-1])}{dice.pick(' or ', ', ', ' or ')}{listed[-1]}"
    return {"x": word, "l": shown}, f"{word.capitalize()} rhymes with {match}."


def _whether(dice: Dice) -> tuple[dict[str, str], str]:
    """Two words, and whether they rhyme."""
    family = dice.choice(FAMILIES)
    x, y = dice.sample(family, 2)
    if dice.chance(0.48):
        return {"x": x, "y": y}, f"Yes, {x} rhymes with {y}."
    y = dice.choice(dice.choice([f for f in FAMILIES if f != family]))
    return {"x": x, "y": y}, f"No, {x} does not rhyme with {y}."


_COMPARED: Final = "I compare how they end."


def rhyming(dice: Dice) -> Exchange:
    """Whether two words rhyme, or which of several rhymes with a word."""
    which = dice.chance(0.3)
    slots, said = _which(dice) if which else _whether(dice)
    if not which and dice.chance(0.08):
        slots = {name: f'"{word}"' for name, word in slots.items()}
    pattern = dice.choice(WHICH_RHYMES if which else DO_RHYME)
    return Exchange(phrasing.say(dice, pattern, "?", bare=False, **slots), said, _COMPARED)


def rhyme_drill(dice: Dice) -> list[Exchange]:
    """Five to fourteen of these questions in the same words, so that only the rhyming words
    differ."""
    which = dice.chance(0.4)
    asked = phrasing.expand(dice, dice.choice(WHICH_RHYMES if which else DO_RHYME))
    made = [_which(dice) if which else _whether(dice) for _ in range(dice.randint(5, 14))]
    return [Exchange(phrasing.fill(asked, dict(slots)), said, _COMPARED) for slots, said in made]


def rhyme(dice: Dice) -> Exchange:
    """Words that rhyme with one."""
    family = dice.choice(FAMILIES)
    word = dice.choice(family)
    others = [other for other in family if other != word][:2]
    shown = f'"{word}"' if dice.chance(0.12) else word
    asked = phrasing.say(dice, dice.choice(RHYME), x=shown)
    said = f"{word.capitalize()} rhymes with {' and '.join(others)}."
    return Exchange(asked, said, "I look for words that end alike.")
