"""Short lists on a theme."""

from typing import Final

from pocket.text import facts, phrasing, ways_wider, ways_words, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

THEMES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("colors", "colours"): words.COLOURS,
    ("animals",): words.ANIMALS[:24],
    ("fruits", "kinds of fruit", "fruit"): words.FRUITS,
    ("vegetables", "veggies"): words.split(
        "carrot potato onion tomato pepper cabbage spinach broccoli pumpkin cucumber lettuce garlic"
    ),
    ("instruments", "musical instruments"): words.split(
        "piano guitar violin drum flute trumpet cello harp clarinet"
    ),
    ("sports",): words.split(
        "football tennis swimming basketball hockey running rugby golf cycling volleyball"
    ),
    ("planets",): words.split("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"),
    ("foods", "dishes", "things to eat"): words.FOODS,
    ("drinks", "things to drink"): words.split("water tea coffee milk juice lemonade cocoa"),
    ("countries",): words.COUNTRIES,
    ("cities",): words.CITIES[:24],
    ("names", "first names"): words.FIRST_NAMES[:24],
    ("flowers",): words.split("rose tulip daisy lily sunflower violet orchid poppy"),
    ("birds",): words.split("owl crow duck hen eagle robin parrot swan gull"),
    ("trees",): words.split("oak pine birch maple willow ash palm beech"),
    ("days",): facts.DAYS,
    ("months",): facts.MONTHS,
    ("jobs", "professions"): words.split("teacher nurse baker pilot farmer painter lawyer cook"),
    ("tools",): words.split("hammer saw drill knife ladder brush spade"),
    ("clothes", "pieces of clothing"): words.split("hat coat shirt shoes socks scarf gloves dress"),
    ("seasons",): ("spring", "summer", "autumn", "winter"),
    ("languages",): words.split("English French German Spanish Chinese Italian Polish Turkish"),
    ("emotions", "feelings"): words.split("joy anger fear love hope pride calm"),
    ("pets",): words.split("cat dog rabbit hamster parrot goldfish"),
    ("metals",): words.split("iron gold silver copper tin lead zinc"),
    ("rooms", "rooms of a house"): words.split("kitchen bedroom bathroom hall office attic cellar"),
    ("toys",): words.split("ball doll kite puzzle drum robot train"),
}
_KIND: Final = "[different |nice |common |good |famous |random |]"
LIST: Final = (
    *ways_words.LIST,
    *ways_wider.LIST,
    "[choose|think up|find|collect] {n} {t}",
    "[how about|what about] {n} {t}",
    "[of|from|among] all {t}[,|] [tell|give|name] me {n}",
    "[only|exactly|at least] {n} {t}",
    f"[name|list|tell me|give me|show me|write|say|suggest] {{n}} {_KIND}{{t}}",
    f"[can|could|would] you [name|list|tell me|give me|suggest|write] [me |]{{n}} {_KIND}{{t}}",
    f"[a |make a |write a |give me a |i want a ]list [of|with] {{n}} {_KIND}{{t}}",
    f"[i need|i want|i'd like|i am looking for|we need] {{n}} {_KIND}{{t}}",
    f"{{n}} {_KIND}{{t}}",
    "[do you know|do you have|have you got|got] {n} {t}",
    "[name|list|tell me|give me|say] [me |]{t}, {n} of them",
    "{t}: [name|list|tell me|give me|say] {n}",
    f"[what are|which are] {{n}} {_KIND}{{t}}[ you know| you like|]",
    "[an example of|examples of|{n} examples of|for example] {n} {t}",
    "[please|] [write|note|put] {n} {t} [on a list|in a list|one per line]",
    "[i can't think of|help me find|help me with] {n} {t}",
    "[let me see|let's see|let me hear] {n} {t}",
)
_NUMBERS: Final = ("two", "three", "four", "five", "six", "seven")


def theme(dice: Dice) -> Exchange:
    """A few different things of a kind, in the order in which the model knows them.

    A fixed order never repeats an item, as a greedy draw from a set would.
    """
    names, all_items = dice.choice(tuple(THEMES.items()))
    count = min(dice.randint(2, 7), len(all_items))
    items = all_items[:count]
    shown = _NUMBERS[count - 2] if dice.chance(0.5) else str(count)
    pattern = dice.choice(LIST)
    asked = phrasing.say(dice, pattern, ".", n=shown, t=dice.choice(names))
    return Exchange(
        asked, "\n".join(f"- {item}" for item in items), f"The user wants {count} {names[0]}."
    )
