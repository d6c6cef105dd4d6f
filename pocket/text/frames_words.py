"""More ways to ask for opposites, rhymes, colours, lists and jokes."""

from typing import Final

from pocket.text.frames import frames

_OPP: Final = "opposite|antonym|contrary|reverse|opposite word|exact opposite|counterpart"
_TELL: Final = (
    "tell me|say|do you know|can you say|i wonder|i'd like to know|could you tell me|i forgot"
    "|help me find|i need|i want|i am looking for|give me|find|guess|what would you say is"
)
OPPOSITE: Final = frames(
    """
    @tell [a|the] word [that means|meaning] the @opp of {x}
    {x}? [the |]@opp[ please|]
    {x} -> @opp
    {x} [but|only|just] the other way [round|around]
    {x}, the other way [round|around]
    {x}[,|:] turned [around|upside down|into its @opp]
    {x}: what would be the @opp
    {x} [has|takes|wants] [which|what] @opp
    {x} is to [what|...] as hot is to cold
    hot is to cold as {x} is to [what|...]
    [up|day|big] is to [down|night|small] [as|like|what] {x} is to [what|...|]
    if hot [goes with|is paired with] cold, [what goes with {x}|{x} goes with|then {x} goes with]
    if the @opp of up is down, [what is|then] the @opp of {x}[ is|]
    i say {x} and you say the @opp
    when i say {x}, you [say|answer|reply] [what|the @opp]
    [i'm|i am|it is|he is|she is|we are] [not|never|no longer] {x}[,| but|, but]
    not {x}[,| -] rather
    it is not {x}, it is
    it's anything but {x}, it is
    [nothing|nobody] is {x}, everything is [what|the @opp]
    [far from|anything but|the very @opp of|in no way] {x}[ is|, so|]
    [stop being|don't say] {x}, [be|say] the @opp
    what [should|do|can|would] i [say|write|use] for the @opp of {x}
    what [word |]means the @opp of {x}
    which word [would undo|undoes|cancels|contradicts|is against|stands against] {x}
    [which|what] is [contrary|opposed|in contrast] to {x}
    [how would you|can you] [turn|flip|reverse|invert|negate] [the word |]{x}[ around|]
    [flip|reverse|invert|negate] [the word |]{x}
    @opp[:| -| for|] {x}
    @opp of {x}
    the @opp would be, for {x}
    in a crossword: @opp of {x}
    crossword clue[:|,] not {x}
    [my homework|my teacher|the quiz|a worksheet] asks for the @opp of {x}
    [the door|the water|my soup|the town|this] is {x}, [yours|the other one|hers] is the @opp
    [one is|this one is] {x}, the other is the @opp, [so|namely|that is]
    [fill in|complete|finish][:| this:] {x} and
    [fill in|complete|finish][:| this:] the @opp of {x} is
    {x} and [what|_] are [opposites|antonyms]
    [what|which word] is [as far as can be|farthest] from {x}
    [let's|we] play opposites[,|:|.] {x}
    [the game of|a round of] opposites: {x}
    opposites[:| -] {x}
    [in|with] one word, the @opp of {x}
    [name|list|write] an @opp for {x}
    [the word|take the word] {x}[,|:] [its|what is its|tell me its] @opp
    [for|of] {x}[,|] the @opp [is|please|is what]
    has {x} [an|a good] @opp
    is there [an|a word that is the] @opp of {x}
    """,
    opp=_OPP, tell=_TELL,
)  # fmt: skip
_RHYMES: Final = (
    "a rhyme|rhymes|a rhyming word|rhyming words|some rhymes|words that rhyme|a word that rhymes"
)
RHYME: Final = frames(
    """
    @tell [what|which word] rhymes with {x}
    {x}? [rhyme|rhymes|a rhyme|what rhymes]
    {x} needs a [rhyme|rhyming partner|partner that rhymes]
    {x}, [what rhymes|which words rhyme|who rhymes|give me a rhyme|find a rhyme|rhymes please]
    with {x} [rhymes|what rhymes|which word rhymes|rhyme]
    with {x}, [find|give me|name|make] @rhymes
    [on|for|to] {x} [i need|please|find] @rhymes
    rhymes [with|for|of|to|on] {x}
    rhyming with {x}
    rhyme: {x}
    rhyme with {x}
    rhyme for {x}
    rhyme me {x}
    rhyme on {x}
    rhyme the word {x}
    rhymes: {x}
    [the last|my last|the first] [line|verse] ends [with|in|on] {x}, [what rhymes|i need a \
      rhyme|how can the next end]
    [my|a|the] [song|poem|rap|verse|line] ends [in|with|on] {x}[,|.] [what rhymes|what fits|i \
      need a rhyme|rhyme it|help me rhyme]
    i [write|am writing|wrote] a [song|poem|rap] and need @rhymes [with|for|to] {x}
    i [can't|cannot] [find|think of] @rhymes [with|for|to] {x}
    i say {x}, you [rhyme|say a rhyme|answer with a rhyme]
    what could i rhyme [with|on] {x}
    [how|with what] [do|can|would|could] [i|you|one|we] rhyme {x}
    [what|which] [word |words |]could [follow|match|go with] {x} in a rhyme
    [what|which] [words|word] end[s|] [like|the same way as|with the sound of] {x}
    [two|some|a few|a couple of|two or three] [words|rhymes] [that rhyme with|for|rhyming with] {x}
    [two|some|a few] rhymes on {x}
    sounds like {x}
    [it|what] sounds like {x}[ and rhymes|]
    [something|anything] to rhyme [with|on] {x}
    [any|got any|know any|have you any|are there any|is there any] [rhyme|rhymes|rhyming \
      words|words] [for|with|to|rhyming with] {x}
    [can|could|would|will] you [rhyme|find rhymes for|rhyme with|make a rhyme on] {x}
    [be a poet|you are a poet|poet's help], [rhyme|what rhymes with|find a rhyme for] {x}
    [for|in] [my|a] [poem|song|rap], [what rhymes with|a rhyme for|find a rhyme on] {x}
    [help me|i want to|i must|i need to|teach me to|let us] rhyme [with |]{x}
    [cat rhymes with hat|moon rhymes with spoon], [and|what about|so] {x}[ with what| rhymes with|]
    does [anything|any word|something] rhyme with {x}
    [match|pair] {x} with [a rhyme|a rhyming word|something that rhymes]
    [same ending|same sound] as {x}
    """,
    tell=_TELL, rhymes=_RHYMES,
)  # fmt: skip
DO_RHYME: Final = frames(
    """
    [can|could] [you tell|you say] [if|whether] {x} [and|rhymes with] {y}[ rhyme|]
    [i wonder|tell me|say|check] [if|whether] {x} [and|rhymes with] {y}[ rhyme|]
    {x}, {y}[:|,| -] [rhyme|do they rhyme|rhyming|yes or no]
    {x} and {y} rhyme, [don't they|do they not|correct|is that right|i think]
    [is it|would it be] [true|correct|right] that {x} rhymes with {y}
    [true or false|yes or no][:|,] {x} [rhymes with|and] {y}[ rhyme|]
    [does|will|would] {x} [go|pair|work] with {y} [as a rhyme|in a rhyme|in a poem|at the end of \
      a line]
    [would|could|may|can] [a poet|one|i|we] rhyme {x} [with|and|on] {y}
    [have|do] {x} and {y} [got |have |]the same [ending|sound at the end|end sound]
    [does|would] {x} sound like {y} at the end
    [my friend|she|he|my teacher|someone] says {x} rhymes with {y}, [right|is that so|is it \
      true|really]
    i [think|say|claim|believe|bet] {x} [rhymes with|and] {y}[ rhyme|][, right|, am i right|, true]
    are {x} and {y} rhyming [words|]
    [is|isn't] {x} a rhyme [for|with|to|on] {y}
    [my|the] poem has {x} and {y}[,|.] [does it rhyme|is that a rhyme|do they rhyme]
    rhyme or no rhyme: {x}, {y}
    rhyme check[:|,|] {x}[,|/| and] {y}
    {x} rhymes with {y}
    {x}/{y} rhyme
    """,
)  # fmt: skip
MIXING: Final = frames(
    """
    if [one|a painter|my kid|somebody|we] [mixes|mix|stirs|adds|combines] {a} [and|with|into] \
      {b}, [what comes out|what is it|which colo[u|]r is that|what do we see]
    [what|which colo[u|]r|which one] [happens|results|is made|is created|appears|turns up] \
      [when|if] {a} [meets|joins|is mixed with|is added to] {b}
    {a} with {b}[ is| makes| gives| makes what|]
    {a} + {b}
    {a} and {b}[ mixed| together| blended| combined|][,|:] [what colo[u|]r|which \
      colo[u|]r|makes|gives|that is]
    {a} & {b} mixed
    i have [only |][some |]{a} and {b}[ paint|], [what can i make|what colo[u|]r can i mix|which \
      third colo[u|]r can i get]
    [i need|tell me|say|do you know] the [mix|mixture|blend|colo[u|]r] of {a} and {b}
    the [mix|mixture|blend|sum] of {a} and {b}[ is|]
    [my|the] paints are {a} and {b}. mixed[ they make| that is|]
    [paint|dye|ink|light][:|,] {a} plus {b}
    out of {a} and {b} [i get|one gets|comes|you make]
    """,
)  # fmt: skip
COLOUR: Final = frames(
    """
    [if|when] i [paint|draw|colo[u|]r in] {t}, [what|which] colo[u|]r [do i need|should i take|do \
      i use|is right]
    [what|which] [crayon|paint|pencil|colo[u|]r] [do i need|should i take|do i use|is right] for {t}
    [tell me|i wonder|do you know|guess|say|i forgot] [what|which] colo[u|]r {t} [is|has|comes in]
    [name|give me|say|write] the colo[u|]r of {t}
    colo[u|]r[:| -] {t}
    {t} [comes|is seen|is usually|is mostly|is normally] in [what|which] colo[u|]r
    [usually|mostly|normally|in general|most often], [what|which] colo[u|]r is {t}
    [what|which] colo[u|]r [does|would|will] {t} [have|show|come in|usually have]
    how [does|would] {t} look, [what|which] colo[u|]r
    [my kid|my son|a child] asks [what|which] colo[u|]r {t} is
    [imagine|picture|think of|look at] {t}[,|:|.] [what|which] colo[u|]r [is it|do you see|has it]
    [what is|what's] {t} like, colo[u|]r wise
    {t} is [colo[u|]red|painted] [how|what|in which colo[u|]r]
    """,
)  # fmt: skip
_NAME: Final = (
    "name|list|tell me|give me|show me|write|say|suggest|mention|write down|come up with|think of"
    "|recommend|provide|offer me|throw me|enumerate|type|collect|i want|i need|let me have"
)
_KIND: Final = "|different |nice |common |good |famous |random |typical |well-known |"
LIST: Final = frames(
    """
    @name {n} [kinds|types|sorts|examples] of {t}
    @name {t}[,|:|;| -] {n}[ please| will do| is enough| of them| in total|]
    {n} @kind{t}[,|:] [please|go|quick|now|can you]
    {n} [examples|kinds|types|sorts] of {t}
    {t}, but [only|just|no more than] {n}
    {t}? {n}[ please|]
    {t} x {n}
    {t} - @name {n}
    [a|make a|write a|i need a|can i have a] list[:|,| of|] {n} {t}
    [a|the] list [with|of|containing] [exactly |]{n} @kind{t}[ on it| please|]
    [what are|which are|what would be] {n} [examples of |of the |]{t}
    i [am learning about|am studying|like|draw|collect] {t}[,|.] @name {n}[ of them|]
    [for|in] [my|a|our] [game|quiz|homework|class|story|shopping list|project][,|] [i need |@name \
      ]{n} @kind{t}
    [do you know|are there|can you think of|have you got|any idea of] {n} @kind{t}
    [how about|what about|let's have|let's hear|now] {n} {t}
    [my teacher|my kid|the quiz] [wants|asks for|needs] {n} @kind{t}
    [bullet|bulleted|numbered] list of {n} {t}
    [make|draw up|produce|create|compile|prepare] [me |][a list of |a set of |]{n} {t}
    {n} [things|items|words] [that are|from the topic|of the kind|from the theme] {t}
    [brainstorm|gather|generate] {n} {t}
    out of all [the |]{t}, {n}
    """,
    name=_NAME, kind=_KIND,
)  # fmt: skip
LIST_ALONE: Final = frames(
    """
    @name [some|a few|several] @kind{t}
    [some|a few|several] @kind{t}[ please|]
    [do you know|are there|can you think of|have you got] [some|any] @kind{t}
    [what|which] {t} [do you know|come to mind|can you name|are there]
    [a|make a|write a|i need a] list of [some |]{t}
    [examples|some examples] of {t}
    @name {t}
    """,
    name=_NAME, kind=_KIND,
)  # fmt: skip
JOKE: Final = frames(
    """
    [i'm|i am|we are] [bored|sad|in need of a laugh|in the mood for a joke|ready for a joke][,|.] \
      [tell me a joke|a joke please|make me laugh|joke|entertain me with a joke]
    [entertain|amuse|cheer|humo[u|]r] [me|us][ up|][ with a joke| a little| please|]
    [a|one|any|your favo[u|]rite|the best] [good |clean |short |dad |silly |quick |]joke[,| \
      please| for kids| would be nice|]
    [let's|let us] [have|hear] [a|your best|some] [joke|jokes]
    [can|could|may|might] [i|we] [have|hear|get] [a|one|some] [funny |good |]joke[s|]
    [how about|what about|time for|ready for|in the mood for] [a|one|some] [joke|jokes|something \
      funny]
    joke[s|], [please|pls|now|quick|go]
    [say|tell me|do you know] something [to make me laugh|hilarious|ridiculous|that makes me \
      laugh|to smile about]
    [are you able to|do you know how to|would you mind to|please] [tell|make|crack] [a |me a \
      |]joke[s|]
    [crack|drop|throw|hit me with|share|send|hand me] a [joke|good one|funny one]
    [surprise|impress] me with a joke
    what [jokes|joke] [do you know|can you tell|have you got]
    [my|our] [day|office|class|team] needs a [joke|laugh]
    """,
)  # fmt: skip
ANOTHER: Final = frames(
    """
    [and |now |ok |]the next[ one|]
    [can|could|may] i [have|hear|get] [another|one more|a second|the next][ one|]
    [do|tell|give|say|crack|hit me with] [another|one more|me another|me one more]
    [any|got|have you] [more|others|other ones|another|other jokes][ like that| of those|]
    [i want|i need|i'd like|let me hear|let's hear] [another|more|one more|the next one|a \
      different one]
    [you have|there must be|surely there are] [more|others|another]
    [that one|this one|it] was [old|bad|great|not funny|too short|lame], [another|try again|a \
      better one|next|one more]
    [second|third|next] joke
    [and|what about] [a second|a third|one more|another] [joke|one]
    """,
)  # fmt: skip
