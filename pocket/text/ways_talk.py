"""More ways to greet, introduce oneself, ask for what was told, and ask about Quire. As data."""

from typing import Final

_TO: Final = "[ pocket| buddy| pal| friend| there| everyone| all| little one| mate|]"
GREETING: Final = (
    "[hi|hello|hey|hallo|yo][!|,| -] [is anyone in|who is there|are you awake|are you online"
    "|are you around|you there|anybody in|can you hear me|is somebody here|knock knock|u there]",
    f"[evening|afternoon|mornin|g'day|good mornin|good evenin|top of the morning|gm]{_TO}",
    f"[sup|sup dude|whaddup|wazzup|wuzzup|what up|ayy|ayo|oi|yoo|yooo|hola|bonjour|aloha|ahoy"
    f"|salutations|what's up|whats up|wazup|wassap|hii|hiya|heya you|hullo you|helloo|henlo]{_TO}",
    "[hi|hey|hello|hallo|howdy|hiya|heyy|hiyaa] [small|wee|mini|clever|good|dear|cute|nice|sweet] "
    "[model|robot|machine|one|guy|ai|chat bot|buddy|thing|bot]",
    "[hi|hey|hello] [again|once more|and good morning|and welcome|from me|to you too|world|hello"
    "|hi hi|to you|from far away]",
    "[oh|ah|look who it is|there you are|well now|so][,|] [hello|hi|hey|good day]",
    "[good morning|good evening|good day] [to you|to all|dear model|sir|everybody|my dear]",
    "[hello|hi] h[ello|i|ey]",
    "[greetings|a warm hello|a big hello|warm greetings][ to you| from me| from here|]",
)
HOW_ARE_YOU: Final = (
    "[how r u|how are u|how u doing|hows you|how goes it|how have you been|how are we today"
    "|how's everything|you alright|you good|everything alright|doing ok|r u ok|r u well"
    "|are u fine|how are you feeling|how's your day|hows your day going][ pocket| buddy|]",
    "[tell me|so|and], how [are you|do you feel|is it going|are things|have you been]",
    "how are you [on this day|on this morning|doing these days|doing lately|getting on|keeping]",
    "[i am fine|i'm good|all good here|doing well], [and you|how are you|how about you|what about "
    "you|yourself]",
)
THANKS: Final = (
    "[thanks|thank you|ta|thx|much obliged|nice one|cheers|bless you|thanks a million], "
    "[you star|you hero|you champ|mate|pal|you angel|my hero|you gem|chief|boss|friend|little one"
    "|you genius|champ|you are a star]",
    "[thank you|thanks|thankyou|thanx|thnx|tnx|tks|thank u] [loads|tons|a lot|a great deal|indeed"
    "|again|very much indeed|so very much|for everything|for helping|for your time|for this]",
    "[ok|great|perfect|super|wonderful|cool|neat|wow|excellent][,|!] [thanks|thank you|thx|cheers]"
    "[ for your help| buddy| a lot|]",
    "[i am|i'm] [so |very |really |][thankful|grateful|obliged]",
    "[that's|that is|this is] [perfect|what i needed|all i needed|very useful], [thanks|thank you]",
    "[you have|you've] been [great|helpful|a great help|very kind|so kind][, thanks|]",
)
GOODBYE: Final = (
    "[alright|right|okay|ok|well|anyway|so][,|] [gotta|i gotta|got to|i must|i better|need to"
    "|time to] [run|dash|leave|head off|sleep|get going|get back to work|log off|head home]"
    "[. bye|. later|. ttyl|, see ya|. cheerio|. see you|. cu|]",
    "[good night|gn|nighty night|night night|sleep well|sweet dreams|nite]"
    "[ friend| little one| all| everyone|][, until tomorrow|, talk tomorrow|, bye|, see you|]",
    "[cya|c u|c ya|cya later|c ya soon|bb|bbl|ttyl|tata|toodles|cheerio|adios|au revoir"
    "|peace out|laters|catch you later|i'm outta here|signing off|over and out|gtg|g2g|bye now"
    "|byee|bye for today][ pocket| buddy| mate| friend|]",
    "[we|let's] [talk|chat|speak] [again |][tomorrow|later|soon|next week][, bye|]",
    "[i'm|i am] [going|heading|off] [now|to bed|home|to sleep|to work][, bye|, see you|]",
    "[until|till] [next time|tomorrow|then|we meet again|later]",
    "[it was|was] [nice|good|fun|great] [talking|chatting|speaking] [to|with] you[, bye|]",
)
HAPPY: Final = (
    "[feeling|i feel|i'm feeling|i am] [amazing|brilliant|cheerful|excited|so happy|lucky|super"
    "|terrific|proud|fine and happy|on top of the world|fabulous|excellent]"
    "[ now| this morning| right now|]",
    "[what a|it's a|today was a|having a] [great|brilliant|super|fantastic|lovely|perfect] "
    "[day|evening|time|week]",
    "[best|happiest] [day|week|morning] ever",
    "[i got|i just got|we have|i have] [good|great|wonderful] news",
)
UNHAPPY: Final = (
    "[i'm|i am|im] having [a|such a|quite a] [bad|hard|terrible|tough|difficult|awful|crappy] "
    "[day|time|week|morning]",
    "[feeling|i feel|i'm feeling] [low|blue|awful|terrible|sad|down|lonely|exhausted|miserable"
    "|rough|lost][ now| this morning| right now|]",
    "[worst|saddest|hardest] [day|week|morning] ever",
    "[nothing|everything] [works|goes right|goes wrong|is fine] today",
    "[my day|today|this week] [is|was|has been] [really |so |very |]"
    "[rough|tough|hard|bad|awful|sad|stressful]",
    "[i got|i just got|i have] [bad|sad|terrible] news",
)
INTRODUCING: Final = (
    "{x} [here|on the line|at the keyboard|checking in|typing|reporting]"
    "[, hello| again|, good to meet you|, pleased to meet you|, hi|, good morning|]",
    "[hello|hi|good day|hey][!|,|.] {x} here[, hello|, hi|, good to meet you|]",
    "[yo|hey|ayo|sup|hi|], [its|it's|this is] [your|the|ur|just] [buddy|pal|friend|man|girl|mate"
    "|old friend|favorite human|neighbor|gal|bro] {x}",
    "{x} [is the name|is how i'm called|is what you can call me|would be me|it is|is me"
    "|is what my mother calls me|is my first name|is my given name|is my real name|is my nickname]",
    "{x}[.|,|!| -|:] [this is me|that is my name|that's my name|that's who i am|so i'm called"
    "|pleased to meet you|that would be me|it's me|that is me, yes|this is my name]",
    "[hi|hello|hey|]! [who are you|what are you called|what do they call you|what should i call "
    "you|may i ask your name]? [i am|i'm|mine's|my name is|they call me|i go under] {x}",
    "[what's yours|your name|and your name]? mine['s| is called| would be] {x}",
    "what ['s|is] your name, [friend|robot|little one|dear]? mine is {x}",
    "the [one|human|user|man|woman] [writing|typing|chatting|sitting] [to you |here |]"
    "[is |goes by |is named ]{x}",
    "you are [talking|speaking|chatting|writing] [to|with] {x}",
    "[it's|its|it is] [me|only me|just me], {x}",
    "[remember|note|save|learn] [my name|the name]: {x}",
    "[name|first name|user|username|user name]: {x}",
    "the name to use? {x}",
    "my name [of course |as you see |should be |will be |][is|'s] {x}",
    "my name, [you see|as it happens|in case you wonder|since you ask|for the record], is {x}",
    "i was [baptized|christened|born as|given the name] {x}",
    "you [can|may] [say|use] {x} [for me|when you mean me|as my name]",
    "u [may|should|could] call me {x}",
    "[everybody|all my friends|most people|my mum|the kids|my mates] [calls me|call me|say] {x}",
    "[i'm|i am] [known|known here|known to all|better known] as {x}",
    "[a pleasure|good evening|good morning|greetings|dear pocket][.|,] [my name is|i am|i'm] {x}",
    "[let|allow] me [to |][say who i am|present myself|tell you my name][:|.|,] {x}",
    "[i'm|i am|my name is|this is] {x} and i [live in {c}|work in {c}|need help|like music]",
)
WHO_AM_I: Final = (
    "[do you|you|can you] [still |][remember|recall|know] [who i am|this person|the one talking"
    "|me at all|me from before]",
    "[still|do you still|you still] [know|remember] me",
    "[recognise|recognize|recall] me",
    "[it's|it is] me again, who",
    "[me|i], who [am i|is that|was that]",
    "[what|which] name [do i have|is mine|have i|do i go by]",
    "[what|how] [do|did] i [call myself|say they call me]",
    "[any|no] idea [who i am|what i am called|what my name is|who this is]",
    "[and|so|ok] [who am i|who was i|my name is what|what is it, my name]",
    "[write|print|say|type] [down |]my name[ again| once more| now|]",
    "[i think|surely|i bet|i guess] you [forgot|don't know|lost|can't say] [my name|who i am]",
    "[say|write] [my name|who i am][ now| again|, will you|]",
    "[there was|you know] a name i [gave|told] you, [mine|what was it]",
    "[what's|what is|wats] [my|ma] name[ again| once more| btw|]",
    "[can|could] you [say|repeat|type|write|remember] [my name|who i am|what i am called]",
    "[did|have] i [tell you|told you|mention] my name? [what is it|say it|which one]",
)
MINE: Final = (
    "[and|what about|what is|how about|but|ok and|and what about|now] [my own|my own name|my name"
    "|me|myself]",
    "[and|but] [what's|what is|how is] mine[ again| then| called|]",
    "mine[,|?|:] what [is it|was it]",
    "[and|ok,|but] what am i called",
    "[and|but] who am i[ then|]",
)
SPELL_ME: Final = (
    "[spell|type|say|give me|show me] my name [in single letters|as letters|slowly"
    "|one letter at a time|with hyphens between the letters|letter for letter|in letters]",
    "[which|what] letters [are in|make up|form|does it take for] my name",
    "my name, spelled out",
    "[can|could] you spell [my name|out my name|me by name]",
    "[spell|break|split|take] my name [out|up into letters|into letters|apart]",
    "[write|print] my name [in|with] [single|separate] letters",
    "[the |all |]letters of my name",
)
FAVOURITE: Final = (
    "[which|what] {t} [is the one i like|did i call my favorite|do i like above all"
    "|is top for me|do i fancy|am i fond of]",
    "{t}[,|:] which [one |]do i [like|love|prefer]",
    "the {t} i [like the most|love most|prefer to all|like above all|named]",
    "[which|what] {t} did i [say|tell you] i [love|like best|prefer|like]",
    "my [best|top|preferred|number one] {t}[ is| was|]",
    "[and|so] [which|what] {t} [do i love|was it|do i like]",
)
JOB: Final = (
    "[what|which work] do i [do for work|do for money|do every day|get paid for]",
    "[what|how] [is my living|do i earn my living|do i make my living|do i earn a living]",
    "what [am i by|is my] [trade|profession|calling]",
    "[guess|remember|say] [what i do|my job|what i work as]",
    "[my job|my work|my profession][, what is it|, remember it| is| was]",
)
LOVE: Final = (
    "[which|what] [dish|thing|snack|food|stuff|activity] [am i into|am i fond of|do i enjoy"
    "|am i crazy about|makes me happy|did i say i like]",
    "[guess|tell me|say] what [i'm|i am] [into|fond of|crazy about]",
    "can you guess [what i love|my taste|what i like]",
    "[what|which thing] [am i|was i] [into|fond of|crazy about]",
    "[remember|repeat] [what i enjoy|what makes me happy|what i love]",
)
KEPT: Final = (
    "[say|repeat|give me|what was|now say|tell me] the {t} [i asked you to keep|you had to learn"
    "|i asked you to note|i wanted you to memorise|i wanted you to remember|i made you learn"
    "|from earlier|from just now|i had you memorise|i mentioned]",
    "[the|that] {t}[,|:] [which one|what was it|say it|i forgot it]",
    "[have you|did you] [kept|keep|saved|save] the {t}? [what is it|say it]",
    "[which|what] {t} [were we|did we] [talking about|speak of|mention]",
)
QUIRE: Final = (
    "[can|could|would] you [explain|tell me about|sum up|introduce|outline|say something about] "
    "quire[ in one line| in a word| quickly| in two sentences| to a beginner|]",
    "[can|could] you describe quire[ in short| briefly| for me| in a line| to a beginner|]",
    "[what|which] [app|website|system|service|web page|tool|interface|server software] [am i|are "
    "we] [using|on|in|looking at|talking to][ now|]",
    "[what|which] software [am i using|is running|runs here|do you run on|answers me|serves you]",
    "[describe|explain|define] [what quire is|what this is|what quire does|the quire server]",
    "[first time here|i am new here|new here|never used it][,|:|.] [what is quire|what is this"
    "|what does quire do|what is quire for]",
    "[who|what] [or what |]is quire",
    "quire[:|?|,|...] [what is it for|tell me more|explain|in a sentence|what is that"
    "|what can it do]",
    "[someone|a friend|my boss] [told me about|mentioned|likes] quire[,|.] [what is it"
    "|what does it do|explain it]",
    "[what|which] [job|task|use] does quire have",
)
CURL: Final = (
    "[show|give|send|write|i need|i want] [me |us |][a|the|some] curl [line|snippet|stuff|string"
    "|one-liner|code|syntax|usage|sample|bit|version]",
    "[how|what] do i [enter|run|write] [in|into] [my|the|a] [terminal|shell|command line|console]"
    " to [call|reach|ask|query|talk to] you",
    "i [am in|sit at|use|have opened] [a|my|the] [terminal|shell|command line|console][,|.] [how "
    "do i reach you|what command do i need|what should i enter|how can i talk to you]",
    "how [would|does|should] [a|the] curl [call|command|request|line] [to|for] [you|quire|the api"
    "|this model] look",
    "[what|how] [does|should] [a|the] curl [call|command|line] [look like|contain|need|go]",
    "[reach|ask|call|query|contact] you [by|with|over|from] [http|the command line|curl|the shell"
    "|my terminal|a terminal|rest]",
    "[is there|do you have|got] a curl [command|line|example|call|snippet][ i can use| to copy|]",
    "[i'd like|i want|i need] to [ask|reach|query|contact|use] you [from|in|on] [my|the|a] "
    "[terminal|shell|console|command line|server][,|] [how|which command|what is the command]",
    "[copy|paste|print] [me |]a curl [command|request|call]",
    "curl[,|:|?| -] [how|please|show me|example|how does it go|the command]",
)
LIVE: Final = (
    "[explain|describe|introduce] the live [page|tab|screen|panel][ briefly| in short|]",
    "[what|which things] can [i|one|we] [watch|read|learn|see] [on|in] [live|the live tab"
    "|the live view|the live screen]",
    "live [page|tab|view][:|?|,] [what is there|what is that|explain|what does it do]",
    "[what's|what is] the [live tab|live view|live screen] [about|for|good for|showing]",
    "[i clicked|i see|i opened] [live|the live tab|the live view][,|.] [what is it|what does it "
    "show|what do the numbers mean|explain]",
)
SELF: Final = (
    "[are|r] [you|u] [chat gpt|gpt 4o|gpt-4o|openai's|bard|copilot|grok|a chatgpt]",
    "your name[ is| was|, what is it]",
    "[may|can|could] i [ask|know|have] your name",
    "[with whom|to whom|who] am i [talking|speaking|chatting][ to| with|]",
)
MADE_BY: Final = (
    "[who|what team|which people] [coded|trained|invented|constructed|assembled|raised] you",
    "[who|whom] [do i thank for|is responsible for|stands behind|owns|released] you",
    "you were [made|built|trained|created] by [whom|who]",
)
