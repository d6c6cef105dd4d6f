"""More ways to tell something of oneself, and to ask for it back, by topic of `told.TOLD`."""

from typing import Final

from pocket.text.frames import frames

_TELL: Final = (
    "tell me|say|do you know|do you remember|remind me|can you tell me|could you say|i forgot"
    "|can you still say|i wonder|i'd like to know|repeat|please say|let me hear|you know"
)
_BACK: Final = "again|once more|now|earlier|before|please|pocket|can you say|if you remember"


def _frames(text: str) -> tuple[str, ...]:
    return frames(text, tell=_TELL, back=_BACK)


ASKING: Final = {
    "favourite": _frames(
        """
        @tell [which|what] {t} [i like best|is my favo[u|]rite|i love most|i like|i prefer]
        @tell [the name of |]my favo[u|]rite {t}
        [what|which] was my favo[u|]rite {t} @back
        my favo[u|]rite {t} @back
        [of|among] all {t}s, which [do i like best|is mine|is my favo[u|]rite|do i prefer]
        [what|which] {t} [did i say i like|did i mention|would i pick|would i choose|makes me happy]
        [if i could|if i had to] [choose|pick] a {t}, which [would i take|would it be]
        [and|so|hey|now], the {t} i [love|like best|like] is
        [so you know|you remember] [which|what] {t} i [like|love][, right|, don't you|]
        my favo[u|]rite {t}, [what is it|which is it|do you know|tell me|you know it]
        as {t}, what do i like [best|most]
        """
    ),
    "relative": _frames(
        """
        @tell [the name of my {t}|my {t}'s name|what my {t} is called|who my {t} is]
        [what|which] name [did i give|belongs to|has|did i say for] my {t}
        what was my {t}'s name @back
        my {t}'s name @back
        my {t} @back
        my {t} is called
        my {t} - [name|which name|who]
        the name of my {t}[ @back|]
        i have a {t}, [what's the name|do you remember the name|called what]
        [you|u] [know|remember] my {t}'s name, [right|don't you|do you]
        [say|write|type] [hello to my {t}, what's the name|my {t}'s name]
        did i [mention|tell you] [the name of my {t}|my {t}'s name][, what is it|]
        """
    ),
    "secret": _frames(
        """
        @tell [what|which] [my|the] {t} [is|was]
        what was [the|my] {t} @back
        [my|the] {t} @back
        [my|the] {t}, [which was it|what is it|do you know it|say it|i need it]
        [i need|i want|give me|fetch|hand me|show me|print] [my|the] {t}[ @back|]
        i [can't recall|can't find|can't remember|forgot|lost] [my|the] {t}[, help|, what is it|]
        [so|and|hey], what [did i say|did i tell you] [my|the] {t} [is|was]
        [what|which] {t} do i have
        the {t} i [gave|told|mentioned to] you
        you [kept|noted|have|know] [my|the] {t}, [right|don't you|what is it]
        if [someone|i] [asked|ask] [for|you for] [the|my] {t}, what [is it|do you say]
        the {t} is
        """
    ),
    "home": _frames(
        """
        @tell [where i live|where my home is|in which city i live|my town|where i am at home]
        where [was|is] [my home|my house|my flat|it i live] @back
        [what|which] [city|town|place] did i [mention|say i live in|tell you]
        in [what|which] [city|town|place] [is my home|am i at home|is my house|do i stay]
        where [would you find me|can you find me|should you visit me|do i go home to|is home for me]
        my [home|city|town|house] is [in|where]
        i live [where|in what city|in which town|in]
        you [know|remember] where i live, [right|don't you]
        where do i live @back
        """
    ),
    "origin": _frames(
        """
        @tell [where i come from|where i am from|where i was born|my origin|my home country]
        where [was|is] it i [come|came] from
        i [come|am] from [where|which place|what country|]
        [what|which] [place|country|town] [do i come from|was i born in|did i grow up in]
        my [birthplace|origin|roots|native land] @back
        where [are my roots|is my family from|did i say i am from|was my cradle]
        where am i from @back
        """
    ),
    "job": _frames(
        """
        @tell [what my job is|what i work as|my job|my profession|what i do for a living]
        [what|which] [job|work|profession] did i [mention|say i have|tell you]
        my [job|profession|work|trade] @back
        i work as [what|]
        i am a [what|...] by [trade|profession]
        how do i [make a living|pay my bills|spend my working day]
        what am i by [trade|profession]
        """
    ),
    "age": _frames(
        """
        @tell [how old i am|my age|how many years i have]
        how old am i @back
        my age @back
        [what|which] age did i [mention|say|tell you|give]
        i am how [old|many years old]
        how many [years|birthdays|candles] [have i|do i have|did i have|are on my cake]
        [am i old, how old|guess how old i am|my age, what is it]
        """
    ),
    "love": _frames(
        """
        @tell what i [love|like|enjoy|adore|am fond of]
        what did i say i [love|like|enjoy]
        what [makes me happy|am i fond of|am i a fan of|is it i love|do i like] @back
        [the thing|what] i [love|like] is
        [name|say] [the thing|what] [i love|i like|i enjoy]
        """
    ),
    "thing to keep": _frames(
        """
        @tell [which|what] {t} [i gave you|you should keep|i told you|it was|was it]
        @tell the {t}
        the {t} @back
        the {t}, [which was it|what was it|do you have it|please|say it]
        [so|and|hey|ok], [the {t}|what was the {t}|which {t}]
        [what|which] {t} [are you keeping|is in your memory|do you have for me|did i leave with \
          you|was yours to keep]
        i [need|want|forgot|can't recall] the {t}[ now| @back|]
        [give|hand|read|say] [me |]the {t} [back|you kept|you have|i left with you|of before]
        [time to|now|please] [recall|repeat|say|give back] the {t}
        did you [keep|note|save|remember] the {t}[? what is it|, say it|]
        """
    ),
    "anything": _frames(
        """
        @tell what [i told you|you should keep|i asked you to remember|you have noted|it was]
        what was it @back
        [so|and|hey|ok], [what was it|what did i tell you|what do you remember|what should you know]
        what [is in your memory|are you keeping|do you have for me|did i leave with you|was i \
          asking you to keep]
        [give|hand|read|say] [me |]it back
        [time to|now] [recall|repeat|say] it
        [the thing|what] i told you to [keep|remember], what was it
        what did i [tell|give|say to] you [a moment ago|earlier|before|just now|a while ago]
        """
    ),
    "relative's place": _frames(
        """
        @tell where my {t} [lives|is|stays]
        where did i say my {t} [lives|is]
        my {t} lives [where|in what city|in]
        [what|which] [city|town|place] is home to my {t}
        if i [visit|call on|want to see] my {t}, where [do i go|must i go]
        """
    ),
}
TELLING: Final = {
    "favourite": _frames(
        """
        when it comes to {t}s, i [like|love|prefer] {x}
        {x}, that's my favo[u|]rite {t}
        [no|there is no] {t} [is |]better than {x}[, i think|]
        my favo[u|]rite {t}: {x}
        as {t}, i [like|love|prefer] {x} [best|most]
        the {t} i [like|love] [best|most] is {x}
        [by the way|fyi|just so you know], my favo[u|]rite {t} is {x}
        """
    ),
    "relative": _frames(
        """
        [everybody|everyone|we all] call[s|] my {t} {x}
        {x}, that's my {t}
        my {t} [goes by|answers to|bears] the name {x}
        my {t} [has|got] the name {x}
        [by the way|fyi|guess what], my {t} is [called|named] {x}
        this is about my {t}, [called|named] {x}
        """
    ),
    "secret": _frames(
        """
        {t}: {x}
        my {t}: {x}
        {x} - that's [my|the] {t}
        {x} is [my|the] {t}, [keep it|remember it|don't forget|note it|keep that in mind]
        [keep in mind|memorise|mind you|take note|jot down][:| that| this:] [my|the] {t} is {x}
        as {t} i [use|have|took|chose] {x}
        the {t} i [use|have|got|chose] is {x}
        i [need|want] you to [remember|keep|know] [my|the] {t}[:|,] {x}
        """
    ),
    "home": _frames(
        """
        {x} is my home[ town|]
        my [house|flat|home|apartment] is in {x}
        i [reside|dwell|have a flat|have a house|settled|rent a room] in {x}
        home for me is {x}
        i live in {x}[, by the way|, it is nice|, do you know it|]
        """
    ),
    "thing to keep": _frames(
        """
        [your|the] {t} is {x}[, keep it|, remember it|, don't forget it]
        [i tell you|here comes] a {t}[:|,] {x}[. keep it|. remember it|, don't lose it]
        i will ask for this {t} later: {x}
        {x} is the {t} to [remember|keep]
        [hold on to|keep|mind] this {t}[:|,] {x}
        """
    ),
    "anything": _frames(
        """
        [hold on to|keep|mind|memorise|retain] this[:|,] {x}
        i will ask you later[, remember|:] {x}
        [keep|hold] {x} [for me|in mind|in memory|until later]
        {x} - [keep that|remember that|memorise it|note it down]
        [can|could|would|will] you [remember|keep|note] {x}[ for me|]
        """
    ),
}
