"""More ways to ask for sorting and for rhymes, with the items first or last. As data; see
`phrasing`.
"""

from typing import Final

_DO: Final = "[sort|order|rank|arrange]"
_DOING: Final = (
    "[ordering|ranking|arranging|an order|some order|to be in order|to be ordered|to be ranked"
    "|to be arranged|putting in order|putting into a row|to go in order|a good sort"
    "|to stand in order|to be put in order|some tidying]"
)
_THESE: Final = (
    "[these|those|they|all of these|all these|these ones|the following|my numbers|our scores"
    "|the figures|these values|those three|these few]"
)
SORT_UP: Final = (
    f"{_THESE} [need|will need|needed|still need|want|all need|must get|call for|ask for] {_DOING}"
    "[:|,| -|...|;|] {l}",
    f"{{l}}[:|,| -|...|.|;] {_THESE} [need|want|will need|still need|ask for] {_DOING}",
    f"{{l}} [need|want|need some|are in need of] {_DOING}",
    f"{_DO}[:| -|,|...|!|] {{l}}",
    f"{_DO} {{l}}",
    f"{_DO} {{l}}[ and nothing else| at once| numerically| properly| correctly| in your head|]",
    f"[numbers|values|scores|ages|prices|years|points|marks|sizes][:| -|] {{l}}[,|.|;|...] {_DO} "
    "[them|it|please|these|them all]",
    f"{{l}}[:|,| -|...|.|;] [can you|could you|would you|will you|please|now|and now|go and] {_DO} "
    "[them|these|those|it|that]",
    "{l}[:|,| -|...] [which order|in which order|what order|the right order|the correct order]"
    "[, please| is that| do they have|]",
    "{l}... [in order|sorted|ordered], [please|can you|would you|pls|no]",
    "[jumbled|unsorted|mixed up|shuffled|messy|wild][ numbers| list| row|][:|,| -] {l}"
    "[. fix it|. Sort them|. Put them right|. Order them|]",
    "[small to big|little to large|low to high|tiny to huge|least first|up|upwards][:|,|...| -]"
    " {l}",
    "{l}[:|,| -|...] [small to big|little to large|low to high|smallest in front|upwards|rising]",
    f"[help me|i have to|i must|we need to|let's|please] {_DO} [these|this|those|them|]"
    "[:|,| -] {l}",
    "[sorting|ordering|ranking|arranging][ these| those| numbers|][:|,|...|] {l}",
)
SORT_DOWN: Final = (
    f"{_THESE} [need|want|must get|should have] [to go down|a falling order|the biggest in front"
    "|ordering from the top|ranking from the top|the largest one first|to fall][:|,| -|...] {l}",
    "{l}[:|,| -|...|.] [biggest in front|from the top|downwards|falling|big to small|high to low"
    "|large to little|the largest at the start][, please|, ok| please|]",
    f"{_DO} [down|downwards|falling|from the top|in reverse|backwards][:|,| -|] {{l}}",
    f"{{l}}[:|,|...|.] {_DO} [them|these|it] [downwards|falling|from the top|in reverse|high to"
    " low]",
    "[big to little|large to tiny|huge to tiny|highest in front|most first|down][:|,|...| -] {l}",
)
_BOTH: Final = "[,| /|;|...| &| +| -| |]"
_TAG: Final = (
    "[, or not|, huh|, eh|, or|, don't you think|, isn't that so|, am i right|, does it not"
    "|, is that right|, i think|, or am i wrong|, wouldn't you say|, surely|, i hope|, correct"
    "|, yes or no|, true or false|, yeah|]"
)
WHICH_RHYMES: Final = (
    "[which|which one|which word|what|which of these|which of them] rhymes with {x}[:|,| -|?] {l}",
    "[pick|choose|find|name|show me|take] the [rhyme|rhyming word|word that rhymes] [for|with|to]"
    " {x}[:|,| -|.| from| among| out of] {l}",
    "{l}[:|,|.| -|...] [which|which one|what|which of these|which word] rhymes with {x}",
    "{x}[:|,|.| -|...] [which|which one|what] rhymes with it[:|,] {l}",
    "does {l} rhyme with {x}",
    "what [is|makes|would be] [a|the] rhyme [for|with|to] {x}[:|,] {l}",
    "{x} rhymes with [one of these|one of them|which][:|,|?| -] {l}",
    "[among|of|out of|between] {l}[,|:] [which|which one|what] rhymes with {x}",
    "is the rhyme [for|with|on] {x} {l}",
    "[which|what] [sounds|ends] like {x}[:|,] {l}",
)
DO_RHYME: Final = (
    "{x} / {y}[:|,| -|...|.|] [do those two rhyme|would these two rhyme|do these match|do these two"
    " go together|is it a pair of rhymes|rhyme or no rhyme|a rhyme, yes or no|do they go together"
    "|would they rhyme|are these a rhyme|will the two rhyme]",
    "{x}[...|,| /|;| &| +] {y}[...|:|,| -|;] [they rhyme|it rhymes|these rhyme|those two rhyme"
    "|both rhyme|that's a rhyme|it is a rhyme|a rhyme|rhyming words|they match|they sound alike]"
    f"{_TAG}",
    "{x}[...|,| /|;] {y}[...|:|,| -|;] [it rhymes|these rhyme|they rhyme|a rhyme|those match]"
    "[, no|, right|, yes|]",
    "{x}... {y}... [rhyme|do they|do these rhyme|a match|rhyming|the same sound|rhymes or not"
    "|would you call it a rhyme|can i use that as a rhyme]",
    f"[i'd say|i say|i think|i guess|surely|obviously|clearly] {{x}} [rhymes with|and] {{y}}{_TAG}",
    "[a question on|about|regarding|as for|take|consider|compare] {x} [and|/|,] {y}[:|,|.| -] "
    "[do they rhyme|a rhyme|do those rhyme|is it a rhyme|rhyme or not|would they rhyme]",
    "[rhyme or not|rhyme, yes or no|do they rhyme|is it a rhyme|rhyming|a rhyme|rhyme check"
    f"|quick check|true or false|yes or no][:|,|?|...| -] {{x}}{_BOTH} {{y}}",
    "[the pair|both words|my two words|this pair|two words|my words]"
    "[:|,| -|] {x}[,| /| and|;] {y}[:|,|.|...| -] [rhyme|do they rhyme|rhyming|is it a rhyme]",
    "[would|does|will|might|should] {x} [make|be|form|give] a [good |proper |real |] rhyme [for"
    "|with|to] {y}",
    "[do|don't|would|can] [the lines|two lines|my lines|verses] [ending|that end] [in|on|with] "
    "{x} and {y} rhyme",
    "[if one line ends|my line ends|the first line ends] [in|on|with] {x} and the [next|other"
    "|second] [in|on|with] {y}, [do they rhyme|is that a rhyme|does it rhyme]",
    "{x} [sounds|ends] [like|just like|the same as] {y}[, right|, or not|, yes or no|, true|]",
    "[is it true|is it right|am i right|is it so] that {x} [rhymes with|and] {y}[ rhyme|]",
    "{y} [for|as] a rhyme [on|with|for] {x}[, ok|, does it work|, is it good|, fine|]",
)
