"""More ways to ask for counting, for what comes next, and for changes of unit."""

from typing import Final

from pocket.text.frames import frames

_SAY: Final = "tell me|say|do you know|i'd like to know|can you say|quick"
AFTER: Final = frames(
    """
    {a}, and [then|after that|the next one|now]
    {a} and then
    after {a}[ there |, there |, |] [is|comes|follows|we say]
    @say [what|which number] [comes|is|goes] after {a}
    when i [count|am counting] and [say|reach|get to|stop at] {a}, what do i say next
    i [counted|got|stopped|came] [up |]to {a}. [what's next|next|go on|what now|and now]
    the [successor|follower|neighbour above] of {a}
    what is the successor of {a}
    [we|i] just [had|said|passed] {a}, [so next is|what is next|what follows]
    if this is number {a}, [what is the next one|which is the next|what number comes next]
    page {a}, the next page is number
    {a} plus one more
    what do you get if you add one to {a}
    [which|what] number is [right behind|just above|one above|one up from|one past] {a}
    one [up from|above|past|higher than|bigger than] {a} [is|is what|would be]
    today i am {a}, [how old will i be next year|and next year]
    [count on|go on|continue] [by one |one |]from {a}
    {a} is followed by
    {a} comes just before which number
    say the number [that comes |]after {a}
    """,
    say=_SAY,
)  # fmt: skip
BEFORE: Final = frames(
    """
    [just|right|directly] before {a}[ there |, |] [is|comes|we say]
    @say [what|which number] [comes|is|goes] before {a}
    the [predecessor|neighbour below] of {a}
    what is the predecessor of {a}
    [which|what] number is [right in front of|just below|one below|one down from|one short of] {a}
    one [down from|below|short of|lower than|smaller than] {a} [is|is what|would be]
    {a} take away one more
    what do you get if you take one from {a}
    i am {a}, how old was i last year
    page {a}, the page before is number
    {a} comes just after which number
    which number leads up to {a}
    what did i count before i came to {a}
    the one before {a}
    go one back from {a}
    say the number [that comes |]before {a}
    """,
    say=_SAY,
)  # fmt: skip
CONTINUE: Final = frames(
    """
    {l} and then
    {l}, what number [comes|is|goes|follows] now
    {l} [and so on|etc], [next one|what comes next]
    [finish|complete|continue|extend] the [pattern|series|sequence|row]: {l}
    the [pattern|series|sequence|row] [is|goes] {l}. [what comes next|the next one|next]
    [i counted|we have|here is] {l}. [what's next|how does it go on|what follows|now you]
    [fill in|add|guess|find|give] the next [one|number]: {l}
    {l}, your turn
    {l}, __
    {l}, ?
    what [number |]should [come|follow|stand] after {l}
    one more of these: {l}
    which number continues {l}
    how does {l} [go on|continue]
    """,
)  # fmt: skip
_PLEASE: Final = "can you|could you|would you|please|i want you to|i'd like you to|try to|let's|now"
COUNT: Final = frames(
    """
    @please count [from |]{a} [to|up to|until|till|through] {b}
    @please [go|step|run|walk] from {a} [up |]to {b}
    @please [say|write|list|type|recite] [every number|all numbers|each number|the numbers] from \
      {a} [to|through|until] {b}
    [from|starting at|starting with|beginning at] {a}[,|] [up |all the way |]to {b}[ please|]
    [starting|beginning] at {a}, [go|count|continue|keep counting] [until|till|up to] {b}
    count, [start|starting|beginning] [at|with|from] {a}, [stop|stopping|ending|end] at {b}
    count for me: {a} to {b}
    count {a} - {b}
    count {a}..{b}
    {a} to {b}, [count|one by one|every number|say them all]
    {a} through {b}[ please|]
    {a} up to {b}[ please|]
    {a} till {b}, count
    [first|start|begin] {a}, [last|stop|finish] {b}, count
    first number {a}, last number {b}, [count|list them all|give me all]
    [stop|end|finish] at {b}, start at {a}[, count|]
    until {b}, from {a}, count
    up to {b} from {a}[ please|]
    up to {b}, starting at {a}
    to {b} from {a}, [count|one by one]
    [which|what] numbers [lie|are|come|go|do you pass|do i say] from {a} to {b}
    [what|which] are the numbers from {a} to {b}
    i am at {a}, [count on|count up|go on|continue|take me] to {b}
    i am learning to count. [show me|how do i go from] {a} to {b}
    my [son|daughter|kid] wants to hear the numbers {a} to {b}
    [every|each] [whole |]number from {a} to {b}
    all [the |][integers|numbers|whole numbers] from {a} [to|through|until] {b}
    range {a} to {b}
    [loop|iterate] from {a} to {b}
    [show|print] the range {a} to {b}
    one by one from {a} to {b}
    [give me|i need|i want|show me] {a} to {b}
    [give me|i need|i want] the numbers, {a} first, {b} last
    [keep|go on] counting from {a} until you [reach|hit|get to] {b}
    how does one [count|get] from {a} to {b}
    """,
    please=_PLEASE,
)  # fmt: skip
COUNT_TO: Final = frames(
    """
    @please count [till|to|up to|until|as far as|all the way to] {b}
    [how|show me how] [does one|do people|do i|would you] count [up |]to {b}
    [count|go] until you [reach|get to|hit|are at] {b}
    i [want|would like|need|love] to hear you count to {b}
    i [bet|doubt|don't believe] you can[not|'t|] count to {b}
    my [kid|son|daughter] is learning to count to {b}, [help her|show him|can you do it]
    to {b}, count
    up to {b}[,|] [count|please|one by one]
    {b} is where you stop, [count|start from one|begin at 1]
    start at [one|1] and [stop|end|finish] at {b}
    begin at [one|1] and [go|count] [on |up |]to {b}
    from [one|1] to {b}[ please|]
    [one|1] to {b}
    [one|1] through {b}
    [one|1] up to {b}
    [all |][the |]numbers [until|to|up to|till] {b}
    [show|say|list|write|type] [the |]numbers one to {b}
    [what are|which are|say|write] the first {b} numbers
    hide and seek: count to {b}
    [we play hide and seek|ready or not], count to {b}
    [are you able to|do you think you can|is it possible for you to] count to {b}
    count, but [only |just |]to {b}
    count {b}
    count up, {b} is the last
    [demonstrate|prove] that you can count to {b}
    """,
    please=_PLEASE,
)  # fmt: skip
COUNT_DOWN: Final = frames(
    """
    @please count [down|backwards|back|in reverse] from {b} to {a}
    @please go [down|back|backwards] from {b} to {a}
    backwards[,|] [count |]from {b} to {a}
    backwards from {b} to {a}
    backward counting, {b} to {a}
    [countdown|count down|a countdown]: {b} to {a}
    [a |]countdown from {b}[ down|] to {a}
    [do|start|give me|run|i need|i want] a countdown from {b} to {a}
    [the rocket starts|rocket launch|ready for launch], count [down |]from {b} [down |]to {a}
    {b} down to {a}
    {b} [back|backwards|down] to {a}
    {b} to {a}, [backwards|counting down|downwards|going down]
    in reverse[,|:] [from |]{b} to {a}
    reverse count from {b} to {a}
    count in reverse[,|] from {b} to {a}
    [starting|beginning] at {b}, [go down|count down|count backwards] [to|until] {a}
    start at {b} and [stop|end] at {a}, [going down|backwards|counting down]
    from {b}, [backwards|down|downwards][,|] [to|until|till] {a}
    from {b} to {a}, backwards
    to {a} from {b}, backwards
    down [we go |]from {b} to {a}
    [all |][the |]numbers from {b} [down |back |]to {a}, [descending|falling|backwards|in reverse]
    count from {b} to {a}
    count {b} to {a}
    count from {b} down until you [reach|get to] {a}
    """,
    please=_PLEASE,
)  # fmt: skip
COUNT_FROM: Final = frames(
    """
    @please count [down|backwards|back|in reverse] from {b}
    [count|go] [backwards|down|back], [start|starting|beginning] [at|with|from] {b}
    [a |]countdown from {b}
    [countdown|count down], {b}
    [start|begin] [at|with] {b} and count [down|backwards|back]
    [backwards|down] from {b}[ please|]
    {b} and [down|backwards], count
    [how do i|how does one|show me how to] count [down|backwards] from {b}
    [do|give me|run|i need|i want] a countdown from {b}
    [the rocket starts|rocket launch], count down from {b}
    """,
    please=_PLEASE,
)  # fmt: skip
COUNT_BY: Final = frames(
    """
    @please count [from {a} |]to {b} [by|in] {s}s
    @please count [by|in] {s}s [from {a} |][up |]to {b}
    [by|in] {s}s[,|] [count |][from {a} |]to {b}
    [by|in] {s}s up to {b}
    {s} by {s}[,|] [from {a} |]to {b}
    {s} at a time[,|] [count |][from {a} |]to {b}
    [from {a} |]to {b}, {s} at a time
    [from {a} |]to {b}[,|] [by|in] {s}s
    [jump|hop|skip|leap|go|step] [by|in] {s}s [from {a} |]to {b}
    [jump|hop|skip|leap|go|step] {s} [each time|every time][,|] [from {a} |]to {b}
    [count|go] [from {a} |]to {b}, [adding|plus|always adding|each time adding] {s}
    [add|plus] {s} [each time|every time|again and again][,|] [from {a} |]to {b}
    [from {a} |]up to {b} in jumps of {s}
    [steps|jumps|hops|leaps] of {s}[,|] [from {a} |]to {b}
    [step|stride|step size] {s}, [from {a} |]to {b}
    range [from {a} |]to {b} step {s}
    the {s} times table up to {b}
    [multiples|the multiples] of {s} [up |]to {b}
    count [only |]every [{o}] number [from {a} |]to {b}
    count [by|in] {s}s, [stop at|until|till|ending at] {b}
    count [by|in] steps of {s} [from {a} |][up |]to {b}
    starting at {a}, count by {s}s [up |]to {b}
    begin at {a} and count [by|in] {s}s [until|up to|to] {b}
    {b} in {s}s, count
    """,
    please=_PLEASE,
)  # fmt: skip
_NEED: Final = "i need|i want|give me|show me|tell me|i'd like|let me have|i am after"
CONVERT: Final = frames(
    """
    {n} {u} - {v}
    {n} {u} -> {v}
    {n} {u} => {v}
    {n} {u} {v}
    {n} {u} = {v}
    {n} {u} is what in {v}
    {n} {u} [is|makes|gives|equals|are|comes to] [what|how much] in {v}
    {n} {u} [expressed|written|given|measured|shown|said] [in|as] {v}
    {n} {u} converted [to|into] {v}
    {n} {u}, [make|turn|change] [it|that|this] [to|into] {v}
    {n} {u}, @need [it|that|this] in {v}
    {n} {u} [corresponds|amounts|adds up] to how many {v}
    {v} for {n} {u}
    {v} from {n} {u}
    {v} please: {n} {u}
    {v}? {n} {u}
    how many {v} make [up |]{n} {u}
    how many {v} [are|is] in {n} {u}
    how many {v} do {n} {u} [make|have|contain|give|come to]
    how many {v} for {n} {u}
    how many {v} = {n} {u}
    how much is {n} {u} when [measured|written|given] in {v}
    how much would {n} {u} be in {v}
    [can|could|would|will] you [express|give|put|show|say] {n} {u} in {v}
    @need the {v} [in|for|of] {n} {u}
    @need to [know|convert|change] {n} {u} [in|to|into] {v}
    [in|as] {v} {n} {u} [is|are|makes|would be] [what|how much]
    [in|as] {v}, {n} {u} [is|are|makes|would be]
    in {v} please, {n} {u}
    convert to {v}: {n} {u}
    convert {n} {u} {v}
    [conversion|unit conversion|convert]: {n} {u} to {v}
    from {u} to {v}: {n}
    [a|the|my] [trip|film|job|trick|thing] of {n} {u}, how many {v} is that
    it [takes|weighs|measures|is|lasts] {n} {u}. [in|how many|what is that in] {v}
    [what do|what does] {n} {u} [make|give|come to] in {v}
    what's {n} {u} in {v}
    is {n} {u} many {v}, [how many|and how many]
    [someone|the recipe|my teacher|the manual] says {n} {u}, [but i use|i only know|i need] {v}
    i [only know|think in|measure in|work with] {v}, [what is|how much is] {n} {u}
    [do you know|any idea|i wonder] how many {v} [there are in|are in|fit in|make] {n} {u}
    [the number of|count the|count of] {v} in {n} {u}
    {n} {u} contain how many {v}
    {n} {u} to {v}, [how many|what's that|quick]
    {n} {u} into {v}[, quickly| quick|, go|]
    {n}{u} in {v}
    {n}{u} [=|as|is how many] {v}
    """,
    need=_NEED,
)  # fmt: skip
