"""More ways to ask for colours, opposites, rhymes, lists, jokes and poems. As data."""

from typing import Final

MIXING: Final = (
    "[pour|stir|put|throw] {a} and {b} [together|in one pot|into a bucket][, what comes out"
    "|, which colo[u|]r|, what is that|]",
    "[when|if] {a} [meets|touches|is mixed with|goes into] {b}[, what happens|, what do i see"
    "|, which colo[u|]r is it|]",
    "[the |a ]mix[ture|] of {a} [and|with] {b}[ is| gives|]",
    "[which|what] [shade|tint|hue|colo[u|]r] [do|will|would] {a} [and|with] {b} [give|produce"
    "|make]",
    "{a} with {b} [mixed in|on top|added][, what is it| is what| gives|]",
    "[i have|we have] {a} and {b} paint, what [can|do] [i|we] [get|make] from [it|both|them]",
)
COLOUR: Final = (
    "[what|which] [tint|hue|tone] [is|has|does] {t}[ have|]",
    "[what|which] [shade|paint] [does|has|would|will] {t} [have|need]",
    "{t}'s [usual |]colo[u|]r",
    "[name|guess|give me|describe] the colo[u|]r of {t}",
    "[if|when] i [paint|draw] {t}, [which|what] colo[u|]r do i [need|take|use]",
    "[which|what] [pencil|paint|crayon] [do i take|do i need] for {t}",
    "{t} [looks|appears|comes in|shows] [what|which] colo[u|]r",
    "[think of|look at|picture|imagine] {t}[.|,|:] [what|which] colo[u|]r",
    "[as for|about|regarding] {t}[,|:] [what|which] colo[u|]r is it",
    "[in|of] [what|which] colo[u|]r [do we see|are|would you paint] {t}",
    "[usually|normally|mostly], [what|which] colo[u|]r is {t}",
    "how would you colo[u|]r {t}",
)
EITHER: Final = (
    "[do|would] you [say|think] {t} is {x} or {y}",
    "{x} or {y}[:|,| -] {t}",
    "{t}[:|,| -] {x} or {y}",
    "[is it|is the colo[u|]r] {x} or {y}, [i mean |]{t}",
)
OPPOSITE: Final = (
    "[when|if] i say {x}, [you say|you answer|what do you say|what would you say]",
    "i say {x}[,| and] you [reply|answer|give] [with |]the opposite",
    "[opposite|opposites|contrary|antonym|reverse][:| -| =] {x}",
    "[what|which word] is [the contrary|the very opposite|the reverse|the other end] of {x}",
    "{p} is to {q} [like|what] {x} is to [what|...|]",
    "{p} goes with {q}[,| and] {x} goes with [what|...|]",
    "[as|like] {p} is to {q}, so is {x} to [what|...|]",
    "{p} : {q} = {x} : ?",
    "{p} and {q}[,|;] {x} and [what|...]",
    "[the world is|he is|she is|it was|things are] [never|not] {x} [but|, it is] [what|...]",
    "[turn|flip|reverse|invert] the word {x}[ around| into its opposite|]",
    "[find|pick|choose|suggest|name] [a word|the word|something] [opposite to|opposed to"
    "|that is the contrary of] {x}",
    "{x}[.|,|:| -] [now the opposite|the contrary please|the opposite please|its opposite"
    "|what is its opposite|its contrary|other way round]",
    "[which|what] word [means|says] the opposite of {x}",
    "[how do i say|what do i say for] the [opposite|contrary] of {x}",
    "{x} [has|takes] [which|what] [opposite|contrary|antonym]",
    "[i forgot|help me with|i am looking for] the [opposite|contrary] of {x}",
    "[less like|nothing like|unlike] {x}, [rather|but] [what|...]",
)
RHYME: Final = (
    "[rhyme|rhyming] [game|please|challenge|quiz|word][:|,| -] {x}",
    "let's rhyme[:|,|] {x}",
    "{x}[.|,|!|:] [now rhyme|your rhyme|a rhyme|got a rhyme|what rhymes|any rhymes|rhyme on it]",
    "[what|which words] [would|could|does] [rhyme with|go with as a rhyme for] {x}",
    "[help me|please help me|can you] rhyme {x}",
    "[i am writing|i write] a [song|poem][,|.] what rhymes with {x}",
    "{x} rhymes with [which word|which words|...|which one]",
    "[words|names|things] [that rhyme|rhyming] with [the word |]{x}",
    "[find|search|suggest|show] [me |]words [that end|ending] [with the sound of|just as] {x}",
    "[match|pair] {x} with [a rhyme|a rhyming word|something that rhymes]",
    "[any|some] [rhyme|rhymes|word] [for|with|to] [the word |]{x}",
)
DO_RHYME: Final = (
    "{x} [and|with] {y}[,|:| -] [does it rhyme|do they rhyme|is it a rhyme|would that rhyme"
    "|does that rhyme]",
    "{x}[,| /| ...|...|;] {y}[:|,|...| -] [rhyme|is this a rhyme|does it rhyme|do they rhyme"
    "|are they a rhyme|do those rhyme|rhyme or not]",
    "{x}[,|...| /|;] {y}[,|...|:] [they rhyme|it rhymes|it's a rhyme|a rhyme][, right"
    "|, doesn't it|, or|, true|, yes]",
    "does [the word|your word|our word] {x} rhyme with [the word |]{y}",
    "[would|could] [a poet|i|we] rhyme {x} [and|with] {y}",
    "do [the words|both words|these words|those words] {x} and {y} rhyme",
    "[tell me|say|check|decide] [if|whether] {x} [and|rhymes with] {y}[ rhyme|]",
    "[are|so are] {x} and {y} [rhyming words|a rhyming pair|rhymes]",
    "{x} [and|with] {y} [is|makes|would be] a rhyme[, right|, isn't it|, yes or no|, true]",
)
LIST: Final = (
    "[which|what] {n} {t} [can you name|can you think of|would you pick|do you like|do you see"
    "|spring to mind|would you list|are there]",
    "[throw|grab|select|hand|fetch|find|pull out] [me |us |]{n} {t}",
    "[pick|choose|select] {n} {t} [for a game|for my class|for my story|for us all|at random]",
    "[hurry|fast|go on|come on|surprise me|let's go][,|:|!| -] {n} {t}",
    "{n} {t}[, fast|, hurry|, go| at once|, quickly|, whichever|, any kind|, no matter which]",
    "[i bet you can|can you|try to|do you manage to] [name|list|find|say] {n} {t}",
    "{t}[!|.|,|:| -] [i need|i want|make it|just|only|exactly|please|say] {n}",
    "[what|which] are [some|any] {t}? [just|only|exactly|make it] {n}",
    "[my kid|my teacher|my son|my friend|the quiz] [needs|wants|asks for] {n} {t}",
    "[brainstorm|imagine|enumerate|mention|state|propose] {n} {t}",
    "[a few|some] {t}, [exactly|just|make it|about] {n}",
    "[for|in] [a quiz|a game|my homework|a story|the kids][,|:] [name|list|i need] {n} {t}",
)
JOKE: Final = (
    "[i need|i could do with|i am in the mood for|i'd enjoy|i'd appreciate|i fancy|time for"
    "|i am ready for] [a laugh|a giggle|a chuckle|a good joke|something to laugh about"
    "|some humo[u|]r|a bit of fun|something funny]",
    "[entertain|amuse|surprise|delight|tickle] [me|us][ a bit| with a joke| with something silly"
    "| with a riddle| with a gag|]",
    "[share|drop|throw me|crack|spill|offer|bring|serve|gimme] [a|one|your best|some] "
    "[joke|jokes|pun|gag|one-liner|wisecrack|funny line]",
    "[got|have you|know] [a|any|some] [good |nice |]"
    "[pun|puns|gag|one liner|funny story|funny stories|wordplay]",
    "make [me|us|my friend] [giggle|chuckle|grin|lol|laugh a bit|laugh hard]",
    "[be|act|get|do something] [silly|hilarious|witty|a comedian|a clown|humorous]",
    "joke [us|around|a bit|please|away|with us]",
    "[i am|i'm] [bored|sad|so bored], [tell me a joke|make me laugh|a joke please|joke]",
    "[what|which] [joke|pun] [do you know|can you tell|is your best|makes people laugh]",
    "[a|one|some] [pun|gag|one-liner|wordplay|bad joke|dad joke|silly joke|good one][ please|]",
    "[do|could|can] you [joke|make jokes|do jokes|do puns|joke around|tell jokes]",
    "[may|can] [i|we] [get|have] a [joke|pun|laugh|good joke]",
    "[lighten|brighten] [my day|the mood|me up][ with a joke|]",
)
ANOTHER: Final = (
    "[and again|once again|one again|again, again|again but better|another round|encore"
    "|again please, but new|more more|and one more|keep them coming|hit me again|do that again"
    "|same again|again one more time|and now again]",
    "[haha|lol|hehe|ha ha|rofl|lmao|hah|heh][,|] [again please|next please|next one|continue"
    "|another please|more please|and more|one more please|keep going|tell another]",
    "[that was|this was|that's] [funny|great|so funny|nice|silly|bad|lame|terrible|hilarious]"
    "[, next one|, another|, one more|. More|. Another one|, a better one]",
    "[what else|anything else|something else|have you more|any more|is there more|any others"
    "|others|and others|got others]",
    "[i know that one|heard it|old one|knew it], [another|a new one|next|a different one]",
    "[let me hear|bring|bring on|come on,|tell|i want] [another|the next one|one more|the next]",
)
HAIKU: Final = (
    "i [wish for|am after|wanna read|want to hear|want to see|hope for|am waiting for|long for] "
    "a haiku[ about {t}| of {t}| on {t}|]",
    "[and now|next|next up|then] a haiku [with|featuring|that has|where we meet|for|of] {t}",
    "a haiku [with|featuring|in which there is|that has] {t}[ in it|][ please|]",
    "[turn|make|put] {t} [into|in] a haiku",
    "{t} [as|in] a haiku[ please|]",
    "{t}[:|,| -] [write|make|give me] a haiku[ about it| on that|]",
    "[think of|invent|draft|sing|improvise|produce|pen] a haiku[ about {t}| on {t}|]",
    "[let us|let me] [hear|read|see|have] a haiku[ about {t}| on {t}|]",
    "[are you able to|do you manage to|is it possible to] [write|make] [a |]haiku[s|]",
    "[haiku|haikus][ now| time| please| about {t}]",
    "[three lines|a small poem|a japanese verse][,| of] [five, seven, five|5, 7, 5] "
    "[syllables|beats][ about {t}|]",
    "[surprise me with|show off|i'd love|i would enjoy] a haiku[ about {t}|]",
)
POEM: Final = (
    "[make|write|do|put] something [that rhymes|rhyming|in rhymes|with rhymes]",
    "[recite|declaim|perform|present|sing|read out|read] [a poem|some poetry|some lines"
    "|a few verses|your poem|one of your poems|a rhyme|us a verse]",
    "[be|play|act like] [a poet|poetic|shakespeare]",
    "[some|a few|four] [rhyming lines|lines of poetry|verses that rhyme|lines that rhyme]",
    "let [me|us] [hear|read|have|see] [a|some|your] [poem|poetry|verses|verse]",
    "[poem|poetry|verse|verses] [time|now|please]",
    "i [am in the mood for|would enjoy|wish for|long for|wanna hear|could do with] "
    "[a poem|poetry|verses|some verse|a verse]",
    "[surprise|cheer|delight] me with [a poem|a verse|some rhymes|poetry]",
    "rhyme [a bit|a little|some lines|us something|away|about something|a few lines]",
    "[invent|improvise|draft|produce|pen|think up] a [little |short |]"
    "[poem|verse|rhyme][ about {t}|]",
    "[have you|got] [poems|poetry|verses|some poetry|any verses]",
    "[how about|what about] a [poem|verse|rhyme][ about {t}|]",
)
