"""More ways to ask for days and months."""

from typing import Final

from pocket.text.frames import frames

_TELL: Final = "tell me|say|do you know|can you say|i wonder|i forgot|remind me|guess|quick"
AFTER: Final = frames(
    """
    @tell [what|which {k}] [comes|is|follows] [right |directly |]after {x}
    {x}, [and then|then|what's next|next|what follows|which {k} is next]
    {x} is over[,|.] [what comes|which {k} is it|what {k} starts|what now]
    [when|once] {x} [ends|is over|is gone|is done], [what|which {k}] [begins|starts|comes|is it]
    [i was born|my party is|the meeting is|we meet] the {k} after {x}[,|.] [which|when is \
      that|what {k}]
    [one {k}|a {k}] [after|past|later than] {x}[ is|]
    [what|which] {k} [has|does] {x} [before it|lead to|turn into|come right before]
    [if this is|in] {x}, what is the next {k}
    next after {x}
    """,
    tell=_TELL,
)  # fmt: skip
BEFORE: Final = frames(
    """
    @tell [what|which {k}] [comes|is|goes] [right |directly |]before {x}
    {x} [just began|has begun|starts][,|.] [what|which {k}] [ended|was it before|is over]
    [before|ahead of] {x}[,|] [what|which {k}] [was it|came|is there|do we have]
    the {k} [preceding|right ahead of|that comes before|that leads to] {x}
    [one {k}|a {k}] [before|earlier than|ahead of] {x}[ is|]
    [what|which] {k} leads [up |]to {x}
    [the meeting is|we meet|it happened] the {k} before {x}[,|.] [which|when is that|what {k}]
    [what|which] {k} did we have before {x}
    """,
    tell=_TELL,
)  # fmt: skip
LENGTH: Final = frames(
    """
    @tell how [long {x} is|many days {x} has|many days are in {x}]
    {x}[?|,|:| -] how many days
    [is|does] {x} [long or short|a long month], how many days
    [how many|what number of] days [make up|fill|belong to|do i get in|must i wait in] {x}
    i [rent|book|pay|work] for all of {x}[,|.] how many days [is that|are that]
    on which date does {x} end, how many days
    [the last|which is the last] date [in|of] {x}, how many days has it
    """,
    tell=_TELL,
)  # fmt: skip
ALL: Final = frames(
    """
    @tell [all |][the |]{a}
    [from first to last|one by one|in their order], [the |all ]{a}
    [my kid|my son|i] [must|needs to|want to|has to] learn [the |]{a}[, which are they|, list them|]
    {a}[,|:] [please|list them|all of them|in order|go|one by one]
    [recite|type out|write down|go through|enumerate|run through] [all |][the |]{a}
    [i need|i want|let me see|may i have|let's hear] [all |][the |]{a}
    """,
    tell=_TELL,
)  # fmt: skip
