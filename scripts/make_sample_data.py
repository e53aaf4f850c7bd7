"""Writes the small corpus of `sample_data/`: the same bytes at each run, without a network.

    python scripts/make_sample_data.py [--out sample_data]

All text comes from the grammar below. A symbol such as `{clause}` stands for a random choice among its
alternatives, whose own symbols are then expanded; a `Voice` adds the words of one topic and the names of one
document to the shared grammar, so that a document keeps to its subject and its people:

    {sentence} -> "{opener}, {clause}." -> "In 1911, {who} {verbed} {object}." -> "In 1911, Ada fed the queen."
"""

# Text in many scripts on purpose: full-width punctuation is no typing error here.
# ruff: noqa: RUF001

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Record = dict[str, Any]

SAMPLE_DATA = Path(__file__).parents[1] / "sample_data"

# Topic: who | things, countable | matter, uncountable | verbs | adjectives; `_` joins two words
TOPICS = {
    "beekeeping": """beekeeper apiarist inspector breeder collector neighbour
        | hive frame queen swarm drone colony smoker veil feeder comb apiary jar extractor brood worker sting meadow
          blossom sugar-feeder entrance bucket label glove orchard lime-tree hedgerow barrel mite
        | honey wax pollen nectar propolis royal_jelly smoke clover heather buckwheat syrup
        | inspect feed open close mark collect extract divide requeen relocate weigh examine cover unite harvest
          treat
        | golden mild swarming docile hungry crowded drowsy floral runny sealed wintering amber sticky defensive""",
    "sailing": """skipper sailor helmsman navigator boatbuilder deckhand pilot
        | sail mast rudder keel anchor halyard harbour buoy tiller chart compass cleat winch hull spinnaker dinghy
          ketch jetty lighthouse reef shackle lantern current mooring bowline yawl porthole bulkhead
        | rigging canvas salt_water spray ballast varnish rope fog leeway timber
        | hoist lower repair moor steer secure paint launch tighten loosen survey salvage furl anchor test replace
        | leeward seaworthy brackish sturdy tidal weathered coastal windward slack nimble briny stormy moored rigged""",
    "baking": """baker miller apprentice confectioner grocer customer taster
        | loaf oven crust dough baguette tin tray roll bun pretzel starter sack recipe scale knife basket counter
          mixer pastry croissant rack cooling-shelf sieve bowl bakery biscuit tart bagel
        | flour yeast butter sourdough rye spelt salt steam sugar semolina malt cinnamon
        | knead bake fold shape proof slice weigh taste glaze score serve sift divide dust reheat wrap
        | crusty warm fermented dense airy buttery sour floury toasted stale seeded braided brown wholegrain""",
    "astronomy": """astronomer observer physicist amateur lecturer engineer optician
        | telescope planet comet star galaxy crater nebula moon orbit mirror lens observatory eclipse asteroid
          satellite dome catalogue spectrum meteor constellation detector pulsar sunspot transit exposure filter
          probe quasar
        | starlight dark_matter radiation dust gravity parallax redshift hydrogen helium plasma twilight
        | observe measure record calibrate detect resolve predict photograph catalogue align compare model confirm
          estimate explain locate
        | distant faint luminous lunar stellar orbital infrared binary spectral cosmic eccentric solar magnetic
          transient""",
    "railways": """conductor signalman stoker passenger engineer porter dispatcher
        | locomotive carriage platform signal timetable ticket station tunnel bridge rail sleeper wagon depot
          whistle junction boiler siding crossing viaduct gauge bogie semaphore turntable lever waiting-room lamp
          coupling embankment
        | steam coal freight traffic gravel luggage diesel electricity mail grease punctuality
        | inspect delay operate repair schedule couple electrify extend cancel announce restore load board widen
          reroute modernise
        | narrow-gauge punctual suburban crowded overnight disused regional rusty express provincial steep
          electrified single-track scheduled""",
    "gardening": """gardener botanist landscaper volunteer nurseryman allotment-holder florist
        | bed seedling bulb shrub rake spade greenhouse tulip rosebush hedge fence wheelbarrow pot trowel cutting
          lawn vine tomato bean pumpkin lettuce cucumber pear-tree trellis cold-frame watering-can snail perennial
        | compost mulch soil rain manure shade peat moss lavender thyme fertiliser
        | plant water prune weed harvest transplant mulch sow fertilise tend shelter dig_over graft thin support
          cover
        | shady fertile leafy thorny frosty evergreen fragrant sandy overgrown blooming ripe wilted tender hardy""",
    "pottery": """potter ceramist student glazer dealer curator kiln-master
        | bowl vase kiln wheel jug plate tile mug handle teapot shard rim shelf cone mould studio lid figurine cup
          workbench spout pitcher amphora saucer sponge brush urn casserole
        | clay glaze slip porcelain stoneware ash cobalt silica heat earthenware feldspar
        | glaze fire shape centre polish decorate dry crack trim mend collect exhibit mould paint stack unload
        | unglazed porous brittle hand-thrown speckled matte celadon chipped rounded thin-walled earthen ornamental
          salt-glazed smooth""",
    "chess": """grandmaster beginner arbiter coach opponent champion commentator
        | pawn knight bishop rook queen king board clock opening endgame gambit tournament sacrifice blunder fork
          file diagonal position square variation combination puzzle checkmate stalemate rating notebook club castle
        | tempo time_trouble theory initiative patience material calculation preparation concentration pressure
          analysis
        | attack defend capture sacrifice analyse develop exchange pin block promote study offer decline repeat
          check resign
        | positional tactical passed isolated closed sharp quiet drawn unsound symmetrical cautious aggressive
          decisive blindfold""",
    "mountains": """climber guide hiker shepherd ranger surveyor innkeeper
        | summit ridge glacier hut trail rope boot rucksack valley peak crevasse avalanche cairn pass cliff
          waterfall map tent ice-axe gorge cable-car marmot meadow stove ledge scree-slope refuge footbridge
        | snow granite altitude thin_air fatigue mist limestone frost chocolate sunburn weather
        | climb cross descend reach mark explore photograph rescue avoid follow circle approach admire map survey
          measure
        | alpine steep snowy exposed rocky barren icy windswept breathless glacial treacherous remote jagged sunlit""",
    "radio": """announcer operator listener technician producer inventor reporter
        | antenna transmitter receiver valve dial studio microphone programme headphone capacitor coil frequency
          circuit mast loudspeaker broadcast signal amplifier battery licence bulletin jingle transistor knob
          oscillator waveband script schedule
        | static music news silence interference shortwave copper voltage modulation advertising drama
        | broadcast receive amplify transmit record solder announce tune interrupt modulate jam edit rehearse relay
          adjust monitor
        | crackling live portable clandestine tinny long-wave regional stereo analogue nightly shielded resonant
          distorted wireless""",
    "printing": """printer typesetter publisher proofreader engraver bookbinder binder
        | press page typeface plate proof margin letter pamphlet newspaper woodcut roller ledger headline cover
          spine workshop catalogue poster galley column footnote binding quarto leaflet composing-stick edition
          almanac font
        | ink paper lead parchment type glue linen gilding vellum cardboard dampness
        | print bind correct publish engrave trim fold proofread reprint censor distribute ink illustrate order
          discard number
        | illegible printed italic handmade smudged gothic limited illustrated yellowed bilingual gilded
          leather-bound anonymous posthumous""",
    "weaving": """weaver dyer tailor merchant designer spinner seamstress
        | loom shuttle thread spindle carpet blanket pattern bobbin shawl fabric tapestry needle skein ribbon cloak
          hem seam button curtain quilt tassel cushion knot spool rug sash warp-beam heddle
        | wool silk linen cotton indigo madder dye felt lace hemp velvet
        | braid dye spin stitch unravel embroider card sew mend order measure import darn press soften trade
        | woven striped coarse silken faded crimson knotted patterned threadbare homespun woollen fine plaid
          intricate""",
    "clocks": """clockmaker watchmaker jeweller collector restorer apprentice sexton
        | pendulum gear dial spring escapement hand chime weight watch case bell tower ratchet pivot lens screw
          balance-wheel mainspring sundial alarm hourglass pinion jewel-bearing regulator strap metronome
          chronometer tick
        | brass oil precision friction steel enamel time daylight polish silver accuracy
        | wind_up repair adjust regulate clean oil assemble restore engrave polish synchronise examine disassemble
          auction replace correct
        | mechanical accurate antique slow ticking engraved delicate astronomical silent worn quartz ornate
          waterproof self-winding""",
    "rivers": """ecologist angler boatman hydrologist farmer warden ferryman
        | river bank otter trout pike heron weir dam pond marsh culvert eel reed willow flood stream floodplain
          pebble delta kingfisher sluice net minnow islet watermill estuary meander spring
        | silt algae oxygen mud sediment rainfall nitrate drift-wood groundwater runoff duckweed
        | restore monitor protect pollute dam filter drain flood reintroduce widen sample study clean divert count
          observe
        | muddy swift shallow clear stagnant meandering riparian flooded freshwater acidic navigable reedy silted
          upstream""",
    "coffee": """barista roaster grower buyer taster waiter regular
        | bean cup grinder roastery plantation cafe espresso filter sack kettle portafilter sample cherry tray
          counter cappuccino saucer menu barrel mill nursery pod flask terrace blend invoice harvest dripper
        | crema caffeine aroma acidity milk foam sweetness bitterness steam chaff humidity
        | roast grind brew taste import order blend pour_over export sip sort ferment wash dry weigh serve
        | roasted bitter fruity single-origin washed chocolatey nutty decaffeinated frothy smoky acidic sun-dried
          velvety balanced""",
    "music": """violinist conductor composer pianist organist singer luthier
        | violin sonata chord orchestra rehearsal concert melody string bow flute drum symphony score choir overture
          cello encore quartet hall trumpet ballad stage recording metronome oboe clarinet harpsichord waltz
        | rhythm harmony applause counterpoint rosin silence resonance tempo vibrato folk-song improvisation
        | play rehearse compose tune transpose record conduct perform arrange practise memorise dedicate hum
          improvise publish interpret
        | melodic baroque off-key harmonic solemn virtuosic muted lyrical rhythmic dissonant choral romantic
          acoustic tender""",
    "architecture": """architect mason carpenter surveyor mayor tenant planner
        | arch column facade roof staircase beam courtyard window vault balcony blueprint scaffold brick cathedral
          pavilion chimney foundation corridor gable atrium buttress terrace model cornice skylight cellar lintel
          annexe
        | concrete plaster timber daylight marble slate insulation glass sandstone mortar symmetry
        | design build demolish renovate restore plaster insulate photograph sketch convert extend commission decorate
          approve inspect reinforce
        | gothic vaulted modernist load-bearing derelict airy symmetrical brutalist listed half-timbered monumental
          prefabricated draughty ornate""",
    "libraries": """librarian archivist reader scholar cataloguer donor clerk
        | manuscript shelf catalogue book archive folio index reading-room card volume atlas dictionary diary
          collection stamp ladder desk scroll encyclopedia bookmark letter librarian-stool donation biography
          annotation microfilm fine lamp
        | parchment silence dust knowledge ink microfiche marginalia vellum paperwork scholarship mildew
        | catalogue digitise borrow return index preserve annotate translate restore lend donate misplace transcribe
          consult shelve stamp
        | rare overdue medieval annotated handwritten dusty illuminated encyclopedic leather-bound missing bilingual
          fragile uncatalogued scholarly""",
    "cycling": """cyclist mechanic courier racer commuter frame-builder champion
        | bicycle wheel spoke chain pedal saddle brake handlebar helmet tyre pump gear frame puncture cobblestone
          climb descent peloton sprint velodrome pannier bell derailleur hub sidewalk lane tandem inner-tube
        | grease rubber headwind stamina aluminium carbon sweat momentum rain traffic titanium
        | repair pass inflate adjust steer chase lubricate replace polish pedal climb race tighten lock lend
          cross
        | gravel downhill aerodynamic squeaky folding lightweight exhausted fixed-gear muddy electric breakaway
          rusty upright cobbled""",
    "medicine": """physician nurse pharmacist surgeon patient midwife researcher
        | symptom vaccine ward clinic trial dose bandage diagnosis microscope fever tablet stethoscope prescription
          epidemic hospital antibody scar injection thermometer specimen placebo remedy side-effect syringe cohort
          questionnaire ambulance splint
        | penicillin hygiene quinine evidence sleep iodine blood fresh_air immunity recovery pain
        | treat diagnose prescribe vaccinate examine disinfect operate_on isolate measure reassure monitor publish
          compare randomise record discharge
        | feverish sterile chronic contagious clinical bedside infectious acute preventive double-blind surgical
          mild immune harmless""",
    "software": """developer maintainer reviewer tester architect administrator contributor
        | function server compiler parser cache thread database commit branch test pull-request module package
          pointer buffer scheduler queue log deadlock loop iterator release stack-trace container socket checksum
          benchmark interface
        | latency memory bandwidth documentation throughput source_code technical_debt entropy concurrency metadata
          recursion
        | compile refactor deploy debug profile release document merge revert patch cache index validate benchmark
          parse revise
        | asynchronous deprecated recursive idempotent flaky immutable thread-safe verbose backward-compatible lazy
          stateless incremental open-source undocumented""",
    "machine learning": """researcher engineer annotator reviewer intern student analyst
        | model gradient layer token batch checkpoint optimizer tensor kernel embedding loss-curve dataset tokenizer
          accelerator learning-rate head benchmark prompt weight epoch label sequence corpus ablation cluster
          boundary scaling-law seed
        | attention padding overfitting regularisation noise compute pretraining data_quality throughput dropout
          entropy
        | train evaluate pack tokenize shuffle fine-tune truncate mask normalise sample scale ablate quantise
          deduplicate checkpoint align
        | sparse packed autoregressive noisy multilingual overfitted causal quantised masked pretrained large
          stochastic held-out differentiable""",
    "statistics": """statistician demographer analyst sociologist interviewer auditor professor
        | sample survey mean median histogram outlier variance estimate percentile table interval hypothesis census
          residual correlation chart forecast questionnaire household quartile respondent parameter regression bias
          denominator footnote scatterplot distribution
        | uncertainty randomness inflation probability skewness noise evidence causation significance turnout
          confidence
        | estimate sample tabulate plot test publish forecast weight average compare reject interpret smooth impute
          standardise question
        | skewed unbiased random significant normal weighted spurious seasonal representative lognormal missing
          robust cumulative bimodal""",
    "cheese": """cheesemaker affineur dairyman taster shepherd grocer judge
        | cheese rind cellar wheel curd cow goat vat mould pasture knife board milk-churn wedge press brine-bath
          shelf thermometer barn label cheesecloth market-stall herd creamery tasting certificate ripening-room
          copper-kettle
        | rennet whey milk brine cream hay salt culture humidity butterfat straw
        | ripen press turn taste salt wrap age grade wash slice export melt brush grate market skim
        | ripe pungent creamy crumbly veined salty nutty soft raw-milk goaty aged rindless alpine mouldy""",
    "photography": """photographer model curator developer editor assistant journalist
        | camera shutter lens negative print portrait tripod aperture darkroom exposure flash frame album enlarger
          viewfinder landscape exhibition roll-of-film slide backdrop darkroom-lamp gallery contact-sheet snapshot
          daguerreotype sensor bellows shadow
        | light grain contrast developer-fluid silver_nitrate dust depth perspective symmetry colour composition
        | photograph develop expose crop enlarge print frame retouch focus_on scan exhibit archive publish restore
          tint arrange
        | overexposed blurred monochrome candid sepia wide-angle grainy backlit underexposed panoramic posed digital
          faded square""",
    "birds": """ornithologist birdwatcher ringer warden illustrator ranger taxidermist
        | sparrow nest owl falcon egg feather wing swallow stork migration colony warbler binocular hide beak gull
          goose woodpecker blackbird thrush perch talon flock chick crane plover puffin sanctuary
        | birdsong plumage down camouflage seed daylight moulting wind courtship hunger dawn
        | observe ring count track feed photograph identify hatch protect record describe follow release sketch scare
          startle
        | migratory nocturnal speckled flightless nesting crested rare shy songful coastal fledged territorial downy
          endangered""",
    "glass": """glassblower cutter chemist furnace-hand glazier artist merchant
        | furnace window bottle goblet pane bead lens crucible mirror chandelier blowpipe fragment ornament prism
          vial tumbler marble lampshade workshop batch-house paperweight decanter annealer rose-window test-tube rod
          bubble stained-glass-panel
        | sand soda potash lead cobalt molten_glass heat lime light borax transparency
        | reheat melt polish anneal cut_out engrave shatter colour cast bend tint assemble recycle temper grind ship
        | transparent molten fragile opaque iridescent tinted leaded frosted blown crystal-clear tempered colourless
          convex faceted""",
    "law": """judge lawyer clerk witness plaintiff defendant juror
        | contract statute verdict trial appeal clause court precedent hearing treaty testimony settlement licence
          claim complaint signature notary oath summons brief jurisdiction amendment penalty deadline petition
          record tenant patent
        | evidence justice liability negligence custody property privacy copyright due_process testimony arbitration
        | appeal sign dismiss draft settle amend cite overturn enforce revoke ratify challenge negotiate file
          postpone interpret
        | binding unlawful null civil pending contractual ambiguous judicial retroactive reasonable confidential
          federal customary liable""",
    "markets": """trader merchant shopkeeper economist banker auctioneer broker
        | market price stall coin ledger invoice shop auction cargo warehouse bargain receipt scale crate share bond
          loan debt tariff customer wholesaler currency guild fair basket bank-note discount mortgage
        | spice trade credit demand supply inflation silver interest gold tax competition
        | trade price export import auction stock weigh lend finance undercut order store tax deliver count invest_in
        | expensive profitable wholesale seasonal scarce bankrupt counterfeit cheap monetary volatile retail
          lucrative foreign taxable""",
    "weather": """meteorologist forecaster sailor farmer observer lighthouse-keeper pilot
        | storm cloud barometer front forecast thermometer gale thunderstorm rainbow hurricane drought hailstone
          anemometer balloon satellite isobar breeze snowfall heatwave station bulletin warning windmill radar
          lightning-rod rain-gauge icicle snowdrift
        | humidity pressure rain fog thunder frost sunshine drizzle dew sleet convection
        | forecast measure record predict report observe chart announce survive plot expect model track compare fear
          estimate
        | gusty overcast humid tropical freezing stormy dry mild thundery arctic cloudless sultry changeable
          prevailing""",
    "theatre": """actor director playwright usher stagehand critic prompter
        | stage curtain costume rehearsal script mask scene spotlight audience monologue ticket premiere prop wig
          trapdoor comedy tragedy chorus balcony dressing-room rehearsal-room understudy backdrop poster interval
          matinee ovation puppet
        | applause make-up dialogue stage_fright drama laughter velvet satire improvisation gossip suspense
        | rehearse direct perform stage applaud review revise cast light prompt design adapt postpone translate
          tour_with cancel
        | theatrical comic tragic sold-out improvised masked melodramatic experimental witty silent provincial
          velvet dramatic farcical""",
    "kitchens": """cook chef waiter guest grandmother dishwasher host
        | pan knife soup stew onion carrot pot spoon ladle dumpling pie sauce spice-rack stove pepper cutting-board
          lemon noodle potato salad omelette pancake cauldron apron jar skillet dinner leftover
        | garlic olive_oil vinegar saffron broth parsley ginger rice paprika stock mustard
        | boil fry season chop peel simmer marinate roast stir taste garnish serve drain grate pickle reheat
        | spicy tender burnt savoury peppery simmering raw salted crisp fragrant lukewarm homemade hearty sweet""",
}

# The shared grammar: alternatives with `|` between them, or single words. Past tense for stories, present for essays.
GRAMMAR: dict[str, str] = {
    "sentence": """{clause}. | {clause}. | {clause}, and {clause}. | {clause}, but {clause}. | {opener}, {clause}. |
        {opener}, {clause}. | {clause} {because} {clause}. | {clause}; {clause}. | {hinge} {clause}, {clause}. |
        “{speech},” {said} {who}. | “{speech}. {speech}.” | {listing}. | {figure}. | {aside} | {clause} ({remark}).""",
    "clause": """{who} {verbed} {object} | {who} {verbed} {object} {where} | {who} {adverb} {verbed} {object} |
        {who} {verbed} {object} {when} | {who} had already {verbed} {object} |
        {who} wanted to {verb} {object} {when} | {who} could not {verb} {object} without {matter} |
        {object} looked {adj} {where} | the {adj} {thing} {happened} {when} |
        nobody {verbed} {object} as {adverb} as {hero} | it took {span} to {verb} {object} |
        {who} spent {span} {verbing} {object} | there was {matter} {where} |
        {who} remembered {object} and the smell of {matter} | {hero} taught {friend} to {verb} {object} |
        the {person} from {place} {doubted} that {who} would ever {verb} {object} | {matter} was {judged} |
        {friend} and {hero} {verbed} {object} together | each {thing} had its own {thing} |
        {number} {things} {happened} {where} | {object} {happened} before {who} could {verb} it""",
    "essay": """{essay_clause}. | {essay_clause}. | {essay_clause}, and {essay_clause}. |
        {essay_clause}, whereas {essay_clause}. | {linker}, {essay_clause}. | {linker}, {essay_clause}. |
        if {essay_clause}, {essay_clause}. | {listing}. | {figure}. | {question} | {essay_clause}: {essay_clause}. |
        {essay_clause} ({remark}). | {figure}, while {essay_clause}.""",
    "essay_clause": """most {persons} {verb} {object} {often} | the {person} {verbs} {object} {often} |
        {matter} is {judged_now} | {one} depends on {matter} | a {adj} {thing} needs {matter} and {matter} |
        {verbing} {object} is {judged_now} | {things} are {adverb_of_degree} more {adj} than {things} |
        {adj} {things} rarely come from {place} | the {thing} and the {thing} share {matter} |
        to {verb} a {thing}, one has to {verb} the {thing} first |
        no {person} {verbs} a {thing} without {verbing} it twice |
        the quality of {matter} decides how the {thing} behaves |
        a {person} who {verbs} {object} will sooner or later {verb} {object} |
        there are {number} ways to {verb} a {thing} | the {adj} {thing} was {verbed} in {year} by {hero} |
        {persons} in {place} prefer {adj} {things} |
        what looks like a {adj} {thing} may turn out to be a {adj} one | {matter} costs about {money} a {unit_one} |
        the word “{thing}” once meant any {adj} {thing} | few {things} survive more than {span} |
        {persons} of the old school {verb} {object} by hand | a good {thing} outlives its {person} |
        hardly anyone {verbs} {object} as {adverb} as the {persons} of {place} |
        textbooks tell you to {verb} {object}, experience tells you to {verb} the {thing} |
        every {person} has a story about a {adj} {thing} | too much {matter} makes the {thing} {adj} |
        {hero} measured {decimal} {unit} of {matter} in one {thing} | some call {matter} the soul of the {thing} |
        it pays to {verb} {object} before {verbing} the {thing} | one {adj} {thing} is worth {number} {adj} ones |
        the {things} of {place} are known for their {matter} | {adj} {things} call for a {adj_person} {person} |
        a {thing} without {matter} is like a {thing} without a {thing} | {matter} reacts badly to {matter} |
        museums in {place} and {place} still show {adj} {things} | the oldest {thing} stands {where} |
        a {person} can tell a {adj} {thing} from a {adj} one by its {matter} |
        children in {place} learn to {verb} a {thing} at the age of {number} |
        the {adj} {thing} has replaced the {adj} one almost everywhere""",
    "object": """the {thing} | the {thing} | the {adj} {thing} | the {adj} {thing} | a {thing} | a {adj} {thing} |
        the {things} | {number} {things} | some {adj} {things} | every {thing} | the {thing} of {friend} |
        the {thing} from {place} | the {matter} | the {adj} {matter} | that {thing} | another {thing} |
        both {things} | the {adj}, {adj} {thing}""",
    "one": "the {thing} | the {adj} {thing} | a {thing} | a {adj} {thing} | every {thing} | the {thing} of {friend}",
    "who": """{hero} | {hero} | {friend} | the {person} | the {person} | a {person} | the {adj_person} {person} |
        two {persons} | the {persons} | everyone | {friend}, a {person},""",
    "adj_person": """young old patient stubborn curious famous retired local careful absent-minded cheerful honest
        tired quick-tempered generous sceptical self-taught""",
    "adverb": """carefully quietly slowly reluctantly quickly happily patiently secretly regularly thoroughly gently
        hurriedly eagerly clumsily skilfully stubbornly proudly repeatedly silently calmly""",
    "adverb_of_degree": "far slightly considerably much rarely usually hardly generally",
    "often": """every day | before noon | only in autumn | twice a week | when nobody is looking | for {span} |
        with great care | as a matter of habit | without complaint | in {month} | after the first failure""",
    "where": """in {place} | near {place} | behind the {thing} | under the {thing} | beside a {adj} {thing} |
        by the {thing} | on the road to {place} | at the edge of town | in the back room | across the square |
        outside | between two {things} | in the shadow of the {thing} | at {hero}'s house""",
    "when": """in {month} | in {year} | at {clock} | the next morning | on {weekday} | before dawn | after the war |
        during the long winter | within {span} | as soon as possible | for the third time | at last |
        on the {day} of {month} | that same evening | a year later | without a word""",
    "opener": """in {month} of {year} | on {weekday} morning | by {clock} | after {span} | at first | in the end |
        as usual | to everyone's surprise | meanwhile | much later | one evening | that winter | in {place} |
        according to {friend} | without warning | as far as anyone knows | in those days | from then on""",
    "linker": """in practice | however | for example | as a rule | on the other hand | strictly speaking |
        in short | moreover | historically | in {place} | since {year} | according to {friend} ({year}) |
        by contrast | in other words | for this reason | surprisingly | as {hero} puts it | above all | to be fair""",
    "because": "because | although | so that | until | while | before | even though | just as | whenever",
    "hinge": "when | while | after | because | although | once | as | the moment",
    "happened": """vanished | broke | fell over | arrived | stood still | began to shine | went missing | froze |
        changed hands | turned up | burned | waited | came apart | grew | failed | made a strange sound""",
    "doubted": "doubted | hoped | claimed | feared | swore | explained | did not believe | guessed",
    "judged": """scarce that year | worth more than gold | nowhere to be found | everything to {hero} |
        never the problem | the talk of the town | hard to come by | better than expected | cheap in {place} |
        already gone""",
    "judged_now": """hard to describe | a question of taste | easier than it looks | still poorly understood |
        overrated | the heart of the craft | mostly a matter of {matter} | best left to a {person} |
        never quite finished | what separates a {person} from a {person} | cheaper in {place} | worth the effort |
        a recent idea""",
    "speech": """you cannot {verb} a {thing} like that | we need more {matter} | somebody {verbed} my {thing} |
        I will {verb} it myself | give me {span} | the {thing} is yours | never trust a {adj} {thing} |
        there is no {matter} left in {place} | let us {verb} the {thing} {when} |
        I have seen {number} {things} and not one was {adj} | ask {friend} |
        it was not me who {verbed} the {thing} | the {person} knows | {matter} first, {matter} later""",
    "said": "said whispered answered shouted wrote muttered replied insisted laughed",
    "listing": """there were {things}, {things}, {things} and {number} {adj} {things} {where} |
        {hero} packed a {thing}, {number} {things}, some {matter} and a {adj} {thing} |
        the inventory of {year} names {number} {things}, {number} {things} and a {thing} |
        three things matter: {matter}, {matter} and the {thing}""",
    "figure": """in {year} there were {big} {things} in {place}, a century later only {number} |
        about {percent} of all {things} are {adj} | the {thing} weighs {decimal} {unit} and costs {money} |
        {place} counted {big} {persons} in {year} | of {big} {things}, {percent} were {adj} and {percent} {adj} |
        the mean rose from {decimal} to {decimal} | the {adj} {thing} measured {decimal} by {decimal} {unit}""",
    "aside": """Why not? | It had to be {weekday}. | So much for the {thing}. | Nobody asked. |
        {matter}, of course. | Then, {matter}. | That was in {year}. | Silence. | Not a single {thing}. |
        What a {adj} {thing}!""",
    "question": """why do {persons} {verb} {things}? | who would {verb} a {adj} {thing}? |
        what does a {thing} need? | is {matter} really {judged_now}? | how many {things} does a {person} own?""",
    "remark": """see the {thing} above | {hero} disagrees | at least {often} | not to be confused with the {thing} |
        {year} to {year} | p. {number} | {percent} in a good year | the {person} calls it “{matter}”""",
    "title": """The {adj} {thing} | How to {verb} a {thing} | {hero} and the {thing} | A short history of {matter} |
        On {verbing} {things} | The {things} of {place} | Why {things} are {adj} | {number} {things} |
        {matter} and {matter} | Notes from {place} | What every {person} should know |
        Letters to a {adj_person} {person} | {place}, {year}""",
    "heading": """The {thing} | {matter} | In {place} | {verbing} {things} | A {adj} {thing} | After {year} |
        The {person}'s view""",
    "step": """{verb} the {thing} for {span}. | Take a {adj} {thing} and {verb} it {where}. |
        Add {decimal} {unit} of {matter}. | Never {verb} the {thing} before {clock}. |
        {verb} {number} {things}, then {verb} the {thing} {adverb}. | Ask a {person} to {verb} the {things}. |
        Check the {matter}; it should be {adj}, not {adj}.""",
    "note": """{things}: {number}, {adj}. | Remember to {verb} the {thing} {when}! |
        {hero} called at {clock} about the {thing}. | Closed on {weekday}. | Idea: {verb} {object} {where}? |
        {money} for {number} {things}. Too much. | Lost: {adj} {thing}. Ask {friend}. |
        {weekday}, {clock}: {clause}. | {thing} → {thing} → {thing} | TODO {verb} {things} ({hero}) | “{speech}.” |
        {clause}. {emoji} | {emoji} {matter} {emoji} | Thanks, {friend}! {emoji} | ISBN {big}-{number}: {title} |
        {place} {decimal} °C, {adj}""",
    "emoji": """🐝 ⛵ 🍞 🔭 🚂 🌷 🏺 ♟️ 🏔️ 📻 🧶 ⏰ 🦦 ☕ 🎻 🏛️ 📚 🚲 🩺 💾 🤖 📊 🧀 📷 🦉 🪟 ⚖️ 💶 🌦️ 🎭 🍲 👩‍🔬
        👍🏽 🇫🇷 🙂 🎉""",
    "month": "January February March April May June July August September October November December",
    "weekday": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "day": "first second third fourth fifth tenth twelfth fifteenth twentieth last",
    "span": """{number} minutes | {number} days | a week | three months | half an hour | two winters | a lifetime |
        {number} years""",
    "unit": "grams metres litres kilometres tonnes inches pounds millimetres",
    "unit_one": "gram metre litre kilometre tonne inch pound millimetre",
    "first_name": """Ada Amir Anouk Bela Bruno Carla Chiara Daniel Delia Edith Elif Emeka Farid Fiona Greta Gustav
        Hana Henrik Ines Ivan Jamila Jonas Kaito Karin Lars Leila Lucia Magnus Maren Mateo Mei Milan Nadia Nils Noor
        Olga Oskar Paula Pedro Quentin Rafael Rosa Ruth Samir Selma Silvio Tamar Theo Tomoko Ulrike Vera Viktor
        Wanda Xenia Yara Yusuf Zeno Zora""",
    "name_head": """Ald Ander Bar Beck Berg Blom Brad Cal Dorn Eck Fair Fen Gar Grim Hal Hart Holm Kel Lang Lind Mar
        Mor Nor Oster Pen Quist Rav Rosen Sand Stein Thorn Ulm Vand Wald Wester Win""",
    "full_name": "{first_name} {name_head}{surname_tail} | {first_name} {name_head}{surname_tail}",
    "new_place": "{name_head}{place_tail}",
    "surname_tail": "berg dahl er feld ford hurst ini ley man mann ova quist sen son stedt ström ton wick wood worth",
    "place_tail": """bach borough bridge bury by dale field haven holm mouth port stad stead thwaite ton vik ville
        wick""",
}

# Small grammars of other languages; `{n}` is a number.
LANGUAGES: dict[str, dict[str, str]] = {
    "de": {
        "sentence": """{wann} {tat} {wer} {was}. | {wer} {tat} {wann} {was}. | „{wort}“, sagte {wer}. |
            {wer} {tat} {was}, weil es {wann} regnete. | Das kostet {n} Euro und ist trotzdem schön. |
            Warum {tat} {wer} {was}? | Es gab {n} Gründe, und keiner überzeugte.""",
        "wann": """gestern | im Frühling | jeden Morgen | vor {n} Jahren | am Dienstag | kurz vor Mitternacht |
            früher | während der Ferien""",
        "wer": """die Bäckerin | der alte Lehrer | meine Großmutter | ein Straßenbahnfahrer |
            das Mädchen von gegenüber | unser Nachbar | die Geigenbauerin""",
        "tat": "suchte verkaufte reparierte vergaß übersetzte bemalte fürchtete bestellte untersuchte",
        "was": """den Schlüssel | ein Wörterbuch | die Donaudampfschifffahrtsgesellschaft | frische Brötchen |
            das Geheimnis der Uhr | zwei Äpfel | die Wettervorhersage | einen Regenschirm""",
        "wort": """Übung macht den Meister | Das geht so nicht | Ich hätte gern ein Stück Käse |
            Morgen wird alles anders | Schöne Grüße aus Köln""",
    },
    "fr": {
        "sentence": """{quand}, {qui} {fit} {quoi}. | {qui} {fit} {quoi} sans dire un mot. |
            « {mot} », répondit {qui}. | Il y avait {n} raisons d'être content. | « Et {quoi} ? » demanda {qui}. |
            {qui} {fit} {quoi}, puis s'en alla. | C'était il y a {n} ans, peut-être plus.""",
        "quand": """hier soir | à l'aube | au mois d'août | il y a longtemps | pendant l'été | ce matin-là |
            après le dîner""",
        "qui": """la boulangère | le vieux pêcheur | ma sœur | un élève de l'école | la voisine du troisième |
            le garçon de café""",
        "fit": "chercha oublia répara vendit dessina trouva écouta mangea",
        "quoi": """le bateau | une chanson | la clé du grenier | des crêpes | l'œuvre entière |
            un château de sable | les fenêtres | ça""",
        "mot": "Ce n'est pas grave | Où est passé le chat | J'ai tout compris | À bientôt | Quel drôle d'hiver",
    },
    "es": {
        "sentence": """{cuando} {quien} {hizo} {que}. | {quien} {hizo} {que} en silencio. |
            ¿Por qué {hizo} {quien} {que}? | ¡{frase}! | —{frase} —dijo {quien}. |
            Hacía {n} años que nadie visitaba el pueblo. | {quien} {hizo} {que}, pero nadie lo creyó.""",
        "cuando": "ayer | por la mañana | el año pasado | antes de la lluvia | una noche de enero | después de comer",
        "quien": "la maestra | el niño | mi abuelo | una señora de Cádiz | el relojero | la pequeña orquesta",
        "hizo": "compró perdió pintó abrió escuchó enseñó preparó encontró",
        "que": """una guitarra | el periódico | la montaña más alta | un queso de oveja | las canciones de siempre |
            el mapa | tres naranjas""",
        "frase": "Qué alegría | Mañana será otro día | No me lo digas | Buenos días, señor | El corazón no envejece",
    },
    "ja": {
        "sentence": """{いつ}、{だれ}は{なに}を{した}。 {だれ}は{なに}を{した}。 「{ことば}」と{だれ}が言った。
            {いつ}は{n}人が集まりました。 {なに}はとても大切です。""",
        "いつ": "昨日 春の朝 雨の日 去年の夏 夜中 週末",
        "だれ": "先生 パン屋さん 私の祖母 若い写真家 駅員 猫",
        "なに": "古い時計 おいしいコーヒー 地図 手紙 天体望遠鏡 自転車 チーズ 言葉の意味",
        "した": "探しました 直しました 忘れました 買いました 見つけた 描いた 食べました",
        "ことば": "ありがとう また明日 それは面白いですね どこへ行きますか 大丈夫です",
    },
    "zh": {
        "sentence": """{时间}，{谁}{做}{什么}。 {谁}{做}{什么}，因为{时间}下雨。 “{话}，”{谁}说。 这里有{n}种方法。
            {什么}很重要，但是不容易。""",
        "时间": "昨天 春天的早晨 去年 晚上 星期一 很久以前",
        "谁": "老师 面包师 我的奶奶 年轻的工程师 图书管理员 邻居",
        "做": "修理了 忘记了 买了 找到了 研究了 翻译了 喜欢",
        "什么": "一本词典 那台旧收音机 新鲜的茶 望远镜 山上的小路 一封信 机器学习的数据",
        "话": "谢谢你 明天见 这个问题很有意思 慢慢来 请喝茶",
    },
    "ar": {
        "sentence": """{متى} {فعل} {من} {ماذا}. | {فعل} {من} {ماذا} بهدوء. | قال {من}: «{كلام}». |
            هناك {n} طريقة لذلك. | هل {فعل} {من} {ماذا}؟""",
        "متى": "أمس | في الصباح | قبل الشتاء | في العام الماضي | بعد المطر | ذات ليلة",
        "من": "المعلم | الخباز | جدي | المهندس الشاب | البحار | أمين المكتبة",
        "فعل": "أصلح وجد نسي اشترى كتب رسم قرأ",
        "ماذا": "الساعة القديمة | رسالة طويلة | الكتاب | خريطة المدينة | قهوة طازجة | نافذة زرقاء",
        "كلام": "شكرا جزيلا | إلى اللقاء | هذا سؤال جيد | الصبر مفتاح الفرج | أين الطريق",
    },
}

# Code fragments; `{a}`, `{b}` and `{c}` are identifiers, `{n}` and `{m}` are numbers.
CODE = {
    "python": [
        """def {a}_{b}({c}: list[int], limit: int = {n}) -> int:
    total = 0
    for value in {c}:
        if value > limit:
            continue
        total += value
    return total
""",
        """class {A}:
    # One {a} and its {b}.

    def __init__(self, {b}: str, {c}: float = {n}.{m}) -> None:
        self.{b} = {b}
        self.{c} = {c}
""",
        """with open("{a}.json", encoding="utf-8") as file:
    {b} = json.load(file)
print(len({b}), sum(x["{c}"] for x in {b}))
""",
        """{a} = np.arange({n})
{b} = {a}[{a} % {m} == 0]
assert {b}.shape[0] <= {n}, "too many"
""",
        """try:
    {a} = load_{b}("{c}", retries={m})
except TimeoutError as error:
    raise SystemExit(1) from error
""",
    ],
    "javascript": [
        """export function {a}({b}, {c} = {n}) {
  return {b}.filter((x) => x.{a} > {c}).map((x) => x.id);
}
""",
        """const {a} = await fetch(`/api/{b}?limit={n}`);
if (!{a}.ok) throw new Error("no {b}: " + {a}.status);
""",
        """for (let i = 0; i < {n}; i += {m}) {
\tconsole.log(i, {a}[i] ?? "{b}");
}
""",
    ],
    "sql": [
        """SELECT {a}, COUNT(*) AS {b}
FROM {c}
WHERE year >= {n} AND {a} IS NOT NULL
GROUP BY {a}
ORDER BY {b} DESC
LIMIT {m};
""",
        """CREATE TABLE {a} (
  id INTEGER PRIMARY KEY,
  {b} TEXT NOT NULL,
  {c} REAL DEFAULT {n}.{m}
);
""",
    ],
    "shell": [
        """#!/bin/sh
set -eu
for file in {a}/*.{b}; do
  gzip -{m} "$file" && echo "$file" >> {c}.log
done
""",
        """sort -k{m} -n {a}.tsv | uniq -c | head -n {n} > {b}.txt
""",
    ],
    "rust": [
        """fn {a}({b}: &[u32]) -> Option<u32> {
    {b}.iter().copied().filter(|x| x % {m} == 0).max()
}
""",
        """let mut {a}: HashMap<String, usize> = HashMap::with_capacity({n});
*{a}.entry("{b}".into()).or_insert(0) += {m};
""",
    ],
    "json": [
        """{
  "{a}": {n},
  "{b}": ["{c}", null, true],
  "ratio": 0.{m}
}
"""
    ],
}

SYMBOL = re.compile(r"\{(\w+)\}")


def word_list(text: str) -> list[str]:
    """`"bee royal_jelly"` -> `["bee", "royal jelly"]`."""
    return [word.replace("_", " ") for word in text.split()]


def alternatives(text: str) -> list[str]:
    """`"in {year} | at last"` -> `["in {year}", "at last"]`, `"Monday Tuesday"` -> `["Monday", "Tuesday"]`."""
    return [" ".join(part.split()) for part in text.split("|")] if "|" in text else text.split()


def parsed(grammar: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """Each symbol's alternatives."""
    return {symbol: alternatives(text) for symbol, text in grammar.items()}


COUNTS = [*range(2, 13), 15, 17, 20, 24, 31, 40, 48, 60, 75, 90]
NUMBERS: dict[str, Callable[[random.Random], str]] = {
    "number": lambda rng: str(rng.choice(COUNTS)),
    "big": lambda rng: f"{rng.randrange(101, 99_999):,}",
    "year": lambda rng: str(rng.randrange(1740, 2025)),
    "percent": lambda rng: f"{rng.randrange(1, 100)}%",
    "decimal": lambda rng: f"{rng.randrange(1, 400)}.{rng.randrange(10)}",
    "money": lambda rng: f"{rng.choice('$€£')}{rng.randrange(2, 900)}",
    "clock": lambda rng: f"{rng.randrange(5, 24)}:{rng.randrange(0, 60, 5):02d}",
}
RULES = parsed(GRAMMAR)
LANGUAGE_RULES = {language: parsed(grammar) for language, grammar in LANGUAGES.items()}


def plural(noun: str) -> str:
    """`fly` -> `flies`, `box` -> `boxes`, `hive` -> `hives`. Also the third person of a verb."""
    if noun in IRREGULAR_PLURAL:
        return IRREGULAR_PLURAL[noun]
    for ending, replacement in ((r"([^aeiou])y$", r"\1ies"), (r"sis$", "ses"), (r"man$", "men")):
        if re.search(ending, noun):
            return re.sub(ending, replacement, noun)
    return noun + ("es" if re.search(r"(s|x|z|ch|sh)$", noun) else "s")


def pairs(text: str) -> dict[str, str]:
    """`"feed fed | lend lent"` -> `{"feed": "fed", "lend": "lent"}`."""
    return dict(pair.split() for pair in text.split("|"))


IRREGULAR_PLURAL = pairs(
    """knife knives | loaf loaves | shelf shelves | cooling-shelf cooling-shelves | potato potatoes | tomato tomatoes |
    goose geese | cargo cargoes | roll-of-film rolls-of-film | epoch epochs | bellows bellows |
    trout trout | pike pike"""
)
IRREGULAR_PAST = pairs(
    """feed fed | spin spun | grind ground | build built | lend lent | wind wound | bind bound | bend bent | cut cut |
    undercut undercut | cast cast | broadcast broadcast | light lit | dig dug"""
)
DOUBLING = word_list(
    """cancel chop crop cut dam debug dig hum jam map model pedal pin plan plot scan ship sip skim spin stir thin
    transmit trim undercut unravel wrap"""
)


def inflect(verb: str, ending: str) -> str:
    """`("carry", "ed")` -> `carried`; a particle stays: `("wind up", "ing")` -> `winding up`."""
    stem, _, particle = verb.partition(" ")
    tail = f" {particle}" if particle else ""
    if ending == "s":
        return plural(stem) + tail
    if ending == "ed" and stem in IRREGULAR_PAST:
        return IRREGULAR_PAST[stem] + tail
    if stem in DOUBLING:
        return stem + stem[-1] + ending + tail
    if stem.endswith("e") and not (ending == "ing" and stem.endswith(("ee", "ye"))):
        return stem[:-1] + ending + tail
    if ending == "ed" and re.search(r"[^aeiou]y$", stem):
        return stem[:-1] + "ied" + tail
    return stem + ending + tail


def lexicon(topic: str) -> dict[str, Sequence[str]]:
    """Grammar symbols that a topic's word lists stand for."""
    persons, things, matters, verbs, adjectives = (word_list(column) for column in TOPICS[topic].split("|"))
    return {
        "person": persons,
        "persons": [plural(word) for word in persons],
        "thing": things,
        "things": [plural(word) for word in things],
        "matter": matters,
        "verb": verbs,
        "verbs": [inflect(word, "s") for word in verbs],
        "verbed": [inflect(word, "ed") for word in verbs],
        "verbing": [inflect(word, "ing") for word in verbs],
        "adj": adjectives,
    }


class Voice:
    """Expands the grammar for one document: the words of a topic, and names that stay the same throughout."""

    def __init__(self, rng: random.Random, topic: str) -> None:
        self.rng = rng
        self.topic = topic
        self.rules: dict[str, Sequence[str]] = {**RULES, **lexicon(topic)}
        self.hero, friend = self._expand("full_name"), self._expand("full_name")
        self.rules["hero"] = [self.hero, self.hero, self.hero.split()[0]]
        self.rules["friend"] = [friend, friend.split()[0]]
        self.rules["place"] = [self._expand("new_place") for _ in range(3)]

    def say(self, symbol: str) -> str:
        """A finished text for a symbol: articles agree, the first letter is a capital."""
        return capitalised(agreeing(self._expand(symbol)))

    def _expand(self, symbol: str) -> str:
        if symbol in NUMBERS:
            return NUMBERS[symbol](self.rng)
        return SYMBOL.sub(lambda match: self._expand(match[1]), self.rng.choice(self.rules[symbol]))

    def paragraphs(self, words: int, symbol: str) -> list[str]:
        """Paragraphs of about this many words in all, at least one sentence."""
        result: list[str] = []
        while words > 0:
            sentences: list[str] = []
            for _ in range(self.rng.randrange(2, 8)):
                sentences.append(self.say(symbol))
                words -= len(sentences[-1].split())
                if words <= 0:
                    break
            result.append(" ".join(sentences))
        return result


def agreeing(text: str) -> str:
    """`a apple` -> `an apple`."""
    return re.sub(r"\b([Aa]) (?=hour|honest|[aeio](?!uro)|u(?!ni[^mn]|se))", r"\1n ", text)


def capitalised(text: str) -> str:
    """Capital first letters, also after an opening quotation mark."""
    return re.sub(r"(^\W*|[.?!] “?)(\w)", lambda match: match[1] + match[2].upper(), text)


def foreign_text(rng: random.Random, language: str, sentences: int) -> str:
    """So many sentences of another language."""
    rules = LANGUAGE_RULES[language]

    def expand(match: re.Match[str]) -> str:
        if match[1] == "n":
            return str(rng.randrange(2, 90))
        return SYMBOL.sub(expand, rng.choice(rules[match[1]]))

    gap = "" if language in ("ja", "zh") else " "
    return gap.join(capitalised(SYMBOL.sub(expand, "{sentence}")) for _ in range(sentences))


def code_text(rng: random.Random, language: str, voice: Voice) -> str:
    """A code fragment with identifiers from the voice's topic."""
    a, b, c = (re.sub(r"\W", "_", rng.choice(voice.rules[symbol])) for symbol in ("thing", "things", "matter"))
    values = {"a": a, "b": b, "c": c, "A": a.title().replace("_", "")}
    values |= {"n": str(rng.randrange(8, 2049)), "m": str(rng.randrange(2, 10))}
    return SYMBOL.sub(lambda match: values.get(match[1], match[0]), rng.choice(CODE[language]))


def table_text(voice: Voice, rows: int) -> str:
    """A Markdown table of made-up measurements."""
    lines = [f"| {voice.say('thing')} | {voice.say('matter')} | {voice.say('unit')} |", "| --- | ---: | ---: |"]
    for _ in range(rows):
        lines.append(
            f"| {voice.say('adj')} {voice.say('thing').lower()} | {voice.say('decimal')} | {voice.say('big')} |"
        )
    return "\n".join(lines)


def steps_text(voice: Voice, count: int) -> str:
    """A numbered list of instructions."""
    return "\n".join(f"{number}. {voice.say('step')}" for number in range(1, count + 1))


def extra_text(rng: random.Random, voice: Voice) -> str:
    """What articles have between their paragraphs: a list, a table, a listing, a quotation in another language."""
    kind = rng.choice(["steps", "steps", "table", "code", "foreign", "quote"])
    if kind == "steps":
        return steps_text(voice, rng.randrange(3, 8))
    if kind == "table":
        return table_text(voice, rng.randrange(2, 7))
    if kind == "code":
        language = rng.choice(list(CODE))
        return f"```{language}\n{code_text(rng, language, voice)}```"
    if kind == "foreign":
        return "> " + foreign_text(rng, rng.choice(list(LANGUAGES)), rng.randrange(1, 4))
    return f"> {voice.say('clause')}.\n>\n> — {voice.hero}, {voice.say('year')}"


def article_text(rng: random.Random, topic: str, words: int) -> str:
    """An article of about `words` words. Long ones get sections, some of them on another topic."""
    if words < 15:
        return Voice(rng, topic).say("note")
    sections: list[str] = []
    while words > 0:
        voice = Voice(rng, topic if not sections or rng.random() < 0.5 else rng.choice(list(TOPICS)))
        share = words if words < 260 else rng.randrange(120, 260)
        blocks = voice.paragraphs(share, rng.choice(["sentence", "essay", "essay"]))
        if share > 100 and rng.random() < 0.5:
            blocks.insert(rng.randrange(1, len(blocks) + 1), extra_text(rng, voice))
        if sections:
            blocks.insert(0, f"## {voice.say('heading')}")
        sections.append("\n\n".join(blocks))
        words -= share
    return "\n\n".join(sections)


def lognormal_lengths(rng: random.Random, count: int, median: int, sigma: float) -> list[int]:
    """Evenly spaced quantiles of a lognormal distribution, shuffled: the long tail is there for any seed."""
    normal = NormalDist()
    lengths = [round(median * math.exp(sigma * normal.inv_cdf((i + 0.5) / count))) for i in range(count)]
    rng.shuffle(lengths)
    return [max(1, length) for length in lengths]


def articles(seed: str, count: int, median: int, sigma: float) -> list[Record]:
    """Documents {"id", "title", "topic", "lang", "text"}; about one in twelve is in another language."""
    rng = random.Random(seed)
    records: list[Record] = []
    for number, words in enumerate(lognormal_lengths(rng, count, median, sigma)):
        topic = rng.choice(list(TOPICS))
        lang = rng.choice(list(LANGUAGES)) if words < 300 and rng.random() < 0.1 else "en"
        text = article_text(rng, topic, words) if lang == "en" else foreign_text(rng, lang, max(1, words // 8))
        title = Voice(rng, topic).say("title") if lang == "en" else foreign_text(rng, lang, 1)
        records.append(
            {
                "id": f"{seed}-{number:04d}",
                "title": title,
                "topic": topic if lang == "en" else "everyday life",
                "lang": lang,
                "text": text,
            }
        )
    return records


def story(seed: str, chapters: int, words: int) -> str:
    """One long text in chapters."""
    rng = random.Random(seed)
    parts = []
    for number in range(1, chapters + 1):
        voice = Voice(rng, rng.choice(list(TOPICS)))
        parts += [f"Chapter {number}: {voice.say('title')}", *voice.paragraphs(words, "sentence")]
    return "\n\n".join(parts) + "\n"


def notes(seed: str, count: int) -> list[str]:
    """Short texts of one line each."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        if rng.random() < 0.12:
            lines.append(foreign_text(rng, rng.choice(list(LANGUAGES)), 1))
            continue
        voice = Voice(rng, rng.choice(list(TOPICS)))
        lines.append(" ".join(voice.say(rng.choice(["note", "note", "sentence"])) for _ in range(rng.randrange(1, 4))))
    return lines


def snippets(seed: str, count: int) -> list[Record]:
    """Code fragments {"id", "language", "text"}."""
    rng = random.Random(seed)
    records = []
    for number in range(count):
        language = rng.choice(list(CODE))
        text = code_text(rng, language, Voice(rng, rng.choice(list(TOPICS))))
        records.append({"id": number, "language": language, "text": text})
    return records


def chats(seed: str, count: int) -> list[Record]:
    """Conversations {"id", "messages"} of one to four turns; half of them begin with a system message."""
    rng = random.Random(seed)
    records = []
    for number in range(count):
        voice = Voice(rng, rng.choice(list(TOPICS)))
        messages = []
        if rng.random() < 0.5:
            content = agreeing(
                f"You are a {voice.say('adj_person').lower()} assistant who knows all about {voice.topic}."
            )
            messages.append({"role": "system", "content": content})
        for _ in range(rng.randrange(1, 5)):
            messages.append({"role": "user", "content": voice.say(rng.choice(["question", "question", "note"]))})
            messages.append({"role": "assistant", "content": answer(rng, voice)})
        records.append({"id": f"{seed}-{number:04d}", "messages": messages})
    return records


def answer(rng: random.Random, voice: Voice) -> str:
    """What the assistant says: a paragraph or two, now and then a list, code or a sentence in another language."""
    blocks = voice.paragraphs(rng.choice([6, 20, 40, 90]), "essay")
    if rng.random() < 0.25:
        blocks.append(extra_text(rng, voice))
    return "\n\n".join(blocks)


def json_lines(records: Iterable[Record]) -> bytes:
    """JSON Lines in UTF-8, not escaped."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def write_csv(path: Path, records: Sequence[Record]) -> None:
    """A header and one record a line; texts with line feeds are quoted."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def write_gzip(path: Path, members: Iterable[bytes]) -> None:
    """A gzip file of several members, without name or time."""
    with path.open("wb") as file:
        for member in members:
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as stream:
                stream.write(member)


def write_all(out: Path) -> None:
    """Writes every sample file into `out`, except the tokenizer and what it encodes."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "articles.jsonl").write_bytes(json_lines(articles("articles", 360, 70, 1.35)))
    (out / "stories.txt").write_bytes(story("stories", 12, 420).encode())
    (out / "notes.txt").write_bytes("".join(f"{line}\n" for line in notes("notes", 240)).encode())
    essays = pa.Table.from_pylist(articles("essays", 60, 70, 1.0))
    pq.write_table(essays, out / "articles.parquet", compression="zstd", row_group_size=20)
    write_csv(out / "snippets.csv", snippets("snippets", 80))
    letters = articles("letters", 60, 70, 1.0)
    write_gzip(out / "compressed.jsonl.gz", [json_lines(letters[:30]), json_lines(letters[30:])])
    (out / "chats.jsonl").write_bytes(json_lines(chats("chats", 60)))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write the sample corpus.")
    parser.add_argument("--out", type=Path, default=SAMPLE_DATA, help="folder to write to")
    write_all(parser.parse_args().out)


if __name__ == "__main__":
    main()
