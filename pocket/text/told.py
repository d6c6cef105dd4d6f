"""What people tell about themselves, and how they ask for it later: as data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.text import values, ways_talk, ways_wider, words
from pocket.text.dice import Dice

NOUNS_OF_MINE: Final = words.split("""
city color colour food drink song book film animal number word team sport game fruit season day
month band hobby subject place country flower movie car tree""")
_RELATIVES: Final = words.split("""
sister brother mother father friend cat dog wife husband son daughter boss teacher neighbor horse
hamster uncle aunt cousin parrot fish rabbit baby boat car doctor goldfish colleague grandma""")
_SECRETS: Final = (
    *(
        "password",
        "secret word",
        "code",
        "pin",
        "magic word",
        "secret",
        "code word",
        "phone number",
    ),
    *("room number", "ticket number", "wifi password", "lucky number", "address", "order number"),
    *("key", "answer", "appointment", "train", "flight", "bus", "email", "shoe size", "keyword"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """Something told, with all it takes to ask for it later. Slots: {x} the value, {t} the thing.

    `yours` says it back to the user when asked, and so may `heard` when it is told.
    """

    topic: str
    telling: tuple[str, ...]
    yours: str
    asking: tuple[str, ...]
    value: Callable[[Dice], str]
    things: tuple[str, ...] = ("",)
    heard: tuple[str, ...] = ()


def _number(dice: Dice) -> str:
    return str(dice.randint(1, dice.pick(30, 99, 9999)))


def _any(dice: Dice) -> str:
    return dice.drawn(values.word, values.word, values.identifier, _number, values.time)


def typed_name(dice: Dice) -> str:
    """A name as people type it: one in five without its capital, a few with two words."""
    name = values.rare(dice).capitalize() if dice.chance(0.4) else values.name(dice)
    if dice.chance(0.1):
        name = dice.pick(values.full_name(dice), values.letters(dice, 2, 9).capitalize())
    if dice.chance(0.15):
        name = dice.own(lambda: dice.choice(words.ALL_WORDS)).capitalize()
    return name.lower() if dice.chance(0.28) else name


TOLD: Final = (
    Told(
        "favourite",
        (
            "[my|the] favo[u|]rite {t} is {x}",
            "[i like|i love|i prefer|my best loved|my top|best] {t} [is |most is |for me is |: "
            "|]{x}",
            "{x} is my favo[u|]rite {t}",
            "[my|] fav {t} is {x}",
            "of all {t}s i like {x} best",
            "[you should know|did you know|fun fact][ that|:] my favo[u|]rite {t} is {x}",
        ),
        "your favorite {t} is {x}",
        (
            *ways_talk.FAVOURITE,
            "[what is|what's|whats|tell me|do you know|remember|which is] my favo[u|]rite {t}",
            "[which|what] {t} [do i like|do i prefer|is my favo[u|]rite|do i like most|do i love]",
            "[my|and my|so my] favo[u|]rite {t}[ is| was|]",
            "[name|say|repeat|give me] my favo[u|]rite {t}",
            "[remind me of|guess|can you say] [my favo[u|]rite {t}|the {t} i like]",
            "the {t} [i like|i love|i prefer][ best| is|, which is it|]",
            "what [is|was] the {t} [i like|i love|that i told you about]",
            "do you [remember|recall|still know] my favo[u|]rite {t}",
            "[what|which] did i say is my favo[u|]rite {t}",
        ),
        lambda d: d.drawn(
            values.word, lambda e: e.choice(words.COLOURS), _number, values.name, values.phrase
        ),
        NOUNS_OF_MINE,
        ("your favourite {t} is {x}", "you like the {t} {x} best"),
    ),
    Told(
        "relative",
        (
            "my {t} is [called|named] {x}",
            "my {t}'s name is {x}",
            "[i have|i've got] a {t} [called|named|whose name is] {x}",
            "[i have|i've got|this is|meet] my {t} {x}",
            "the name of my {t} is {x}",
            "we [call our|named our|have a] {t} {x}",
            "{x} is my {t}[|'s name]",
            "my {t} is {x}",
        ),
        "your {t} is {x}",
        (
            "[what is|what's|tell me|do you know|say|remember] [my {t}'s name|the name of my {t}]",
            "[what|how] is my {t} [called|named]",
            "[how|what] did i [name|call] my {t}",
            "who is my {t}",
            "[and|so] my {t}['s name| is called| is]",
            "do you [remember|still know] [my {t}|my {t}'s name|what my {t} is called|my {t}s "
            "name]",
            "[which|what] name does my {t} have",
            "[name|remind me of] my {t}",
            "my {t}, [what is the name|who is that|how is the name]",
            "[forgot|i forgot] [my {t}'s name|what my {t} is called]",
        ),
        typed_name,
        _RELATIVES,
        ("your {t} is called {x}", "your {t} is named {x}"),
    ),
    Told(
        "secret",
        (
            "[my|the] {t} is {x}",
            "[remember|note|please remember|keep|store|save|learn][ that|:| this:] [my|the] {t} "
            "is {x}",
            "[please |]remember [my|the|this] {t}: {x}",
            "[don't|do not|never] forget[ that|:] [my|the] {t} is {x}",
            "{x} is [my|the] {t}",
            "the {t} [will be|should be|was set to|is now] {x}",
            "[here is|this is] [my|the] {t}: {x}",
            "the {t} [for|of] the [house|office|garage|box|safe|club|gate] is {x}",
        ),
        "your {t} is {x}",
        (
            "[what is|what's|tell me|do you know|say|repeat|give me] [my|the] {t}",
            "[and|so|now] [the|my] {t}[ is| please|...|]",
            "do you [remember|recall|still know|know] [my|the] {t}",
            "[which|what] {t} did i [tell you|give you|say|mention]",
            "i [need|forgot|don't remember|lost] [the|my] {t}",
            "[what|when|which] [is|was] [my|the] {t}",
            "[remind me of|tell me again|look up] [my|the] {t}",
            "[my|the] {t} [is what|was what|again]",
            "[have you|do you have] [my|the] {t} [noted|in mind|stored]",
            "[can|could|would] you [tell|remind|give] me [of |][the|my] {t}",
            "[the|my] {t}, [what was it|tell me|do you have it]",
        ),
        _any,
        _SECRETS,
    ),
    Told(
        "home",
        (
            "i [live|am living|stay|am staying] in {x}",
            "my home is [in |]{x}",
            "i [moved|have moved|am moving] to {x}",
            "{x} is [where i live|my home|my town]",
            "i am [in|at home in] {x} [now|right now]",
            "we live in {x}",
        ),
        "you live in {x}",
        (
            "where [do i live|is my home|am i living|do i stay|am i|is it that i live]",
            "[which|what] [town|city|place] [do i live in|is my home|am i in|do i stay in|am i "
            "living in]",
            "[in which|in what] [town|city|place] do i live",
            "[do you|can you] [know|remember|recall|tell me] where i live",
            "[what is|tell me] my [home town|home|town]",
            "[so|and] i live in...",
            "where did i say i live",
            "[the|what is the] [town|city|place] [i live in|where i live]",
        ),
        values.city,
        heard=("you are at home in {x}", "you live in {x}, and like it there"),
    ),
    Told(
        "origin",
        (
            "i [come from|was born in|am originally from|grew up in|hail from] {x}",
            "my family [comes|is] from {x}",
            "i am from {x}",
            "{x} is [my birthplace|where i was born|where i come from]",
        ),
        "you are from {x}",
        (
            "where [am i from|was i born|did i grow up|did i come from|is my family from]",
            "[which|what] [country|place|land] am i from",
            "[do you|can you] [remember|know|recall|tell me] where i [am|come] from",
            "[tell me|say] where i [come from|am from|was born]",
            "from where [do i come|am i]",
        ),
        lambda d: d.choice(words.COUNTRIES) if d.chance(0.5) else values.city(d),
        heard=("you come from {x}", "{x} is where you are from"),
    ),
    Told(
        "job",
        (
            "i [am|work as] a {x}",
            "my [job|profession|work] is {x}",
            "i['m| am] a {x} [by trade|by profession|at a school|in a big company]",
            "i earn my money as a {x}",
        ),
        "your job is {x}",
        (
            *ways_talk.JOB,
            *ways_wider.JOB,
            "what [is|'s|was] my [job|profession|work|trade|occupation]",
            "what do i [work as|do|do at work|do all day|work]",
            "[as what|what] do i work[ as|]",
            "[do you|can you] [know|remember|tell me] [my job|what i do|what i work]",
            "how do i [earn my money|make money]",
            "[which|what] [job|profession] do i have",
        ),
        lambda d: (
            d.pick("teacher", "nurse", "baker", "pilot", "farmer", "painter", "lawyer", "cook")
            if d.chance(0.5)
            else values.word(d)
        ),
        heard=("you work as a {x}", "you are a {x}", "you work as a {x}"),
    ),
    Told(
        "age",
        (
            "i am {x}[ years old|]",
            "[my age is|i turned|i just turned|i'm] {x}[| years old]",
            "i have {x} years",
        ),
        "you are {x} years old",
        (
            "how old [am i|did i say i am|do you think i am]",
            "[what is|tell me|what's|do you know|say] my age",
            "[do you|can you] [know|remember|tell me] [how old i am|my age]",
            "[how many years|what age] [am i|do i have]",
        ),
        lambda d: str(d.randint(4, 99)),
    ),
    Told(
        "love",
        (
            "i [really |][love|like|adore|enjoy] {x}",
            "{x} is what i [love|like]",
            "i [am fond of|am a fan of|can't live without|could eat] {x}",
        ),
        "you love {x}",
        (
            *ways_talk.LOVE,
            "what do i [love|like|adore|enjoy|like so much|really love]",
            "[tell me|say|do you know|remember] what i [love|like]",
            "[which|what] [thing|stuff|dish|activity] do i [love|like]",
            "what did i say i [love|like]",
        ),
        lambda d: d.drawn(values.word, lambda e: e.choice(words.FOODS), values.phrase),
    ),
    Told(
        "thing to keep",
        (
            "[remember|please remember|keep in mind|note|memorize|learn|store|save|don't forget]"
            "[ this|] [{t}|the {t}|this {t}][:|] {x}",
            "[here is|this is|i give you] [a|the] {t} [to remember|to keep|for later]: {x}",
            "the {t} [you must|to|you should] [remember|keep|learn] is {x}",
        ),
        "the {t} is {x}",
        (
            *ways_talk.KEPT,
            "[what is|what was|tell me|say|repeat|give me] the {t}",
            "[which|what] {t} [was it|did you note|did i say|did i tell you|should you remember]",
            "[what|which] {t} did i ask you to [remember|keep|learn]",
            "what did i [ask|tell] you to [remember|keep|note]",
            "[say|tell me|repeat] the {t} [you noted|i gave you|i told you|from before]",
            "do you [remember|still know|recall] the {t}",
        ),
        lambda d: d.drawn(values.word, values.word, _number, values.identifier, values.phrase),
        ("word", "number", "name", "word", "number", "item", "term", "code", "sentence", "phrase"),
    ),
    Told(
        "anything",
        (
            "[remember|please remember|keep in mind|note|memorize|learn|store|save|don't forget]"
            "[ this| this for me|][:|] {x}",
            "[i give you|take] {x}, [remember|keep|note] it",
            "{x}. [remember|keep|note|learn|don't forget] [that|it|this]",
        ),
        "{x}",
        (
            "[what did i|which thing did i] [tell|ask] you to [remember|keep|note|learn]",
            "what should you [remember|keep|note|have noted]",
            "what [was it|did you note|did you keep|did you learn]",
            "[say|tell me|repeat] what [you noted|i gave you|i told you|you should remember]",
            "do you [remember|still know|recall] [it|what i told you|what you noted]",
            "[which|what] [word|number|thing] did i [tell|say to] you",
            "[say|tell me|give me|repeat] the [word|number|thing] i [told|gave|said to] you",
        ),
        lambda d: d.drawn(values.word, values.word, _number, values.identifier, values.phrase),
    ),
    Told(
        "relative's place",
        (
            "my {t} [lives|works|is|stays] in {x}",
            "[i have|i've got] a {t} [in|who lives in] {x}",
            "{x} is where my {t} lives",
        ),
        "your {t} lives in {x}",
        (
            "where does my {t} [live|stay|work]",
            "[in which|in what|which|what] [city|town|place] [is my {t}|does my {t} live]",
            "where is my {t}",
            "do you [know|remember] where my {t} [is|lives]",
        ),
        values.city,
        _RELATIVES,
    ),
)
