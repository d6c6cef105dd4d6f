"""More ways to ask for comparisons and for numbers in order."""

from typing import Final

from pocket.text.frames import frames

_MORE: Final = "bigger|larger|greater|higher|more"
_LESS: Final = "smaller|lower|less|littler"
_THING: Final = "coins|apples|points|cats|marbles|books|euros|stickers|eggs|votes|goals|cookies"
_CHECK: Final = "am i right|is that so|is that right|correct|agree|no|or not|true|is this true|huh"
_TELL: Final = "can you tell me|i wonder|i'd like to know|do you happen to know|not sure|say"

IS_MORE: Final = frames(
    """
    [does|would] {a} count as @more than {b}
    i [say|claim|bet|think|guess] {a} is @more than {b}. @check
    my [brother|teacher|friend|boss] [says|thinks|claims] {a} is @more than {b}, @check
    @tell [if|whether] {a} is @more than {b}
    @tell [if|whether] {a} [exceeds|beats|is above|is over|tops] {b}
    {a} [exceeds|tops|outranks|beats] {b}, @check
    [true or false|yes or no|right or wrong|fact or fiction][:|,] {a} is @more than {b}
    [true or false|yes or no|right or wrong][:|,] {a} [>|exceeds|is above] {b}
    compared [to|with] {b}, is {a} @more
    [next to|against|versus] {b}, is {a} the @more [one|number]
    is {a} the @more [one|number], if the other is {b}
    if i have {a} and you have {b}, do i have more
    if i own {a} @things and you own {b}, [do|have] i [have more|got more|own more]
    i have {a} @things, my [sister|friend|dad] has {b}. [do i have more|have i got more|am i ahead]
    we scored {a} and they scored {b}. did we win
    our team has {a} points, theirs {b}, are we ahead
    {a} @things against {b} @things: is the first [pile|heap|number] @more
    are {a} @things more than {b} @things
    {a} is @more than {b} - [yes|true|right|correct]
    {a} more than {b}
    {a} bigger then {b}
    is {a} bigger then {b}
    so {a} > {b}, @check
    is {a}>{b}
    {b} < {a}, [is that true|yes or no|right]
    [can|could] we say {a} is @more than {b}
    [would|will] {a} [win|come out on top|be the @more] against {b}
    {a} vs {b}: is the first [one |]@more
    [surely|of course|i am sure] {a} is @more than {b}
    i think {a}'s @more than {b}, @check
    @more than {b}, is {a} that
    is it {a} that is @more than {b}
    does {a} come [later|further up|higher up] [than|on the number line than] {b}
    on a number line, is {a} to the right of {b}
    [check|verify|please check][ this|][:| that] {a} is @more than {b}
    if i pay {a} and it costs {b}, did i pay too much
    [is|was] my {a} @more than your {b}
    {a} years or {b} years, is the first @more
    somebody with {a} @things, has he more than somebody with {b}
    """,
    more=_MORE, things=_THING, check=_CHECK, tell=_TELL,
)  # fmt: skip
IS_LESS: Final = frames(
    """
    [does|would] {a} count as @less than {b}
    i [say|claim|bet|think|guess] {a} is @less than {b}. @check
    my [brother|teacher|friend|boss] [says|thinks|claims] {a} is @less than {b}, @check
    @tell [if|whether] {a} is @less than {b}
    @tell [if|whether] {a} is [below|under|short of] {b}
    [true or false|yes or no|right or wrong|fact or fiction][:|,] {a} is @less than {b}
    [true or false|yes or no|right or wrong][:|,] {a} [<|is below|is under] {b}
    compared [to|with] {b}, is {a} @less
    [next to|against|versus] {b}, is {a} the @less [one|number]
    if i have {a} and you have {b}, do i have [less|fewer]
    i have {a} @things, my [sister|friend|dad] has {b}. do i have [less|fewer]
    we scored {a} and they scored {b}. did we lose
    are {a} @things [fewer|less] than {b} @things
    {a} is @less than {b} - [yes|true|right|correct]
    {a} less than {b}
    {a} smaller then {b}
    is {a}<{b}
    so {a} < {b}, @check
    {b} > {a}, [is that true|yes or no|right]
    does {a} [fall short of|stay below|stay under|come before] {b}
    on a number line, is {a} to the left of {b}
    @less than {b}, is {a} that
    [check|verify|please check][ this|][:| that] {a} is @less than {b}
    will {a} [lose|be the @less] against {b}
    [surely|of course|i am sure] {a} is @less than {b}
    can we say {a} is @less than {b}
    """,
    less=_LESS, things=_THING, check=_CHECK, tell=_TELL,
)  # fmt: skip
IS_SAME: Final = frames(
    """
    [do|would] {a} and {b} [have the same value|count the same|match]
    [is there|do you see] [a|any] difference between {a} and {b}
    {a} equals {b}, @check
    {a} and {b}: [equal|same|the same] or not
    is {a} just {b}
    i have {a} @things and you have {b}, [do we have the same|have we got equally many|are we even]
    true or false: {a} = {b}
    """,
    check=_CHECK, things=_THING,
)  # fmt: skip
_MOST: Final = "biggest|largest|greatest|highest|bigger|larger|greater|higher|maximum|max"
_LEAST: Final = "smallest|lowest|least|smaller|lower|littlest|minimum|min"
_PICK: Final = "pick|choose|find|take|pick out|select|show|return|spot|point out|mark|circle|get"
_ONE: Final = "one|number|value|figure|of them|of these|of the lot"
_THESE: Final = (
    "these|these numbers|the following|this list|this set|my numbers|that list|the bunch"
)


def _which(word: str, extremes: str) -> str:
    return f"""
    @pick me the {word} @one from {{l}}
    [from|out of|among|of|between] {{l}}[,|] @pick the {word}[ @one|]
    the {word} @one [in|of|from] @these: {{l}}
    what's the {word} [in|of|out of|from] @these: {{l}}
    which of @these is [the |]{word}: {{l}}
    {{l}} - @pick the {word}
    {{l}}, @pick the {word}[ @one|]
    {{l}}. the {word}
    {{l}}: {word}
    {word} number in {{l}}
    i [am looking for|search|would like|need to know] the {word} @one [of|in|among] {{l}}
    my numbers are {{l}}. [which is|what is|show|tell me] the {word}
    @these: {{l}}. [which|what] is the {word} @one
    [given|take|look at] {{l}}. [which|what] [one|number] is [the |]{word}
    [can|could] you @pick the {word} @one [in|of|from] {{l}}
    if i write {{l}}, [which|what] is the {word}
    i wrote down {{l}}. the {word} @one is
    [tell me|say|i wonder] [which|what] [number|one|of them] is [the |]{word}, {{l}}
    [tell me|say] which is {word}: {{l}}
    {{l}} - which is {word}
    {{l}} which is the {word}
    who is the {word}: {{l}}
    [you have|we have|there are|here come] {{l}}, [which|what] is the {word}
    [the answer should be|i only need] the {word} @one of {{l}}
    {extremes}
    """


WHICH_MOST: Final = frames(
    _which("@most", """
    [which|what|who] [wins|comes out on top|is ahead|leads], {l}
    {l}: [who|which] [wins|is on top|has the most|leads]
    max({l})
    maximum: {l}
    the top [number|score|value] [of|in|among] {l}
    what's the most: {l}
    which one is the most, {l}
    which price is the highest, {l}
    my friends are {l} years old. how old is the oldest
    ages {l}: who is the oldest
    the [scores|points] are {l}. the best score
    [what|which] is the best score: {l}
    i can have {l} @things. which is the most
    [what|which] is [worth|counts] more, {l}
    would you rather have {l} @things, i want the most
    """),
    most=_MOST, pick=_PICK, one=_ONE, these=_THESE, things=_THING,
)  # fmt: skip
WHICH_LEAST: Final = frames(
    _which("@least", """
    [which|what|who] [loses|comes last|is behind|is at the bottom], {l}
    {l}: [who|which] [is at the bottom|has the least|has the fewest]
    min({l})
    minimum: {l}
    the bottom [number|score|value] [of|in|among] {l}
    what's the least: {l}
    which one is the least, {l}
    which price is the [lowest|cheapest], {l}
    the shops ask {l} euros. the cheapest is
    my friends are {l} years old. how old is the youngest
    ages {l}: who is the youngest
    [what|which] is [worth|counts] less, {l}
    """),
    least=_LEAST, pick=_PICK, one=_ONE, these=_THESE, things=_THING,
)  # fmt: skip
STORY_MOST: Final = frames(
    """
    {p} has {a} {i} and {q} has {b}. [who|which of them] has more
    {p} has {a} {i}, {q} has {b}. [who|which one] [has more|owns more|is richer|has the most]
    if {p} [has|owns|collects] {a} {i} and {q} [has |owns |]{b}, who [has|owns] more
    {p}: {a} {i}, {q}: {b} {i}. who [has more|wins|leads]
    {p} found {a} {i}, but {q} found {b}. who found more
    {p} ate {a} {i}, {q} ate {b}. who ate more
    who has more {i}, {p} with {a} or {q} with {b}
    who has the most {i}: {p} ({a}) or {q} ({b})
    what is more, {a} {i} or {b} {i}
    {a} {i} or {b} {i}, [what|which] is [more|the most]
    [which|what] [box|bag|pile|basket] has more: one with {a} {i} or one with {b}
    i have {a} {i}. {p} has {b}. who has more
    one [box|bag|shelf] holds {a} {i}, the other {b}. which [holds|has] more
    {p} is {a} and {q} is {b}. who is older
    {p} scored {a}, {q} scored {b}. who won
    [my left pocket|the red bag|box one] has {a} {i}, [my right pocket|the blue bag|box two] has \
      {b}. where are more
    {p} [gave|sold|bought|baked|read|picked] {a} {i} and {q} {b}, who did more
    there are {a} {i} here and {b} there. where are there more
    {p} counted {a} {i}. {q} counted {b}. [the bigger number is|what is the larger number]
    """,
)  # fmt: skip
STORY_LEAST: Final = frames(
    """
    {p} has {a} {i} and {q} has {b}. [who|which of them] has [less|fewer]
    {p} has {a} {i}, {q} has {b}. who has [the least|the fewest|less|fewer]
    if {p} [has|owns] {a} {i} and {q} [has |owns |]{b}, who has [fewer|less]
    who has fewer {i}, {p} with {a} or {q} with {b}
    what is less, {a} {i} or {b} {i}
    {a} {i} or {b} {i}, [what|which] is [less|fewer]
    i have {a} {i}. {p} has {b}. who has [less|fewer]
    one [box|bag|shelf] holds {a} {i}, the other {b}. which [holds|has] [less|fewer]
    {p} is {a} and {q} is {b}. who is younger
    {p} scored {a}, {q} scored {b}. who lost
    {p} [found|ate|sold|bought] {a} {i}, {q} {b}. who [found|ate|sold|bought] [less|fewer]
    there are {a} {i} here and {b} there. where are [less|fewer]
    """,
)  # fmt: skip
_SORT: Final = (
    "sort|order|arrange|rank|put in order|sequence|organize|organise|line up|reorder|tidy up"
    "|sort out"
)
_UP: Final = (
    "ascending|upwards|going up|rising|growing|increasing|asc|smallest first|lowest first"
    "|starting with the smallest|beginning with the lowest|small to big|low to high|least to most"
    "|little to large|smallest to biggest|lowest to highest|from the bottom up|from low up"
    "|from the smallest up|so that they go up|so they rise|the small ones first|min to max"
    "|ending with the biggest|biggest last|largest at the end|in increasing order"
    "|in rising order|in growing order|smallest on the left|from smaller to larger"
)
_DOWN: Final = (
    "descending|downwards|going down|falling|shrinking|decreasing|desc|biggest first|highest first"
    "|largest first|starting with the biggest|beginning with the highest|big to small|high to low"
    "|most to least|large to little|biggest to smallest|highest to lowest|from the top down"
    "|from high down|from the biggest down|so that they go down|so they fall|the big ones first"
    "|max to min|ending with the smallest|smallest last|lowest at the end|in decreasing order"
    "|in falling order|in reverse order|biggest on the left|from larger to smaller|reversed"
    "|backwards by size|top to bottom by size"
)
_NUMS: Final = (
    "these|these numbers|my numbers|the following|those|this list|the list|numbers|the numbers"
)


def _ordered(way: str) -> str:
    return f"""
    @sort {{l}} {way}
    @sort {{l}}, {way}
    @sort @nums: {{l}}, {way}
    @sort @nums {way}: {{l}}
    @sort {way}, {{l}}
    {way}, [please|pls|now] @sort {{l}}
    {way} i [want|need|would like|prefer] {{l}}
    {{l}}. @sort them {way}
    {{l}} - {way}[ please|]
    {{l}}, [now|but|and|all] {way}
    {{l}}; [please |]{way}
    i have {{l}}. [can you|could you|please|now] @sort [them|it|these] {way}
    [can|could|would|will] you [please |]@sort {{l}} for me, {way}
    [my|the] [scores|grades|numbers|ages|prices|results] are {{l}}, @sort them {way}
    [i need|i want|show me|give me|write|list|say|print|read] {{l}} {way}
    [how would|how do|how does] {{l}} [look|read|go] {way}
    [what|which] order [is|do we get with] {{l}} {way}
    [get|bring|put|place] {{l}} {way}
    [here|take] {{l}}, [i want them|make it|they should be|it must be] {way}
    [rewrite|write out|reorder|retype] {{l}} {way}
    [could|may|can] i [have|get|see] {{l}} {way}
    {{l}} should [be|go] {way}
    [help me|i must|i have to|i am trying to] @sort {{l}} {way}
    the list {{l}}, {way}
    [numbers|list|data|input]: {{l}}. [order|direction|way]: {way}
    """


SORT_UP: Final = frames(
    _ordered("@up") + """
    @sort {l}
    @sort @nums {l}
    @sort @nums: {l}
    {l} @sort
    {l} - @sort [them|it|please|pls]
    {l}. [please |now |can you |]@sort [them|these|it]
    [my|the] [scores|grades|numbers|ages|prices] are {l}, [please |]@sort them
    these are mixed up: {l}. [fix the order|what is the right order|put them right]
    {l} are [mixed up|out of order|in a mess|all over the place], [fix that|help|put them \
      right|sort it]
    what is the [right|correct|proper|natural] order of {l}
    in [order|the right order|the correct order] please: {l}
    [how do i|help me|i need to|i have to] @sort {l}
    sorted, [what is|what are|how is] {l}
    sort({l})
    [from|out of] {l} make [a sorted list|an ordered list|a list in order]
    make a [sorted|ordered] list of {l}
    the sorted [list|version|form] of {l}
    [who|what|which] comes first, second, third: {l}
    [line|queue] them up by size: {l}
    by size[ please|]: {l}
    [could|would|can] you [get|bring|put] {l} in [order|line|the right order]
    start with the smallest: {l}
    [first|begin with] the smallest, then the next: {l}
    from smallest: {l}
    smallest to [biggest|largest|greatest] {l}
    order from [the |]least to [the |]most, {l}
    {l} in order of size
    {l} in numerical order
    numerical order: {l}
    """,
    up=_UP, sort=_SORT, nums=_NUMS,
)  # fmt: skip
SORT_DOWN: Final = frames(
    _ordered("@down") + """
    start with the biggest: {l}
    [first|begin with] the biggest, then the next: {l}
    from the biggest: {l}
    biggest to [smallest|least|tiniest] {l}
    order from [the |]most to [the |]least, {l}
    the [other|opposite] way round, biggest first: {l}
    reverse sort {l}
    sort in reverse: {l}
    sort {l} in reverse
    the highest on top: {l}
    make a ranking of {l}, the best has the most
    count down through {l}
    sorted({l}, reverse=True)
    @sort {l} but [reversed|the big ones first|from high to low|descending]
    @sort @nums, and the biggest comes first: {l}
    {l}, sorted, with the biggest in front
    """,
    down=_DOWN, sort=_SORT, nums=_NUMS,
)  # fmt: skip
