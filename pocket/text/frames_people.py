"""More ways to greet, to say how one is, to give one's name, and to ask for what was told."""

from typing import Final

from pocket.text.frames import frames

_HI: Final = (
    "hi|hello|hey|hiya|heya|howdy|good day|good morning|good evening|good afternoon|yo|hullo"
)
_NAME: Final = "my name|the name|my first name|my given name|my nickname|my username|my handle"
_SAYS: Final = "is|would be|happens to be|has always been|, since birth,  is|: |=|- "
GREETING: Final = frames(
    """
    @hi, [i just arrived|i'm new here|first time here|i just found this page|here i am again]
    @hi, [it's me again|me again|long time no see|i'm back|back again|remember us]
    @hi [again|once more|dear pocket|dear model|dear bot|sunshine|stranger|neighbour|old friend]
    @hi, [let's talk|shall we talk|can we chat|want to chat|i want to chat|let's chat a bit]
    [knock knock|ping|testing testing|test|is this on|anybody home|you there|are you awake]
    [just |][saying|wanted to say|came to say|dropping in to say|popping in to say] [hi|hello]
    [may i|let me|can i|i'd like to] [say hello|greet you|wish you a good morning]
    [greetings|salutations|warm greetings][ from [me|us|far away|the team|my desk]|, machine|]
    [nice|good|lovely|great] to [see|meet|find] you[ here| again| at last|]
    """,
    hi=_HI,
)  # fmt: skip
HOW_ARE_YOU: Final = frames(
    """
    @hi, how [have you been|are you feeling|are we today|goes it|are you keeping|do you fare]
    how [have you been|are you feeling|are you keeping|goes it|are you holding up|ya doing|r u]
    how [are|is] [you|everything|things|life|it all|stuff|business] [going|these days|lately|over \
      there|on your side]
    how is [your day|your morning|your week|the day] [going|so far|treating you|been]
    how's [it hanging|tricks|everything|your day|your morning|things|by you|the world treating you]
    [hope|i hope|trust] you are [well|fine|doing well|ok|good]
    [are|is] you [feeling|doing] [ok|well|alright|good|fine][ today|]
    [tell me|say|may i ask|let me ask], how [are you|do you feel|is it going]
    [what about you|and how are you|and you, how are you]
    [everything|all] [alright|well|okay|in order] [over there|with you|at your end]
    [did you|have you] [sleep well|slept well|had a good day|have a good day|have a nice morning]
    [in what|in which|what] mood are you[ in|][ today|]
    [what's|whats|what is] [up|new|good|happening|cooking|the mood][ with you| today| pocket|]
    are you [in a good mood|having a good day|happy today|feeling well|doing ok]
    how do you do[, my friend|, sir|, pocket|]
    how you [doing|been|feeling]
    how r [you|u][ today|]
    """,
    hi=_HI,
)  # fmt: skip
THANKS: Final = frames(
    """
    [thanks|thank you|thx], [that|this|it] [works|worked|was it|is it|was what i needed|did the \
      trick]
    [that|this] is [exactly|just] what i [needed|wanted|was looking for][, thanks|, thank you|]
    [i am|i'm|we are] [very |so |really |][thankful|grateful|obliged|in your debt]
    [how can i ever|how do i|let me] [thank you|repay you][ for this| for that|]
    [a big|a huge|one big|my sincere|a heartfelt] [thank you|thanks][ to you|]
    [thanks|thank you] for [the answer|your time|explaining|everything|being here|your \
      patience|this|helping me|the joke]
    [much|greatly|really] [appreciated|obliged][, pocket|]
    [i|we] [really |][appreciate|value] [it|this|that|your help|what you did]
    [that's|how] [very |so |][kind|nice|sweet|good|lovely] of you
    [you|u] [saved me|saved my day|made my day|are a star|are a lifesaver|are so helpful|helped a \
      lot]
    [merci|danke|gracias|grazie|obrigado|arigato|takk|tack]
    [ta|tnx|tks|thnx|tyvm|thanx|thank u|thanku|thks|thankyou][ so much| pocket| a lot|]
    [wonderful|excellent|superb|fantastic|splendid|neat|sweet], [thanks|thank you|that helped]
    [works|got it|understood|makes sense], [thanks|thank you|thx]
    [please accept|i send you|here are] my [thanks|best thanks|warmest thanks]
    couldn't have done it without you
    """,
)  # fmt: skip
GOODBYE: Final = frames(
    """
    [see you|see ya|catch you|talk to you|speak to you|until] [tomorrow|next week|on \
      monday|around|another time|again soon|next time|then]
    [i am|i'm] [off to bed|going to bed|off to work|going home|heading out|logging off|signing \
      off|outta here|leaving now]
    [i|we] [have to|must|gotta|need to|should|better] [be going|get going|head off|log off|catch \
      a bus|get back to work|go to sleep|dash|go home]
    [that's all|that was all|that's it|we are done|i'm done|nothing else|no more questions][ for \
      now| for today| from me|][, bye|, goodbye|, see you|, cheers|]
    [sleep well|sweet dreams|good night|night night|nighty night|gn|have a good night][ pocket| \
      little model|]
    [have|enjoy] [a nice|a good|a lovely|a great|your|the rest of your] \
      [evening|weekend|afternoon|night|day|one]
    [my bus|my train|my lunch|dinner|my boss|the kid] is [here|waiting|calling][, bye|, i have to \
      go|, gotta go]
    [time|it's time] for [bed|me to go|me to leave|dinner], [bye|see you|goodbye]
    [adios|au revoir|auf wiedersehen|tschuss|arrivederci|sayonara|hasta la \
      vista|adieu|cheerio|toodles]
    [take care|stay well|be well|be good|all the best|so long][ and goodbye| my friend| until \
      then| little one|]
    [it was|it has been] [nice|fun|good|lovely] [talking|chatting|to talk|to chat] [to|with] \
      you[, bye|, goodbye|]
    [closing|i am closing|i will close] [the window|the tab|this page|my laptop] now[, bye|]
    [peace|peace out|laters|later gator|cya|ttyl|g2g|gtg|brb|tata|ta ta|bye-bye|byee|byeee]
    i [leave|go|quit|stop here|am off|wish you a good night|say goodbye]
    [we'll|we will|let's] [talk|speak|meet|chat] again [soon|tomorrow|one day|another time]
    [wish you|wishing you] a [good|nice] [night|day|evening]
    """,
)  # fmt: skip
_FINE: Final = (
    "great|good|fine|happy|wonderful|fantastic|super|excellent|cheerful|on top of the world"
    "|thrilled"
    "|delighted|relaxed|in a great mood|over the moon|so happy|really well|amazing|proud|brilliant"
)
GOOD_MOOD: Final = frames(
    """
    [i am|i'm|im|i feel|i'm feeling|feeling|me, i am|today i am|right now i am|been] @fine
    [i am|i'm|i feel] @fine [because|since|as] [the sun is out|it's friday|my team won|i got a \
      present|i slept well|my friend visits me]
    [i've|i have] [never felt better|had a great week|a good feeling today|good news|had a lovely \
      time]
    [couldn't|could not] [be better|be happier|complain]
    [can't|cannot] complain
    [my day|my week|today|this morning|the weekend|work|school] [is|was|has been|went] \
      [great|good|fine|really well|wonderful|so nice|awesome|a blast|lovely]
    [everything|all|it|life] [is going|goes|went] [well|great|fine|smoothly|perfectly|my way]
    [i|we] [won|passed|made it|did it|got it|got married|got promoted|had a baby|finished my \
      exam|found a job|got good grades|bought a house]
    [guess what|good news|yay|hooray|woohoo|yippee], [i passed|i won|we won|i got the job|it is \
      my birthday|i am on holiday|it worked]
    [it's|it is|today is] [my birthday|my last day of school|the best day of my life|a wonderful \
      morning|such a nice day]
    [what|such] a [beautiful|wonderful|great|marvellous|fine] [day|morning|time|evening]
    [pretty|quite|very|really|rather|doing] [good|well|great|fine|ok|happy][, thanks|, thank you| \
      today|]
    [me|i] [am |]@fine[ too| as well|]
    [never better|all good here|very good, thanks|so far so good|top notch|living the dream|full \
      of energy]
    [the sun shines|spring is here|holidays start tomorrow|i have the day off|i fell in love] and \
      [i am happy|i feel great|life is good]
    """,
    fine=_FINE,
)  # fmt: skip
_SAD: Final = (
    "sad|tired|bad|lonely|sick|unhappy|terrible|awful|angry|stressed|down|exhausted|depressed|ill"
    "|upset|miserable|worried|nervous|afraid|bored|frustrated|blue|low|hurt|heartbroken"
    "|anxious|lost"
    "|overwhelmed|annoyed|disappointed|scared|worn out|hopeless|in pain|so sad|not well"
)
BAD_MOOD: Final = frames(
    """
    [i am|i'm|im|i feel|i'm feeling|feeling|me, i am|today i am|right now i am|been feeling] [so \
      |very |a bit |really |kind of |pretty |]@sad
    [i am|i'm|i feel] [so |]@sad [because|since|as] [my dog died|it rains all week|i lost my \
      keys|my friend left|nobody called me|i slept badly|we lost]
    [i've|i have] [never felt worse|had a bad week|bad news|a cold|the flu|no friends|a broken \
      heart|so much stress|toothache|a fever]
    [my day|my week|today|this morning|the weekend|work|school] [is|was|has been|went] \
      [bad|awful|terrible|horrible|a mess|a disaster|so hard|a nightmare|rough|not great|no fun]
    [everything|all|it|life] [is going wrong|goes wrong|went wrong|is too much|is a mess|is \
      against me|hurts|sucks]
    [my|our] [dog|cat|grandma|friend|hamster|uncle] [died|is ill|is very sick|passed away|ran \
      away|is in hospital]
    [i|we] [lost|failed|cried all day|lost the game|got fired|broke up|had a fight|missed the \
      train|failed the test|can't sleep|slept badly|broke my arm|hurt myself]
    [bad news|oh no|sigh|ugh|argh|sadly], [i failed|we lost|i lost my job|it is broken|i am \
      ill|my day is ruined]
    [such|what] a [miserable|rotten|lousy|horrible|rough|long and hard] [day|week|morning|night]
    [pretty|quite|very|really|rather|doing] [bad|badly|down|sad|terrible|poorly|unwell][ today| \
      to be honest|]
    [not|i'm not|i am not|not feeling] [so well|very well|too good|doing well|ok|okay|happy at \
      all|in a good mood|myself|at my best][ today|]
    [nobody|no one] [likes|loves|understands|calls|visits] me
    [i] [want to cry|could cry|miss my mom|miss my friend|need a hug|hate my life|hate \
      mondays|have nobody to talk to|need someone to talk to]
    [it's|it is|today is] [a bad day|one of those days|not my day|raining and i am sad|just too \
      much for me]
    [could be better|been better|i have been better|had better days|not great|meh, bad day|so-so, \
      rather bad]
    """,
    sad=_SAD,
)  # fmt: skip
MOODS: Final = (GREETING, HOW_ARE_YOU, THANKS, GOODBYE, GOOD_MOOD, BAD_MOOD)
"""In the order of `about_quire.MOODS`."""

INTRODUCING: Final = frames(
    """
    [that's|that is|it is|its] {x}, [me|my name|your new friend|by the way|the one and only]
    @hi, {x} here
    @hi, {x} [is my name|speaking|is the name|they call me|is what people call me]
    @hi @hi, [i'm|i am|im] {x}
    @hi! [i'm|i am|im|my name's|my names|name's|the name's|they call me|you can call me] {x}[, \
      pleased to meet you|, nice to meet you|]
    @hi from {x}
    [me|i] {x}, you pocket
    i['m|m| am] {x}, [a new visitor|your new user|a student|a teacher|and this is my first time|a \
      friend|from next door]
    i['m|m| am] {x}[, but| and] [i am new|i just wanted to say hi|i come in peace|i like robots]
    [so |well |ok |]i['m|m| am] {x}, [just so you know|by the way|fyi|in case you wonder|if you \
      want to know]
    [just so you know|by the way|fyi|in case you wonder|before we start|first of all], [i'm|i \
      am|my name is|my name's] {x}
    [you're|you are] [talking|speaking|chatting] [to|with] {x}
    [this|here] [is|writes|speaks] {x}[ from {c}| speaking| writing|]
    [allow me to|let me|may i|i'd like to|i want to] introduce [myself|me][:|,|.] [i am |i'm |my \
      name is |]{x}
    [i answer|i listen|i respond] to [the name |]{x}
    [please |you can |you could |feel free to |kindly ]call me {x}[, please|, everyone does|, if \
      you like|]
    [my parents|they] [chose|gave me] the name {x}[ for me|]
    [a pleasure|nice|good|great] to meet you[!|,|.] [i'm|i am|my name is|name's] {x}
    [meet|say hello to|greet|welcome] {x}[, that's me|, your new friend|, your new user]
    [it's|it is|its] [me, |me ]{x}
    what i'm called is {x}
    [in case you ask|if you ask], [my name is|i am] {x}
    i [was baptized|was christened|got the name|carry the name|have the name|bear the name] {x}
    [you may|you should|please|do] [remember|note|know] [me as|that i am|that my name is] {x}
    your [user|visitor|guest|friend] [is called|is|is named] {x}
    """,
    name=_NAME, says=_SAYS, hi=_HI,
)  # fmt: skip
ASKING_BACK: Final = frames(
    """
    [i'm|i am|my name is|name's] {x}, [who are you|and who are you|what's your name|and what is \
      your name|and you are]
    {x} is my name, [what is yours|and yours|what's yours|and what's yours]
    [i'm|i am] {x}. [what should i call you|what do they call you|do you have a name|and yours]
    @hi, i'm {x}, [and you|and what's your name|who are you|what is your name]
    """,
    hi=_HI,
)  # fmt: skip
CORRECTING: Final = frames(
    """
    [oops|my mistake|correction|typo|actually|no no|ah sorry][,|:] [i'm|i am|it's|my name is|call \
      me] {x}
    [that was wrong|i lied|i was joking], [my name is|i am|i'm really] {x}
    not that[,|.] {x} [is my name|is right|is correct]
    [better|rather|please rather|instead] call me {x}
    [you got it wrong|wrong name], [i am|it's|my name is] {x}
    [make|let's make] that {x}
    {x} is my real name
    my name is [not that but|no longer that but|actually] {x}
    """,
)  # fmt: skip
WHO_AM_I: Final = frames(
    """
    [can|could|would|will] you [tell|remind|repeat to] me [what my name is|what i'm called|what i \
      am called|my own name]
    [can|could] you still [say|tell|recall|remember] [my name|who i am|what i'm called]
    [do you|did you|can you] [happen to |][recall|remember|keep in mind] [who i am|who you are \
      talking to|what i told you my name was|how i introduced myself]
    [i wonder|i'd like to know|let me see|let's see|i am curious] [if|whether] you \
      [know|remember|still know|recall|kept|forgot] [my name|who i am]
    [what|how] [was|is] [my name|i called|my own name] [again|once more|now|in your \
      memory|according to you]
    [your|the] [user's|visitor's|human's|guest's] name [is|was|please]
    [the name of|how is] [your user|the person you talk to|your visitor|the human here|the one \
      typing][ called|]
    [how did i|how do i|as what did i] [introduce myself|call myself|sign in|present myself]
    [my name|who i am|what i'm called] - [do you still know|still there|do you remember|you know \
      it|say it]
    [hey|now|so|and], [who am i|what's my name|my name]
    [you|u] [know|remember|still know|didn't forget|haven't forgotten|do recall] [my name|who i \
      am|me], [right|don't you|do you|or not|yes|or]
    [say|repeat|type|write|spell out|tell me] [back |]the name [i gave|i told you|i gave you|i \
      said|that i have|i go by]
    [what|which] name [belongs to me|is mine|do i have|do i go by|did i mention|have i told \
      you|did you hear|was mine]
    if [someone|somebody|my mother|a friend] [asked|asks] you [who i am|my name|what i am \
      called], what [would|do] you [say|answer]
    [i forgot|i can't remember|remind me], [what am i called|what's my name|who am i|what my name \
      is]
    [remind me|help me remember|jog my memory][:|,|] [of |][my name|who i am|what my name was]
    [prove|show] [that |me that |me |][you know|you remember|you kept|you listened to] my name
    [quiz|pop quiz|memory test|test time|question][:|,] [who am i|my name|what is my name|what am \
      i called]
    [fill in|complete|finish][:| this:] [my|your user's] name is [_|...|]
    [you are|you're] [talking|chatting|speaking] [to|with][...|, whom|, who|]
    [with|to] [whom|who] [do i|are you] [have the pleasure|chatting now|speaking now]
    [were you|did you] [listening|listen][, what's my name|, who am i|? what is my name]
    [wish|bid] me [goodbye|good night|good morning], [with|using] my name
    [is|was] my name [still |][known|in your memory|saved|stored]
    [a while ago|earlier|before|at the start|in the beginning] i [told you|said|gave \
      you|mentioned] my name[, what is it|. what was it|, say it]
    [what|who] [am i|was i] to be called
    [under|by] [what|which] name do you know me
    [name|address] [me|this user|your visitor][ please|]
    """,
)  # fmt: skip
