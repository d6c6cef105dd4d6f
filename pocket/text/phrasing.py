"""Ways of saying things: a tiny grammar, and the carelessness of people who type.

A pattern is text with choices in square brackets, `[what is|what's|] the time`, which may nest, and
slots in braces, which are filled last, so that no choice, typo or lost capital touches a value.
"""

import re
from typing import Final

from pocket.text.dice import Dice

_INNER: Final = re.compile(r"\[([^\[\]]*)\]")
SLOT: Final = re.compile(r"\{(\w+)\}")
_I: Final = re.compile(r"(?<![\w{'.])i(?![\w}.])")  # the pronoun; no slot, no "i.e."

BEFORE: Final = (
    *(
        "hey, ",
        "hi, ",
        "hello, ",
        "ok, ",
        "okay, ",
        "so, ",
        "so ",
        "well, ",
        "now ",
        "and ",
        "hm, ",
    ),
    *(
        "please ",
        "pls ",
        "pocket, ",
        "hey pocket, ",
        "um, ",
        "alright, ",
        "then ",
        "ok now ",
        "ok ",
    ),
    *(
        "one question: ",
        "quick question: ",
        "question: ",
        "just wondering, ",
        "I was wondering, ",
        "by the way, ",
    ),
    *(
        "can you help me? ",
        "I have a question. ",
        "hi! ",
        "hello! ",
        "great. ",
        "cool, ",
        "thanks. ",
        "hurry up, ",
        "sorry, ",
        "listen, ",
        "next: ",
        "one more thing: ",
        "right, ",
        "yo, ",
        "erm, ",
        "oh, ",
        "and now, ",
        "dear pocket, ",
        "bot, ",
        "kindly ",
    ),
)
AFTER: Final = (
    *(
        " please",
        ", please",
        " pls",
        " plz",
        " for me",
        " now",
        ", thanks",
        " thanks",
        " thx",
        " ok",
    ),
    *(" pocket", ", pocket", " :)", " then", " my friend", ", thank you", " today", " if you can"),
    *(" mate", " please!", " again", " dear", ", can you", ", will you", " quickly"),
    *(", quick", " asap", " real quick", ", would be nice", " tyvm", " haha", " lol", " ..."),
    *(" if possible", ", buddy", " right away", " at last", " 🙂", ", ok", " again please"),
)
FILLERS: Final = (
    *("just", "really", "maybe", "actually", "like", "kindly", "you know", "perhaps", "well"),
    *("quickly", "there", "if possible", "simply", "like that", "for once", "uh", "erm", "right"),
    *("a bit", "somehow", "in fact", "say", "then", "anyway", "honestly", "basically", "sir"),
    *("i think", "i guess", "you see", "to be honest", "if you like", "now", "too", "also", "here"),
)
"""Words that change nothing and may stand anywhere."""
_SPARED: Final = (
    *("a", "an", "the", "is", "are", "do", "does", "of", "me", "you", "i", "to", "it", "my", "can"),
)
"""Words that people leave out."""
_PUNCTUATION: Final = ",.:;!?"
_NEAR: Final = dict(zip("qwertyuiopasdfghjklzxcvbnm", "wertyuiopoasdfghjklkxcvbnmn", strict=False))


def expand(dice: Dice, pattern: str) -> str:
    """One text of the pattern, slots left as they are."""
    while found := _INNER.search(pattern):
        chosen = dice.choice(found[1].split("|"))
        pattern = pattern[: found.start()] + chosen + pattern[found.end() :]
    return " ".join(pattern.split(" ")).replace("  ", " ").strip()


def fill(text: str, slots: dict[str, object]) -> str:
    """The text with its slots filled."""
    return SLOT.sub(lambda found: str(slots[found[1]]), text)


def mistyped(dice: Dice, word: str) -> str:
    """The word with two letters swapped, one lost, one doubled or one hit beside its key."""
    at = dice.randrange(1, len(word) - 1) if dice.chance(0.9) else 0
    return dice.pick(
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + _NEAR.get(word[at], word[at]) + word[at + 1 :],
    )


def careless(dice: Dice, text: str) -> str:
    """The text with one or two words mistyped, never a slot."""
    words = text.split(" ")
    able = [
        i
        for i, word in enumerate(words)
        if len(bare := word.rstrip(_PUNCTUATION)) > 2 and bare.isalpha()
    ]
    chosen = dice.sample(able, min(len(able), dice.choice((1, 1, 1, 2))))
    if able and dice.chance(0.35):  # the first word, most often the verb that says what to do
        chosen = able[:1]
    for index in chosen:
        word = words[index].rstrip(_PUNCTUATION)
        words[index] = mistyped(dice, word) + words[index][len(word) :]
    return " ".join(words)


def loose(dice: Dice, text: str) -> str:
    """The text with words put in that change nothing, or a small word left out."""
    words = text.split(" ")
    spared = [i for i, word in enumerate(words) if word.lower() in _SPARED]
    if spared and len(words) > 3 and dice.chance(0.35):
        del words[dice.choice(spared)]
        return " ".join(words)
    for _ in range(dice.choice((1, 1, 2))):
        words.insert(dice.randint(0, len(words)), dice.choice(FILLERS))
    return " ".join(words)


_SHORTER: Final = {
    **{"please": "pls", "your": "ur", "are": "r", "what's": "whats", "i'm": "im", "don't": "dont"},
    **{"can't": "cant", "it's": "its", "how's": "hows", "about": "abt", "because": "cuz"},
    **{"want to": "wanna", "give me": "gimme", "let me": "lemme", "going to": "gonna"},
    **{"thanks": "thx", "something": "smth", "people": "ppl", "tomorrow": "tmrw", "you": "ya"},
    **{"what": "wat", "and": "&", "to": "2", "for": "4", "okay": "k", "the": "da"},
}


def shorter(dice: Dice, text: str) -> str:
    """The text with up to three words in the short forms of chats."""
    known = [long for long in _SHORTER if f" {long} " in f" {text} "]
    for long in dice.sample(known, min(len(known), dice.choice((1, 2, 3)))):
        short = "u" if long == "you" and text.count(" ") > 6 else _SHORTER[long]
        if not short.isdigit() or "{" not in text:  # a 2 or a 4 among numbers would be one of them
            text = f" {text} ".replace(f" {long} ", f" {short} ").strip()
    return text


def say(dice: Dice, pattern: str, end: str = "?", *, bare: bool = False, **slots: object) -> str:
    """One text of the pattern as somebody might type it; `bare` keeps talk around it away."""
    text = expand(dice, pattern)
    if not bare and dice.chance(0.2):
        text = dice.choice(BEFORE) + text
    if not bare and dice.chance(0.15):
        text += dice.choice(AFTER)
    if not bare and dice.chance(0.2):
        text = loose(dice, text)
    if dice.chance(0.08):
        text = shorter(dice, text)
    if dice.chance(0.24):
        text = careless(dice, text)
    style = dice.random()
    if style < 0.6:
        text = text[:1].upper() + text[1:]
        if dice.chance(0.7):
            text = _I.sub("I", text)
    elif style > 0.8:
        text = text.lower()
    if text[-1:] not in "?!.…)" and (style < 0.5 or 0.6 < style < 0.68):
        text += dice.choice((end, end, end, end, "!", ".", "", "??" if end == "?" else end))
    return fill(text, slots)
