"""Introductions, things told about oneself, and both asked for later."""

from typing import Final

from pocket.text import phrasing, values, ways_talk, ways_wider
from pocket.text.dice import Dice
from pocket.text.document import Exchange
from pocket.text.told import TOLD, Told, typed_name

INTRODUCING: Final = (
    *ways_talk.INTRODUCING,
    *ways_wider.INTRODUCING,
    "[my|the|] name is {x}",
    "[my|the|] name is {x}",
    "my name is {x}",
    "[my|] names {x}",
    "[hi|hello|hey|hi there|good morning|good evening|howdy][ pocket|], i am {x}",
    "[hi|hello|hey|hi there|good morning|greetings][ pocket|], my name is {x}",
    "[hi|hello|hey|yo|], [i'm|i am|im|this is|it is|it's|its] {x}",
    "[i'm|i am|im|call me|this is|my first name is] {x}",
    "[please|just|you may|you should|you can|], call me {x}",
    "[i am called|i'm known as|they call me|my family calls me|my colleagues call me] {x}",
    "[my full name is|my nickname is|people call me|folks call me|some call me] {x}",
    "{x} is [what they call me|the name|what I am called|how they call me]",
    "{x} [speaking|writing|at your service|is here]",
    "[i was named|my parents named me|my parents call me|i am known as] {x}",
    "[let me introduce myself|may I introduce myself]: [i am |my name is |]{x}",
    "[nice to meet you|pleased to meet you|good to see you], [i am|my name is|i'm] {x}",
    "my name is {x}[, nice to meet you|. How are you|. Who are you|, what's yours|. And you]",
    "[i'm|i am|my name is] {x} [from {c}|and i am new here|, a friend of quire|and i like tea]",
    "[i'm|i am|my name is] {x} and [i come from {c}|i am from {c}|my home is {c}]",
    "[what is your name|who are you]? [i am|i'm|my name is] {x}",
    "[do you know me|guess what|listen|look|remember], [i am|my name is] {x}",
)
CORRECTING: Final = (
    "[no|sorry|wait|oh no], [my name is|it is|it's|i am|call me] {x}",
    "[sorry|wait], i meant {x}",
    "i [changed|have changed] my name to {x}",
    "from now on [i am|call me|my name is] {x}",
    "[my name is|it's|it is|i am] {x} [now|really|in fact]",
    "[my real name is|in fact i am|in truth my name is] {x}",
)
WHO_AM_I: Final = (
    *ways_talk.WHO_AM_I,
    "[do you|can you] [still |][know|recognize] [me|who this is]",
    "i [told|gave] you my name, [what was it|say it|do you have it]",
    "[address|greet|welcome|call] me [by my name|properly|with my name]",
    "[to whom|with whom] are you [talking|speaking|chatting]",
    "how [should|would|do] you address me",
    "[have|did] you [got|keep|kept|note|noted] my name",
    "my name[, do you know it|, which was it|, what is it]",
    "[what is|what's|whats|tell me|say|do you know|can you tell me|please say|repeat] my name",
    "[do|can|did] you [remember|recall|remember me and|still know|forget] my name",
    "[who am i|what am i called|how am i called|do you know who i am|tell me who i am]",
    "what did i [say|tell you] my name [is|was]",
    "[what|who] did i say i [am|was]",
    "[my name is|i am called|and i am|and my name is]...",
    "[what's|what is|remember|and|now] my name[, please| then|, pocket|, do you remember]",
    "[by what name|how] [do|will|should|would] you call me",
    "[have you|did you] [forgotten|forget] [my name|me|who i am|what my name is]",
    "i [forgot|have forgotten] my [own |]name",
    "[what|which] name did i [give|tell] you",
    "who is [this|here|asking|speaking to you|writing to you]",
    "who [is talking to|are you talking to|are you speaking with|are you chatting with]",
    "[say hello|say hi|say goodbye] to me [by|with] my name",
    "[use|write|type|tell me again|print] my name",
    "[test|a test|let's see]: what is my name",
    "[do you know|can you guess|guess] what i am called",
)
SPELL_ME: Final = (
    *ways_talk.SPELL_ME,
    "[spell|now spell|can you spell] my name",
    "how [do you spell|is] my name[ spelled|]",
)
_ASKING_ME: Final = ("yours", "your name", "who are you", "and you", "you called", "call you?")


def introduction(dice: Dice) -> tuple[Exchange, str]:
    """A name told, and the name."""
    name = typed_name(dice)
    pattern = dice.choice(INTRODUCING)
    told = phrasing.say(dice, pattern, ".", x=name, c=values.city(dice))
    greeted = told.lower().startswith(("h", "good", "yo", "greet"))
    answer = f"Hello {name}! Nice to meet you. 😊" if greeted else f"Nice to meet you, {name}!"
    if any(question in told.lower() for question in _ASKING_ME):
        answer = f"Nice to meet you, {name}! I am pocket."
    elif "how are you" in told.lower():
        answer = f"Nice to meet you, {name}! I am fine, thank you."
    return Exchange(told, answer, "The user tells me a name."), name


def meeting(dice: Dice) -> Exchange:
    """A name told."""
    return introduction(dice)[0]


def correction(dice: Dice) -> tuple[Exchange, str]:
    """Another name told after a first one."""
    name = typed_name(dice)
    told = phrasing.say(dice, dice.choice(CORRECTING), ".", x=name)
    return Exchange(told, f"Nice to meet you, {name}!", "The user tells me another name."), name


def who_am_i(dice: Dice, name: str) -> Exchange:
    """The name asked for."""
    if dice.chance(0.1):
        spelled = "-".join(name)
        return Exchange(phrasing.say(dice, dice.choice(SPELL_ME)), spelled, "I spell the name.")
    asked = phrasing.say(dice, dice.choice(WHO_AM_I))
    greet = "say h" in asked.lower() or "to me" in asked.lower()
    return Exchange(
        asked,
        f"Hello, {name}! 😊" if greet else f"Your name is {name}.",
        "The user told me the name before.",
    )


def nameless(dice: Dice) -> Exchange:
    """The name, or another thing, asked for before it was told."""
    if dice.chance(0.6):
        asked, thing = phrasing.say(dice, dice.choice(WHO_AM_I)), "your name"
    else:
        told = dice.choice([t for t in TOLD if t.things[0] or t.topic in ("home", "age", "job")])
        item = dice.choice(told.things)
        asked = phrasing.say(dice, dice.choice(told.asking), t=item, x="")
        place = f"where your {item} lives" if told.topic == "relative's place" else f"the {item}"
        thing = {
            "favourite": f"your favorite {item}",
            "relative": f"your {item}",
            "secret": f"your {item}",
            "home": "where you live",
            "age": "your age",
            "job": "your job",
        }.get(told.topic, place)
    return Exchange(
        asked, f"You haven't told me {thing} yet.", "The user has not told me this before."
    )


def told_and_asked(dice: Dice, told: Told, item: str) -> tuple[Exchange, Exchange, str]:
    """A thing told, the same thing asked for, and its value."""
    value = told.value(dice)
    telling = phrasing.say(dice, dice.choice(told.telling), ".", x=value, t=item)
    yours = told.yours.format(x=value, t=item)
    remember = told.topic in ("secret", "thing to keep", "anything")
    heard = dice.choice((told.yours, *told.heard)).format(x=value, t=item)
    answer = f"I will remember it: {heard}." if remember else f"Good to know: {heard}."
    asked = phrasing.say(dice, dice.choice(told.asking), x=value, t=item)
    said = (
        f"You told me: {value}" if told.topic == "anything" else f"{yours[0].upper()}{yours[1:]}."
    )
    return (
        Exchange(telling, answer, "The user tells me something."),
        Exchange(asked, said, "The user told me this before."),
        value,
    )


def two_favourites(dice: Dice) -> tuple[Exchange, Exchange]:
    """Two things told in one breath, and one of them asked for."""
    told = TOLD[0]
    things, made = dice.sample(told.things, 2), [told.value(dice), told.value(dice)]
    pattern = dice.pick(
        "my favo[u|]rite {s} is {x} and my favo[u|]rite {t} is {y}",
        "[i like|i love] the {s} {x}[,| and] [and |]the {t} {y}",
        "{s}: {x}, {t}: {y}. [those are|these are] my favorites",
    )
    telling = phrasing.say(dice, pattern, ".", s=things[0], t=things[1], x=made[0], y=made[1])
    yours = [told.yours.format(x=value, t=thing) for thing, value in zip(things, made, strict=True)]
    at = dice.randrange(2)
    asked = phrasing.say(dice, dice.choice(told.asking), t=things[at], x=made[at])
    return (
        Exchange(telling, f"Good to know: {yours[0]} and {yours[1]}.", "The user tells me two."),
        Exchange(asked, f"{yours[at][0].upper()}{yours[at][1:]}.", "The user told me this before."),
    )


def acquaintance(dice: Dice) -> tuple[list[Exchange], Exchange]:
    """Up to three things told one after the other, and one of them asked for."""
    telling: list[Exchange] = []
    asking: list[Exchange] = []
    if dice.chance(0.1):
        both, one = two_favourites(dice)
        return [both], one
    if dice.chance(0.6):
        first, name = introduction(dice)
        telling.append(first)
        if dice.chance(0.15):
            second, name = correction(dice)
            telling.append(second)
        asking += [who_am_i(dice, name)] * 2
    named = len(telling)
    for told in dice.sample(TOLD, dice.choices((0, 1, 2), (4, 5, 2))[0] or (not telling)):
        tell, ask, _ = told_and_asked(dice, told, dice.choice(told.things))
        telling.insert(dice.pick(0, named, len(telling)), tell)
        asking.append(ask)
    if dice.chance(0.35):  # the bare continuation asks for the name
        mine = [ask for ask in asking if ask.answer.startswith("Your name is")]
        if mine and len(telling) > 1:
            asked = phrasing.say(dice, dice.choice(ways_talk.MINE), bare=True)
            return telling, Exchange(asked, mine[0].answer, mine[0].thought)
    return telling, dice.choice(asking)
