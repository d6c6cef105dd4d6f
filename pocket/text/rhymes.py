"""Rhymes: words that rhyme with one, which of several does, and whether two do."""

import re
from typing import Final

from pocket.text import phrasing, ways_framed, ways_wider, ways_words, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

SOUNDS: Final[dict[str, tuple[str, ...]]] = {
    sound: tuple(rhyming)
    for sound, *rhyming in map(
        str.split,
        """
    at cat hat bat mat rat flat fat sat chat that
    oon moon spoon soon noon balloon tune june
    ite light night bright right fight kite white bite sight
    ay day way play say may stay pay grey clay
    ee tree bee sea free key three knee tea me
    ouse house mouse blouse
    og dog frog fog log
    ar star car far jar guitar bar
    ain rain train plane brain chain pain lane
    ake cake lake snake make bake shake take
    ing king ring sing thing wing spring bring string
    air bear chair hair pear stair fair share
    all ball wall tall fall small call
    un sun run fun one bun
    oat boat coat goat note float throat
    ook book look cook hook
    ed red bed head bread said
    oo blue shoe two zoo true new you
    een green queen seen bean mean clean
    old cold gold old told bold
    ish fish dish wish
    and hand sand land stand band
    oh snow go show know slow low
    eye sky fly high pie why cry
    ock clock rock sock lock block
    eem dream cream team stream
    art heart part art start smart
    ox box fox socks rocks
    oze nose rose toes close
    ore door floor more four store
    ime time rhyme lime climb
    ire fire wire higher tire
    ind mind kind find blind
    est nest best rest west
    own town brown crown down
    ig big pig dig wig
    ale tail whale mail snail sail
    ice nice mice rice ice price dice
    ell bell well tell shell smell
    op top hop shop stop drop
    uv love dove above glove
    ill hill bill will still
    our power flower tower hour shower
    unny money honey funny sunny
    en ten pen hen men
    ine wine line mine fine nine
    uck truck duck luck
    ame game name same flame
    ip ship trip lip chip
    urd word bird heard third
    ap map cap nap lap
    ug bug hug mug rug
    eat meat feet street sweet seat heat
    utter butter mutter gutter
    able table cable stable fable
    one phone stone alone bone grown
    eep sheep sleep deep keep cheap
    ack back black track snack
    ad sad mad glad dad
    ag bag flag tag wag
    am jam ham lamb
    an man pan fan can van
    ank bank tank thank blank
    ash cash splash trash flash
    ask task mask ask flask
    ave wave cave brave save
    eal meal wheel feel deal
    eck neck deck check wreck
    eed seed need read speed
    eg leg egg peg beg
    ent tent cent went spent
    ess dress guess yes chess
    et wet pet net jet debt
    ick sick trick brick kick
    id kid lid did hid
    ide side ride wide bride tide
    ife life wife knife
    ike like bike hike spike
    ile smile while mile file
    in thin pin twin win skin
    ink pink drink think sink
    ipe pipe ripe wipe stripe
    it hit sit fit bit knit
    ive five dive drive alive
    oak joke smoke oak woke
    ode road toad code load
    oil soil boil oil spoil
    oint point joint
    ole pole hole whole goal soul roll
    ong long song strong wrong
    ope hope rope soap slope
    orn corn horn torn born
    ot hot pot dot shot knot
    ouch couch ouch pouch
    ound round sound found ground
    out shout out trout scout
    oy boy toy joy
    ub club tub rub cub
    ud mud bud blood flood
    um drum thumb plum sum crumb
    ump jump lump pump bump
    unk trunk skunk drunk
    ush brush crush rush
    ust dust must trust just
    ut nut cut shut hut
    ool school cool pool rule
    oom room broom groom
    oop soup loop group hoop
    oot fruit boot suit root
    oose goose juice loose moose
    urn turn burn learn
    atter matter batter latter
    etter letter better wetter
    inner dinner winner thinner
    itten kitten mitten written
    umble tumble rumble humble
    ummer summer drummer
    ocket pocket rocket socket
    otion ocean motion lotion
    ation station nation vacation
    eather feather weather leather
    other mother brother other
    after laughter after
    iver river liver shiver
    ory story glory
    arrot carrot parrot
    izzy dizzy busy
    elly jelly belly
    """.strip().splitlines(),
    )
}
"""Words that rhyme, under the sound that they end in."""
FAMILIES: Final = tuple(SOUNDS.values())
_KNOWN: Final = frozenset(word for family in FAMILIES for word in family)
_BEGINNINGS: Final = words.split(
    "b br bl c ch cl cr d dr f fl fr g gl gr h j l m n p pl pr r s sh sl sn sp st str sw t th tr v"
)
_ENDINGS: Final = words.split(
    "ab ack ad am ank ap ash ast elt ent ick id ift im ink int ob od omp ong ub ump unk ust ane ape"
    " ate eed eet ide ike obe oke ope ude ound irt orn arn inder atter umble ettle ocket itten"
    " offer inner ossom avy elly ory andle immer upper obin amper"
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


def ending(word: str) -> str:
    """The letters of a word that stand for the sound of a rhyme with it, if it is spelled as it
    sounds: from its last vowel on, or the last but one, not counting a silent e."""
    found = re.search(r"(?:[aeiouy]+[^aeiouy]+)?[aeiouy]+[^aeiouy]*$", word)
    return found[0] if found else word


# Words without a rhyme here. Not those that end as known ones are spelled, which may sound like
# them or not ("great").
_SPELT: Final = tuple({*SOUNDS, *map(ending, _KNOWN)})
_OTHERS: Final = tuple(
    word
    for word in words.ALL_WORDS
    if word not in _KNOWN and len(word) < 9 and not word.endswith(_SPELT)
)


def _which(dice: Dice) -> tuple[dict[str, str], str]:
    """A word, several others of which one rhymes with it, and the answer."""
    sound = dice.choice(tuple(SOUNDS))
    word, match = dice.sample(SOUNDS[sound], 2)
    others = dice.sample([f for f in SOUNDS if f != sound], dice.choice((1, 1, 2, 3)))
    listed = [match, *(dice.choice(SOUNDS[other]) for other in others)]
    dice.shuffle(listed)
    shown = f"{', '.join(listed[:-1])}{dice.pick(' or ', ', ', ' or ')}{listed[-1]}"
    said = f'{word.capitalize()} ends in the sound "{sound}", so it rhymes with {match}.'
    return {"x": word, "l": shown}, said


def _pair(dice: Dice, same: bool) -> tuple[tuple[str, str], tuple[str, str]]:
    """Two words, each with the sound that it ends in: known ones, common ones without a rhyme here,
    or made-up ones, which end as they are spelled."""
    if same and dice.chance(0.25):
        sound = dice.choice(_ENDINGS)
        first, second = dice.sample(_BEGINNINGS, 2)
        return (first + sound, sound), (second + sound, sound)
    sound = dice.choice(tuple(SOUNDS))
    x, y = dice.sample(SOUNDS[sound], 2)
    if same:
        return (x, sound), (y, sound)
    pair = [(x, sound)]
    if dice.chance(0.4):
        other = dice.choice(_OTHERS)
        pair.append((other, ending(other)))
    else:
        sound = dice.choice([f for f in SOUNDS if f != sound])
        pair.append((dice.choice(SOUNDS[sound]), sound))
    if dice.chance(0.15) and (other := dice.choice(_OTHERS)) != pair[1][0]:
        pair[0] = (other, ending(other))
    if pair[0][1] == pair[1][1]:
        return _pair(dice, same)
    dice.shuffle(pair)
    return pair[0], pair[1]


def _whether(dice: Dice) -> tuple[dict[str, str], str]:
    """Two words, and whether they rhyme. The answer names both sounds first: a model this small
    only guesses when it must begin with yes or no."""
    (x, sound), (y, other) = _pair(dice, dice.chance(0.48))
    verdict = "they rhyme" if other == sound else "they do not rhyme"
    said = f'{x.capitalize()} ends in the sound "{sound}", {y} in "{other}": {verdict}.'
    return {"x": x, "y": y}, said


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
