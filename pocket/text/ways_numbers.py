"""More ways to ask about numbers, units and the calendar. As data; see `phrasing`."""

from typing import Final

_MORE: Final = "[bigger|larger|greater|more|higher]"
_LESS: Final = "[smaller|less|lower]"
_ASKED: Final = (
    "[might|can|should|will] {a} be %s than {b}",
    "would [the number|the value|a score of] {a} be %s than {b}",
    "would you [agree|bet|guess|claim|think] [that |]{a} is %s than {b}",
    "[is it right|is it correct|is it so|is it a fact|can it be] that {a} is %s than {b}",
    "[true|correct|yes or no|true or not][:|,| -] {a} is %s than {b}",
    "{a}, is it %s than {b}",
    "{a}[,| -] would that be %s than {b}",
    "{a} is %s than {b}, [agreed|do you agree|or am i wrong|is that so|true|yes]",
    "if i compare {a} with {b}, is [it|{a}|the first one] %s",
    "[i say|i claim|he says|she says|they say|my friend says] {a} is %s than {b}[, is that right|]",
    "comparing {a} and {b}, is {a} %s",
    "[check|verify|test|see] [if|whether] {a} is %s than {b}",
    "[really|honestly], is {a} %s than {b}",
)
IS_MORE: Final = (
    *(way % _MORE for way in _ASKED),
    "[does|do] {a} [top|outrank|surpass|outdo|go beyond|win against|come above|go over] {b}",
    "[is|was] {a} [on top of|higher up than|past|in excess of] {b}",
    "{a} [surpasses|tops|beats|is above|goes beyond] {b}, [right|true|yes or no]",
    "does {a} [come|rank] [higher|above] {b}",
)
IS_LESS: Final = (
    *(way % _LESS for way in _ASKED),
    "[does|will] {a} [fall|stay|lie|come] [short of|below|under] {b}",
    "[is|was] {a} [beneath|short of|lower down than|no match for] {b}",
    "{a} is [below|under|short of] {b}, [right|true|yes or no]",
)
IS_SAME: Final = (
    "[do|would] {a} and {b} [match|amount to the same|have the same value]",
    "[is|would] {a} [exactly |just |]the same as {b}",
    "{a} and {b}[:|,| -] [same|the same|equal] or [not|different]",
    "is there a difference between {a} and {b}, or are they the same",
)
_LISTED: Final = (
    "[mark|circle|grab|underline|point to|spot] the %s [number|one|value][:|,| of| out of|] {l}",
    "[given|considering|looking at|in the list|of these:] {l}[,|] [which|what] "
    "[number|one|value] is [the |]%s",
    "between {l}[,|] [what is|tell me] the %s",
    "[from|of] {l}, [take|give me|name|show] the %s",
    "[tell me|say|work out|pick out] [which is|what is] the %s [one |]of {l}",
    "[what would be|what might be|so what is] the %s [of|among|in] {l}",
    "the %s [number|one|value] [among|in|out of|from] {l}[ please| is|]",
    "%s[ number| one|, please][:|?| -] {l}",
    "{l}[:|.|,| -] [name|say|give me] the %s",
    "[my numbers are|the numbers are|i got|we have|they gave me] {l}[.|,] "
    "[the %s|which is the %s|say the %s]",
)
_MOST: Final = "[biggest|largest|greatest|highest|bigger|larger|higher]"
_LEAST: Final = "[smallest|lowest|least|smaller|lower]"
WHICH_MOST: Final = (
    *(way.replace("%s", _MOST) for way in _LISTED),
    "who has more: [me|him|one] with {a} or [you|her|the other] with {b}",
)[:-1]
WHICH_LEAST: Final = tuple(way.replace("%s", _LEAST) for way in _LISTED)
_UP: Final = (
    "[from small to large|from low to high|smallest first|in ascending order|in rising order"
    "|from the smallest to the largest|from least to most|starting with the smallest"
    "|from the bottom up|with the smallest in front|small ones first|the low ones first]"
)
_DOWN: Final = (
    "[from large to small|from high to low|largest first|in descending order|in falling order"
    "|from the largest to the smallest|from most to least|starting with the largest"
    "|from the top down|with the largest in front|big ones first|the high ones first"
    "|starting with the biggest|in reversed order of size|from big to little]"
)
_DO: Final = "[sort|order|arrange|rank|organize|sort out]"
_THEM: Final = "[them|those|the following|all of these|the numbers below|this list]"
_SORTING: Final = (
    f"{_DO} {_THEM} %s[:| -|,|.] {{l}}",
    f"{_DO} %s[:| -|,|.] {{l}}",
    f"%s[ please|, please|, thanks|, if you can|][:| -] {_DO} {{l}}",
    "{l}[.|,|:|;| -] [please |now |][sort|arrange|rank|organize] [them|these|it|that] %s",
    "[the numbers are|here you go|take|we have|my scores are|the ages are|the prices are] {l}"
    f"[.|:|,|;] {_DO} [them|these] %s",
    "[how|what] [would|does|will] {l} [look|be|read] %s",
    "[list|write|show|print|give me|tell me|say|type|read out] {l} %s",
    "[i need|i want|i'd like] {l} [sorted|ordered|arranged|listed] %s",
    "[turn|make|bring] {l} into [an order|a list|a row] %s",
    "{l}, but %s",
    "[could|can|would] [you|someone] [list|write|place|put|show] {l} %s",
)
SORT_UP: Final = (
    *(way.replace("%s", _UP) for way in _SORTING),
    "[put|get|bring|set] [them|those|the following|this|all of these|the numbers] [in|into] "
    "[the right |proper |correct |rising |ascending |]order[:| -|,] {l}",
    "[my|the|these|here are the] numbers[ are|:] {l}. [sort|arrange|rank|organize] "
    "[them|these|it][ for me| please|]",
    "i have {l}. [sort|arrange|rank|organize] them[ now|]",
    "[what|how] [would|will] {l} [look like|be] [once|after being|if] [sorted|ordered|arranged]",
    "[rising|increasing|low to high|smallest first|least to most|small first][ please|][:|,] {l}",
    "[the following|those numbers|some numbers|they] [must be|have to be|should be] "
    "[sorted|ordered|put in order][:| -] {l}",
    "sort [list|numbers|array|values][:|=|] {l}",
    "[sorted|ordered][ list| version|] of {l}",
    "[in what order|in which order] [do|should|would] {l} [come|go|stand]",
    "{l} [are|is] [not in order|out of order|mixed up|a mess][, fix it|, fix that|. Sort them|"
    ". Put them right|]",
)
SORT_DOWN: Final = (
    *(way.replace("%s", _DOWN) for way in _SORTING),
    "[falling|decreasing|high to low|largest first|most to least|big first|biggest to smallest]"
    "[ please|, please|][:|,| -] {l}",
    "[sort|order|put] {l} [backwards|the other way round|in reverse|downwards|descending]",
    "[backwards|reversed|in reverse|downwards][ please|][:|,] {l}",
    "[decreasing|falling|descending] order[ please|][:|,| -| for| of] {l}",
)
AFTER: Final = (
    "[i am|i'm|we are|the count is|we stopped] [on|with|by] {a}[,|.] [next|what is next|go on]",
    "[if i count, |counting on, ][what|which number] [comes|is] after {a}",
    "{a}[,|] [and then|and next|what comes then|followed by]",
    "[the |]number [right |just |]after {a}",
    "{a} plus one",
    "[name|tell me|give me|say] the [next number|number] after {a}",
)
BEFORE: Final = (
    "[name|tell me|give me|say] the number [just |right |]before {a}",
    "[the |]number [right|just|directly] [before|in front of] {a}",
    "{a} minus one",
    "[what|which number] do [i|we] [count|say] [just |right |]before {a}",
    "[going back|counting back|backwards] from {a}, what is next",
)
CONTINUE: Final = (
    "{l}[,| and| -] [what follows|which is next|what number is next|the next one|what then]",
    "{l}[,| ...] [now you|your turn|please go on|please continue|and so on|carry on]",
    "[finish|extend|go on with|continue] [the row|the series|this|the pattern|counting]: {l}",
    "[what|which number] [follows|comes after|is next in] {l}",
    "[i count|we count|counting]: {l}[,|...] [and now|next|what now|then]",
)
COUNT: Final = (
    "[start|begin] [with|at|from|on] {a}[,| and] [end|stop|finish] [with|at|on] {b}",
    "[start|begin] counting [with|at|from] {a}[,| and] [go|continue|keep on|carry on] [up |]"
    "[to|until] {b}",
    "count[ for me|], [start|starting|begin] [at |with |]{a}, [end|ending|stop] [at |with |]{b}",
    "count [on|upwards|along|all the way] from {a} to {b}",
    "[give|show|write|print] [me |][all |][the |]numbers between {a} and {b}[, ends included"
    "|, inclusive| with both ends|, {a} and {b} too|]",
    "[everything|each number|all numbers|every number|the counting] from {a} "
    "[through|up to|until|to] {b}[, inclusive|]",
    "{a} [through|until|till|up to] {b}[, count| please|]",
    "{a} [to|until] {b}, [count|numbers please|all of them|one by one|list them]",
    "[enumerate|name|call out|read out|count out] [the numbers |][from |]{a} [to|through"
    "|until] {b}",
    "i [want|need|would like] [the |all |]numbers from {a} to {b}",
)
COUNT_TO: Final = (
    "[i bet you can't|can you even|show me you can|try and|do you manage to|please do] count "
    "[up |]to {b}",
    "[how far|up to where|how high] can you count? [go to|get to|make it to|show me|do] {b}",
    "count[ with me| for us| out loud|, please,] [up |]to {b}",
    "[do|make|run|show] a count [up |]to {b}",
    "[one|1] [up to|until|till|through] {b}[, count| please|]",
    "[start|begin] [at|with] [one|1] and [stop|end|finish] at {b}",
    "[say|recite|type|print] [all |][the |]numbers up to {b}",
    "[let me hear|let me see|i want|show] you count[ing|] [up |]to {b}",
    "[the numbers|numbers] from [1|one] to {b}",
)
COUNT_DOWN: Final = (
    "[down|backwards] from {b} to {a}[ please|]",
    "[a |do a |make a |start a ]countdown from {b} to {a}",
    "[reverse|backward] counting[,| from] {b} to {a}",
    "{b} [down to|back to|backwards to] {a}",
    "[give|show] me [a countdown|the countdown|a count] from {b} [down |back |]to {a}",
    "count {b} [to|down to|back to] {a}, [backwards|downwards|in reverse]",
)
COUNT_ZERO: Final = (
    "[a |do a |make a |start a |begin the ]countdown [from|at|starting at] {b}",
    "count [down|backwards|back] from {b}[ to 1| to one|]",
    "[from |]{b}[,|] count down[ please|]",
    "[can you |please |]count down[,| starting] [from|at] {b}",
)
COUNT_BY: Final = (
    "[go|jump|step|move] [in|by] {s}s [from {a} |]to {b}",
    "[add|keep adding] {s} [from {a} |]until {b}",
    "[counting|count up] in [jumps|leaps|steps] of {s}[,| from {a}] to {b}",
    "steps of {s} [from {a} |up ]to {b}",
    "[from {a} |]to {b} [by|in] {s}s[ please|]",
)
CONVERT: Final = (
    "[express|rewrite|restate|state] {n} {u} in {v}",
    "[turn|make|switch] {n} {u} to {v}",
    "{n} {u}[,| -] [how many {v} are that|how many {v} do i get|and in {v}|in {v} please]",
    "[what do|what does|what will] {n} {u} [make|give|come to|amount to] in {v}",
    "[tell me|do you know|can you say] how many {v} [there are in|are in|make up|are] {n} {u}",
    "how many {v} [do i get from|can i fit in|would i have with|add up to|will be in] {n} {u}",
    "[a thing|a road|a bag|a talk|a trip|this] of {n} {u}, [how many {v}|how much in {v}|in {v}]",
    "[it|this|that] [takes|is|has|lasts|weighs] {n} {u}[.|,] [how many {v} is that|in {v}"
    "|what's that in {v}]",
    "[the |]{v} of {n} {u}[ please|]",
    "{n} {u} [makes|gives|comes to|amounts to|would be] [how many|what number of] {v}",
    "[i ran|i walked|i drank|i slept|i waited|she carried] {n} {u}[,|.] how many {v} "
    "[was it|is that]",
    "change [of unit|unit]: {n} {u} [to|into|->] {v}",
    "{n} {u} -> {v}",
)
DAY_AFTER: Final = (
    "[name|say|give me|tell me] the {k} [that comes |that follows |]after {x}",
    "[what|which {k}] [comes|is] [once|when] {x} is over",
    "{x}[,|] [and then|then what|and next|what comes next]",
    "[what|which] {k} [would|will|does] [follow|come after|be after] {x}",
    "[my|the] [party|trip|test] is the {k} after {x}, which {k} is that",
)
DAY_BEFORE: Final = (
    "[name|say|give me|tell me] the {k} [that comes |]before {x}",
    "[what|which] {k} [would|will|does] [precede|come before|be before] {x}",
    "[what|which] {k} [ends|is over|is done] when {x} [starts|begins]",
    "[going back|one back] from {x}[,|] [what|which] {k} is [it|that]",
    "[my|the] [party|trip|test] is the {k} before {x}, which {k} is that",
)
TOMORROW: Final = (
    "[it is|we have|it's] {x}[.|,] [what comes tomorrow|so what is tomorrow|name tomorrow]",
    "[what|which day] [will tomorrow be|is tomorrow] when today is {x}",
    "if [it's|it is] {x}, tomorrow [is|will be][ what| which day|]",
)
NTH: Final = (
    "[do you know|which one is] the {o} {k}[ of the {w}|]",
    "the {o} {k} [in|of] [a|each|every] {w}[ is|]",
    "[which|what] {k} [comes|is] {o} [in|of] [the|a] {w}",
    "the {w}'s {o} {k}",
)
PLACE: Final = (
    "[which|what] [position|place|spot|rank] [is|has] {x}[ in the year| among the months|]",
    "[the |]month number of {x}",
    "the number [for|of] [the month |]{x}",
    "{x} as a [number|figure]",
    "[what|which] number [does|has] {x}[ have|] [among the months|as a month]",
    "{x} is the [month|month with] number",
    "[as|in] [a number|digits|numbers], [what|which month] is {x}",
    "[in a date|on a form], [what|which] number [is|do i write for] {x}",
)
WORK_WEEK: Final = (
    "[when|on what day|on which day|with which day] does the [work week|school week|office week"
    "|week] [begin|start]",
    "[the |][which is the |what is the |]first [workday|weekday|working day|day of a week"
    "|day of work|school day][ of the week|]",
    "[which|what] day [starts|begins|opens] [the|a] [week|work week|new week]",
)
LENGTH: Final = (
    "[how many|the number of] days [make up|fit in|belong to|does the calendar give] {x}",
    "{x}[:|,| -] how many days",
    "[count|tell me] the days [of|in] {x}",
    "does {x} have 30 or 31 days",
)
