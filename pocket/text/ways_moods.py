"""Words for how one feels and how things went, and ways to ask whether anybody is there. As data.

The same frames take happy and unhappy words, so that the word decides and not the frame.
"""

from typing import Final

_HAPPY: Final = (
    "[able|accomplished|adored|adventurous|alert|alive|amused|animated|appreciated|at ease|at home"
    "|balanced|beaming|blissful|blithe|bouncy|bold|bright|bubbly|buoyant|calm|capable|carefree"
    "|cared for|charmed|chilled|chipper|chirpy|clear-headed|comfortable|comfy|complete|confident"
    "|contented|cool|cosy|creative|dandy|dazzling|determined|dynamic|eager|easygoing|elated"
    "|empowered|enchanted|encouraged|energised|enlivened|enthusiastic|euphoric|exhilarated"
    "|exuberant|festive|fine|fit|fortunate|free|free as a bird|fresh|friendly|fulfilled|full of"
    " beans|full of energy|full of life|gay|giddy|glad|gladsome|gleeful|glowing|good as new"
    "|grateful|gratified|groovy|handsome|hale|heavenly|heartened|hopeful|hyped|in love|inspired"
    "|invigorated|invincible|jaunty|jolly|jovial|jubilant|keen|lighthearted|like a winner"
    "|like a champion|like dancing|like singing|lively|loved|merry|mellow|mighty fine|motivated"
    "|overjoyed|passionate|peaceful|pepped up|perky|phenomenal|playful|pleased|positive|powerful"
    "|proud of myself|psyched|pumped|quietly happy|ready for anything|reassured|recharged"
    "|refreshed|rejuvenated|relieved|remarkable|rested|safe|satisfied|secure|sensational|serene"
    "|sharp|smashing|snug|soothed|sparkling|spirited|sprightly|spry|strong|sublime|successful"
    "|sunny|superhuman|supported|tickled pink|tip-top|top notch|tranquil|triumphant|upbeat"
    "|uplifted|valued|vibrant|victorious|vigorous|vivacious|warm inside|welcome|well rested"
    "|wholesome|winsome|wonderful|young again|zen|zestful|zippy]"
)
_UNHAPPY: Final = (
    "[abandoned|achy|adrift|afraid|aggravated|agitated|alarmed|alienated|alone|angry|annoyed"
    "|apathetic|ashamed|at a loss|betrayed|beaten|bereft|bitter|bored stiff|bothered|broken"
    "|bruised|bummed|bummed out|burdened|burnt out|cheated|cheerless|confused|crabby|cranky|cross"
    "|crummy|crushed|defeated|dejected|depleted|depressed|desolate|despondent|devastated"
    "|disappointed|discouraged|disgusted|disheartened|dismal|dismayed|dispirited|dissatisfied"
    "|distraught|distressed|doomed|down in the dumps|downcast|dreadful|dreary|embarrassed|empty"
    "|enraged|exasperated|fatigued|feverish|forgotten|forlorn|forsaken|fragile|frail|frazzled"
    "|frightened|frustrated|fuming|furious|glum|gloomsome|grieved|grim|gruesome|guilty|gutted"
    "|haggard|half dead|helpless|homesick|horrid|humiliated|hurt|hungover|ignored|ill|inadequate"
    "|irate|irked|irritated|isolated|jaded|jealous|jittery|joyless|lethargic|let down|like crying"
    "|like giving up|like a failure|listless|loathsome|lonesome|lousy|mad|melancholy|mournful"
    "|moody|neglected|nervous|offended|on edge|out of sorts|overwhelmed|overworked|panicky"
    "|pathetic|pessimistic|petrified|powerless|queasy|rattled|regretful|rejected|resentful"
    "|restless|run down|sad|scared|shaken|shattered|shaky|sick|sleepless|sluggish|sore|sorrowful"
    "|spent|stuck|sulky|sullen|tearful|tense|terrified|threatened|tired of it all|tiresome"
    "|tormented|torn|trapped|troubled|unappreciated|under the weather|uneasy|unhappy|unloved"
    "|unlucky|unwell|useless|vexed|vulnerable|washed out|weak|weary|weepy|wiped out|woeful|worse"
    "|worthless|wounded|wrecked|wretched|zonked]"
)
_PLEASANT: Final = (
    "[amazing|ace|beautiful|blissful|bright|brilliant|charming|cheerful|comfy|cool|dazzling"
    "|delightful|divine|dreamy|easy|enjoyable|excellent|exciting|exquisite|fab|fabulous|fantastic"
    "|fine|first-rate|fun|funny|glorious|good|gorgeous|grand|gratifying|great|heartwarming"
    "|heavenly|hilarious|idyllic|impressive|incredible|inspiring|jolly|joyful|jolly good|lovely"
    "|lucky|magical|magnificent|marvellous|memorable|merry|neat|nice|outstanding|peaceful|perfect"
    "|phenomenal|pleasant|pleasing|precious|productive|refreshing|rewarding|satisfying|sensational"
    "|smashing|smooth|spectacular|splendid|stellar|stunning|sublime|successful|sunny|super|superb"
    "|sweet|terrific|thrilling|top|tremendous|unforgettable|uplifting|victorious|wonderful"
    "|wondrous|worthwhile]"
)
_UNPLEASANT: Final = (
    "[abysmal|appalling|atrocious|awful|bad|bitter|boring|catastrophic|chaotic|crappy|cruel"
    "|crummy|dark|depressing|difficult|dire|disappointing|disastrous|dismal|distressing|draining"
    "|dreadful|dreary|dull|exhausting|frustrating|ghastly|gloomy|grim|gruelling|gruesome|hard"
    "|hectic|hellish|hopeless|horrendous|horrible|horrid|irksome|lonely|lousy|mean|messy|miserable"
    "|nasty|nightmarish|painful|pathetic|poor|rotten|rubbish|sad|shocking|stressful|terrible"
    "|terrifying|tiresome|tiring|tough|tragic|traumatic|troublesome|tedious|ugly|unbearable"
    "|unfair|unfortunate|unlucky|unpleasant|upsetting|woeful|worrying|worse|wretched]"
)
_FELT: Final = (
    "[i feel|i'm feeling|feeling|i am feeling|im feeling|i am|i'm|im|feel] [really |so |very |kinda"
    " |absolutely |quite |]%s[ today| now| tonight| this morning| this week| again| right now|!|]",
    "[been feeling|woke up|i woke up|i woke up feeling|still feeling|still|just|quite|so|very"
    "|really|rather|extremely|simply|i must say i feel|i have been|i'm just|always] %s"
    "[ today| lately| tonight| since monday| for days| at the moment|]",
    "[today|tonight|right now|this morning|at the moment|lately][,|] [i am|i feel|i'm|i'm feeling"
    "|it's|feeling] %s",
    "%s[ today| right now|, that's me|, that's how i feel| is how i feel| is the word for me|]",
    "[i am in|in|i'm in] a %s [mood|state of mind|state][ today| right now|]",
    "[how i feel|my mood|mood|status|mood of the day][:|...|,| -] %s[ indeed| as can be|]",
    "[makes|this makes|it makes|my job makes|the weather makes|you make] me [feel |]%s",
)
_WENT: Final = (
    "[my|the|our|this|that] [day|week|evening|morning|weekend|trip|party|exam|date|walk|game"
    "|holiday|lunch|interview|meeting|journey] [is|was|has been|turned out|went|felt|seems]"
    " [so |really |very |simply |just |]%s",
    "[what a|such a|had a|i had a|we had a|having a|i'm having a|it was a|it's been a|i've had a"
    "|today is a] [really |truly |very |]%s [day|week|evening|morning|time|trip|weekend|night]",
    "[today|life|work|school|everything|it all|the news|my job|this year] [is|was|feels|has been]"
    " [really |so |just |]%s[ today| lately| right now|]",
)
_TIMES: Final = "%s [day|week|morning|evening|night|times][ so far| today| here|]"
# "Good morning" is a greeting.
_PLEASANT_TIMES: Final = _PLEASANT.replace("|good|", "|").replace("|jolly good|", "|")
HAPPY: Final = (
    *(way.replace("%s", _HAPPY) for way in _FELT),
    *(way.replace("%s", _PLEASANT) for way in _WENT),
    _TIMES.replace("%s", _PLEASANT_TIMES),
)
UNHAPPY: Final = (
    *(way.replace("%s", _UNHAPPY) for way in _FELT),
    *(way.replace("%s", _UNPLEASANT) for way in _WENT),
    _TIMES.replace("%s", _UNPLEASANT),
)
_HAIL: Final = "[hi|hello|hey|hallo|yo|psst|ahem|excuse me|hiya|howdy|hey there|hi there]"
_ABOUT: Final = (
    "[around|in there|in here|out there|listening|online|awake|at the door|on the line|up|about"
    "|free to chat|to talk to|at this end|on duty|in the house|at the desk|behind the screen"
    "|in this box|still up|alive in there|here to help|here today|willing to chat]"
)
GREETING: Final = (
    f"{_HAIL}[!|?|,|.|...| -|] [is |]"
    f"[anyone|anybody|someone|somebody|some one|no one|nobody] {_ABOUT}"
    "[ today| tonight| right now| yet|]",
    f"[is |][anyone|anybody|someone|somebody|pocket|the bot] {_ABOUT}",
    f"{_HAIL}[!|?|,|.|...| -|] [are you|are u|r u|you|is pocket|is the bot|is the robot]"
    " [around|in|home|at home|awake|up|listening|here|online|free|asleep|on|ready|there]"
    "[ today| now| yet| too|]",
    f"{_HAIL}[!|?|,|.|...] [who's|who is] [home|in|around|listening|on the line|at home|here]",
    f"{_HAIL}[!|?|,|.|...] [where is everybody|where are you|where did you go|do you see me"
    "|do you read me|can you see this|is this on|is this thing on|does this work|come out]",
    "[knock knock|ding dong|ring ring|tap tap|toc toc][!|...|,|?|] [anyone in|open up|it's me"
    "|who is in|anybody at home|is the bot in|may i come in|hello|hi]",
    f"{_HAIL} [out there|in there|over there|from outside|from the other side|down there]",
    "[calling|paging|hailing|looking for|trying to reach] [pocket|the bot|the little model"
    "|anyone who listens|whoever is there]",
    f"{_HAIL}[?|...|!] [pocket|you|echo|echo echo|testing|earth to pocket]",
)
