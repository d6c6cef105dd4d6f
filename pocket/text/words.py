"""Plain word lists: the vocabulary the generator's world is furnished with.

Held-out words (see `dice.Dice.is_held`) are removed from training by hash, not by list, so a word
may be added here without thinking of the split.
"""

from typing import Final


def split(text: str) -> tuple[str, ...]:
    """Words between white space."""
    return tuple(text.split())


def article(word: str) -> str:
    """The word with its indefinite article, by its first letter."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


FIRST_NAMES: Final = split("""
Anna Ben Clara David Emma Felix Grace Hugo Iris Jonas Kate Leo Maria Nora Oscar Paul Rosa Sam Tom
Vera Will Zoe Alice Bob Carol Dan Eva Frank Gina Hannah Ivan Julia Kim Lena Max Nina Omar Priya
Rita Sofia Tara Uma Victor Wendy Yuki Ali Chen Diego Fatima Ines Jack Lucy Mona Peter Ravi Sara
Lily Mia Noah Adam Ella Ruth Simon Tim Olga Marco Lars Ken Joy Ian Amy""")

LAST_NAMES: Final = split("""
Smith Jones Brown Miller Davis Wilson Moore Taylor Clark Lewis Hall Young King Wright Hill Green
Baker Adams Nelson Carter Mitchell Turner Parker Evans Stewart Morris Rogers Reed Cook Morgan Bell
Cooper Ward Gray Watson Brooks Kelly Price Wood Ross Garcia Lopez Silva Rossi Novak Kowalski Tanaka
Kim Patel Singh Chen Nguyen Berg Meyer Weber Fischer""")

CITIES: Final = (
    *split("""
Paris London Berlin Rome Madrid Vienna Tokyo Oslo Lisbon Dublin Prague Athens Warsaw Helsinki
Stockholm Copenhagen Amsterdam Brussels Budapest Zurich Geneva Munich Hamburg Milan Naples Venice
Barcelona Seville Porto Lyon Nice Boston Chicago Seattle Denver Austin Miami Toronto Montreal
Vancouver Lima Bogota Santiago Cairo Nairobi Lagos Accra Delhi Mumbai Beijing Shanghai Seoul Busan
Osaka Kyoto Hanoi Bangkok Jakarta Manila Sydney Melbourne Perth Auckland Istanbul Dubai"""),
    "New York",
    "San Francisco",
    "Los Angeles",
    "Buenos Aires",
    "Mexico City",
    "Cape Town",
    "Hong Kong",
    "Tel Aviv",
    "San Francisco, CA",
    "Boston, MA",
    "Paris, France",
    "Austin, Texas",
    "London, UK",
    "Rio de Janeiro",
    "São Paulo",
    "Kraków",
    "Málaga",
    "Zürich",
    "Köln",
)

COUNTRIES: Final = split("""
France Germany Italy Spain Japan Norway Portugal Greece Poland Sweden Finland Austria Ireland
Canada Brazil Peru Chile Egypt Kenya India China Vietnam Thailand Turkey Mexico Cuba""")

ANIMALS: Final = split("""
cat dog fox owl bear wolf frog bird mouse horse rabbit tiger lion duck goat sheep cow pig hen bee
ant whale seal otter turtle snail crow hedgehog squirrel penguin dragon elephant""")

COLOURS: Final = split("""
red blue green yellow orange purple black white brown pink grey gold silver violet""")

FRUITS: Final = split("apple pear plum cherry peach mango banana lemon orange grape melon fig kiwi")

FOODS: Final = split("""
bread soup rice pasta cheese salad cake pizza honey butter pie noodles sushi tacos curry stew""")

THINGS: Final = split("""
lamp book key door chair table clock cup hat coat boat bell ball box coin map letter pen drum kite
mirror basket candle rope stone leaf flower seed tree wheel window bridge ladder bottle blanket
umbrella ring bag phone radio camera guitar piano robot train car bike""")

PLACES: Final = split("""
forest river garden village mountain island beach castle market school library harbor tower valley
field cave lake town hill desert farm""")

ADJECTIVES: Final = split("""
small big old young happy quiet brave kind clever lazy bright dark warm cold soft strong gentle
curious tiny proud shy lonely hungry sleepy golden little strange lucky wise calm""")

VERBS: Final = split("""
find make take bring open close start stop move read write send call paint build clean fix sell buy
learn teach cook draw plan check watch carry count keep lose save share show sing walk wait win help
hide jump keep kick lift load meet pick pull push rest ride run sail shut sort swim turn wash""")

NOUNS: Final = split("""
account address agent album alert amount answer area army article asset author badge balance band
bank base batch battery bill block board body bonus branch brand budget buffer bug button cable
cache campaign card cargo case cell chain channel chapter chart city claim class client cloud code
color comment company contact content contract copy cost country course crew crop customer cycle
data date deal debt degree demo depth desk device diet digit disk doctor domain draft drink driver
duty email energy engine entry error event exam expert export fact factory fee feed fence file film
filter fire flag flight floor folder font form frame friend fuel game gate gift glass goal grade
grant graph grid group guest guide habit hand head heart heat height hint home hope horn host hotel
hour house idea image income index input invoice issue item job joke judge key label lane language
law layer leader league lease lens level license light limit line link list loan log loop lunch
machine mail market mask match matrix meal member memory menu message meter method minute mode model
module money month mood motor mouse movie music name network news night node noise note number
office offer oil option order owner packet page pair panel paper parcel park part party pass patch
path patient payment peak people permit person photo phrase pilot place plan plant plate player
point policy pool port post power prize process product profile project proof queue quiz quote race
rank rate ratio recipe record region rent reply report request result review reward risk river road
role roof room root route row rule salary sale sample scale scene schedule school score screen
script season seat section sensor server service session shape share ship shop signal site size
skill slot song sound source space speed sport stage star state station status step stock store
storm story stream street student style subject sum surface survey switch symbol system tag target
task tax team term test text theme ticket tile timer title token tool topic total tour tower track
trade trail tree trend trip truck unit update user value vehicle vendor version video view village
visit voice volume wage wall warning water wave week weight wheel winner word work worker world yard
year zone""")

EXTRA: Final = split("""
ability above absence academy acid actor adult advice afraid again agree ahead airport alarm alive
allow almost alone along already although amazing anchor ancient angle angry ankle another anxious
anybody apart appear apron arrive arrow artist ashamed asleep attic aunt autumn avenue average awake
awful bacon baggage bakery balcony bamboo barely bargain barn beach beard beauty because become
before begin behind believe belong below bench beneath beside better between beyond biscuit bitter
blame blanket blood blossom borrow bother bottom bowl breakfast breath breeze brick broken brother
brush bucket bullet burn butcher butterfly cabbage cabin calendar camel cancel canvas capital carpet
carrot castle catalog cattle caught cause ceiling celebrate central century cereal certain chalk
champion chance change charm cheap cheek chess chicken chimney chocolate choose church cinema circle
circus citizen climate climb clothes coast coffee collar collect college comfort common compare
complain concert consider continue corner correct cotton couch cough courage cousin cover crash
create cricket crowd crown cruel curtain curve cushion damage dance danger daughter decide deep
defend delay deliver dentist describe deserve detail diamond differ dinner direct discover disease
distance divide dolphin donkey double doubt dozen dream dress drift drop during dust eager early
earth easy edge effort either elbow electric empty enemy enjoy enough entire equal escape evening
every exact example except excite excuse exist expect explain extra fabric fail faint fair faith
false family famous fancy farmer fashion father fault favor fear feather fellow fever fiction fight
figure final finger finish flame flash flavor float flood flour follow fool forest forget forgive
former fortune forward fountain freedom fresh fridge front frozen funny furniture future garage
garlic general gentle giant ginger giraffe glad glove glue goose govern grain grammar grand grape
grass gravity great ground grow guard guess guilty guitar hammer handle happen harbor hardly harvest
health heaven heavy helmet hello herself hidden history hobby hollow honest honor hospital however
human humble hundred hunger hurry husband idle imagine impact inch include indeed infant inform
inside instead invent invite iron jacket jealous jewel journey juice jungle junior justice kettle
kingdom kitchen knee knife knock ladder lately laugh lawyer learn leather lecture legend leisure
lemon liberty likely liquid listen little lizard local locate lonely loose loud lovely lower loyal
lumber magic manage manner marble margin marriage master matter maybe meadow measure medicine melody
mention merchant mercy metal middle mild mineral miracle misery mistake mixture modern moment monkey
moral morning mother motion mountain muscle museum mystery narrow nation native nature nearly neat
needle nephew nervous neutral never noble normal notice obey object observe obtain obvious ocean
often onion opinion oppose orchard orchid ordinary origin oven owe oyster package painful palace
parade pardon parent passage patience pause peace peanut pearl pencil pepper perfect perhaps phrase
picnic pigeon pillow pine pirate planet plastic pleasure plenty pocket poem poison polite poor
popular possible potato pottery pound powder praise prayer precious prefer prepare present press
pretty prevent prince prison private promise proper protect proud pumpkin punish puppet purpose
puzzle quality quarter queen quick quite rabbit rather reach ready reason receive recover reduce
refuse regret relax remain remember remove repair repeat replace rescue respect return ribbon rocket
rotten rough royal rubber ruin saddle safety sailor salmon salt sandwich satisfy saucer scarf
scatter science scissors secret secure seldom sense sentence serious settle seven shadow shallow
sharp shelf shelter shine shoulder shower sight silence silk silver similar simple since single
sister sketch slave sleeve slender slight slope slow smile smoke smooth snake soap social soldier
solid somehow sorrow spare special spider spirit splendid spoon spread spring square stable stairs
steady steam steel stiff stomach straight strange straw stupid sudden suffer sugar suggest summer
sunset supper supply suppose surprise sweater sweet swift sword sympathy talent tasty temple tender
terrible thank theater therefore thick thief thirsty thorough thousand thread throat throne thumb
thunder tidy timber tired tobacco together tomato tongue tonight tooth toward towel traffic travel
treasure trouble trousers true trumpet trust tunnel turkey twice twist ugly uncle under unless until
upper urgent useful usual valley vanish velvet victory violin virtue volcano wagon waist wander
wealth weather weave wedding welcome whale wheat whisper whistle widow wild willing winter wisdom
witness wonder wooden worry worth wound wrist yellow yesterday zebra zero""")

ALL_WORDS: Final = tuple(sorted({*NOUNS, *VERBS, *EXTRA, *ADJECTIVES, *THINGS, *ANIMALS, *PLACES}))
"""Lower-case English words, about 1.3 thousand, for copying, spelling and values."""
