"""Jokes, haiku and little poems."""

from typing import Final

from pocket.text import phrasing, ways_wider, ways_words, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

JOKES: Final = (
    "Why did the bicycle fall over? It was two-tired! 😄",
    "Why do bees have sticky hair? They use honeycombs! 🐝",
    "What do you call a fish without an eye? A fsh! 🐟",
    "Why did the robot go on holiday? It had to recharge! 🤖",
    "What do you call a sleeping bull? A bulldozer!",
    "Why was the math book sad? It had too many problems. 📚",
    "What is orange and sounds like a parrot? A carrot!",
    "Why is no nose twelve inches long? Then it would be a foot!",
    "What did one wall say to the other? I'll meet you at the corner!",
    "Why did the computer catch a cold? It left its windows open!",
    "What do you call a bear with no teeth? A gummy bear! 🐻",
    "Why did the server cross the road? To get to the other site!",
    "How do trees get online? They log in! 🌲",
    "What do clouds wear under their coats? Thunderwear! 🌧",
    "Why did the token feel alone? The cache had missed it!",
)
JOKE: Final = (
    *ways_words.JOKE,
    *ways_wider.JOKE,
    "[tell|give|say|write][ me|] [a|one|another|some] [good |short |funny |new |little |silly "
    "|bad |]joke[s|]",
    "[tell|give] [us|me] a [good |short |funny |silly |]joke[ about {n}s| about {n}|]",
    "[i want|i want to hear|i'd like|i would like|give me|let me hear|let's hear] [a|some|one] "
    "[funny |]joke[s|]",
    "[do you|can you|could you|would you] [know|tell|have|tell me|say] [a|any|some|me a|one] "
    "[good |funny |]joke[s|]",
    "[a |one |the |some |]joke[s|]",
    "[tell|say|write] [me |us |][something|anything] [funny|silly|to laugh about|that is funny]",
    "[can|could] you [make me laugh|cheer me up|be funny|make me smile|say something funny]",
    "[cheer me up|make us laugh|make me smile|amuse me|i want to laugh|i need to laugh]",
    "[what is|what's] [your best joke|a good joke|funny|the funniest joke you know]",
    "[are you|is a model] funny",
    "[your best|best|favorite] joke",
    "joke time",
    "[do you have|have you got] [a sense of humo[u|]r|something funny|humo[u|]r]",
    "[a pun|tell me a pun|know any puns|something witty]",
)
ANOTHER: Final = (
    *ways_words.ANOTHER,
    *ways_wider.ANOTHER,
    "[another|another one|one more|next|more|next one|a new one|another joke|next joke]",
    "[haha|lol|hehe|ha|nice|good one|funny|very funny|great|ok], [another|another one|one more "
    "joke|more]",
    "[tell me|give me|say] [another|another one|one more|a new one|a second one|a better one]",
    "[do you know|have you got|do you have|got] [another|another one|more|one more]",
    "[can|could] [you|i] [tell|hear|have] [another|one more|more][ joke|]",
    "[once more|more of that|more of those|and another|keep going|go on]",
    "[tell me|i want|give me] [a different|another|a new|one more|some other] [joke|one]",
)
_THEMES: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    "the sea": (
        ("The waves come and go", "a small boat waits on the sand", "for the wind to turn"),
    ),
    "rain": (
        ("Rain on the window", "the street shines all through the dark", "I put on some tea"),
    ),
    "winter": (("Snow on the old roof", "the garden is white and still", "no bird sings today"),),
    "a cat": (("A cat in the sun", "one ear turns to find the bird", "then it sleeps again"),),
    "autumn": (
        ("Red leaves on the ground", "the wind picks up one of them", "and lets it down soft"),
    ),
    "spring": (("A bud on the tree", "this morning it was not there", "the bird has seen it"),),
    "summer": (("Long days and short nights", "the grass is warm to my feet", "a bee hums to us"),),
    "the moon": (
        ("The moon in the pond", "a frog jumps, and it is gone", "soon it is back there"),
    ),
    "the night": (
        ("Dark and still, the night", "far off a dog barks one time", "then the stars come out"),
    ),
    "a server": (
        ("A lamp blinks green light", "ten thousand words flow from here", "and not one is lost"),
    ),
    "a dog": (("The dog at the door", "it knows my step from far off", "and wags its long tail"),),
    "love": (("Your hand in my hand", "we walk and do not need words", "the road is not long"),),
}
_FREE: Final = (
    ("The old wooden bridge", "the water goes under it", "it stays where it is"),
    ("A leaf on the stream", "it turns twice and floats along", "it is not in haste"),
    ("A light in the fog", "someone is at home tonight", "the path finds its end"),
)
HAIKU: Final = (
    *ways_words.HAIKU,
    *ways_wider.HAIKU,
    "[write|tell|make|create|give|show] [me |us |]a [short |nice |little |beautiful |]haiku[ "
    "about {t}| about {t}| on {t}|]",
    "[can|could|would] you [write|make|create|tell me|give me] a haiku[ about {t}| about {t}|]",
    "[a |one |some |]haiku[ about {t}| of {t}| for {t}|]",
    "[i'd like|i would like|i need|give me] a haiku[ about {t}|]",
    "[do you know|know|have you got] [a|any|some] haiku[ about {t}|]",
    "[a|write a|make a] japanese poem",
    "[write|make] haiku",
    "[please|try] a haiku[ about {t}|]",
    "[a|write a|make a] poem [of|with|in] three lines[ about {t}|]",
    "[a|write a|make a] poem with 5, 7 and 5 syllables",
    "what is a haiku[, show me|. Show me one|]",
)
_POEMS: Final = (
    "The moon is small, the night is deep,\nthe little town has gone to sleep.\n"
    "A quiet star looks down to say:\ntomorrow is another day. 🌙",
    "The rain falls down upon the hill,\nthe wind goes round the water mill.\n"
    "The cat looks out and thinks it best\nto find a chair and take a rest. 🐱",
    "A snail set out to see the sea,\nit packed some bread, it packed some tea.\n"
    "It walked a year, it walked a day,\nand sang a song along the way. 🐌",
)
POEM: Final = (
    *ways_words.POEM,
    *ways_wider.POEM,
    "[write|tell|make|create|give|read] [me |us |]a [short |nice |little |beautiful |small "
    "|funny |]poem",
    "[write|tell|make|give] [me |us |][a poem|some poetry|a rhyme|a verse|some verses|a little "
    "verse]",
    "[can|could|would] you [write|make|create|tell me|give me|read me] a [short |]poem",
    "[a |one |some |]poem[s|]",
    "[i want|i need|i would like|give me] [a|some] [short |nice |]poem",
    "[do you know|know|have you got|do you have] [a|any|some] poem[s|]",
    "[poetry|a verse|some poetry|some verses]",
    "[can you|do you] [rhyme|write poetry|write poems|make verses]",
    "write a poem about [the sea|{t}|love|a cat|the moon]",
    "[something|say something] [in verse|that rhymes|in rhyme|poetic]",
)
_THOUGHT: Final = "I tell a joke."


def joke(dice: Dice) -> Exchange:
    """A joke."""
    asked = phrasing.say(dice, dice.choice(JOKE), ".", n=dice.choice(words.ANIMALS))
    return Exchange(asked, dice.choice(JOKES), _THOUGHT)


def jokes_on(dice: Dice) -> list[Exchange]:
    """A joke, and after it the next ones in their order, so that none comes twice."""
    at = dice.randrange(len(JOKES))
    first = (
        "Tell me a joke."
        if dice.chance(0.1)
        else phrasing.say(dice, dice.choice(JOKE), ".", n="cat")
    )
    out = [Exchange(first, JOKES[at], _THOUGHT)]
    for step in range(1, dice.choice((2, 2, 3, 4))):
        ways = JOKE if dice.chance(0.25) else ANOTHER
        asked = phrasing.say(dice, dice.choice(ways), "!", bare=dice.chance(0.6), n="dog")
        out.append(Exchange(asked, JOKES[(at + step) % len(JOKES)], _THOUGHT))
    return out


def haiku(dice: Dice) -> Exchange:
    """Three lines of five, seven and five syllables, on a theme if one is known."""
    pattern = phrasing.expand(dice, dice.choice(HAIKU))
    theme = dice.choice(tuple(_THEMES)) if "{t}" in pattern else ""
    lines = dice.choice(_THEMES[theme] if theme else _FREE)
    shown = theme.split(" ")[-1] if dice.chance(0.4) else theme
    if theme and dice.chance(0.2):
        shown, lines = dice.choice(_WORDS_OF_ANY), dice.choice(_FREE)
    return Exchange(phrasing.say(dice, pattern, ".", t=shown), "\n".join(lines), "I write a haiku.")


_WORDS_OF_ANY: Final = (
    *("trees", "my mother", "tea", "music", "time", "birds", "coffee", "python", "mountains"),
    *("a river", "the city", "friends", "bread", "computers", "flowers", "a train", "home"),
)


def poem(dice: Dice) -> Exchange:
    """Four lines that rhyme."""
    theme = dice.choice((*_THEMES, *_WORDS_OF_ANY))
    return Exchange(
        phrasing.say(dice, dice.choice(POEM), ".", t=theme), dice.choice(_POEMS), "I write a poem."
    )
