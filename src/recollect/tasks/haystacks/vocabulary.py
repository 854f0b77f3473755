"""Plain English words that made-up keys and lists are drawn from."""

from __future__ import annotations

_ADJECTIVES = """
able acid agile airy amber ample ancient apt arid ashen azure balmy bare bitter bland blunt
bold bony bright brisk brittle broad bronze bumpy busy calm candid careful cheap chilly
civil classic clean clear clever coarse cold cosmic crisp cubic curly curved damp dapper
daring dark deep dense dim distant dizzy double dry dull dusty eager early earnest easy
elder elegant empty equal even exact faint fair famous fancy fast faulty fertile fierce fine
firm flat fluent fond formal frail free fresh frosty full fuzzy gentle giant gifted glad
glossy golden grand grassy grave great gritty handy happy hardy harsh hasty hazy heavy
hidden high hollow honest huge humble humid icy ideal idle inner jolly jumpy keen kind large
late lazy lean light little lively local lonely long loose loud lovely loyal lucid lucky
lunar mellow merry mighty mild minor misty modern modest moist muddy muted narrow nearby
neat nervous nimble noble noisy novel oaken odd oily old open outer oval pale patient plain
playful plump polar polite precise prime private proper proud public pure quaint quick quiet
rapid rare raw ready regal remote rich rigid ripe robust rocky rough round royal rural rusty
salty sandy sharp shiny short silent silky silver simple sleek slim slow small smart smoky
smooth snowy social soft solar solid sour spare spicy spiral stable stark steady steep stern
sticky stiff still stout strict strong sturdy subtle sudden sunny super sweet swift tall
tame tart tender thick thin thorny tidy timid tiny tough trusty twin upper urban usual vague
valid vast vivid warm wary watery weary weekly wet wide wild windy wise witty wooden woolly
young zesty
"""

_NOUNS = """
acorn album alley almond amulet anchor antler anvil apron arbor arch arrow artist aspen
atlas attic aunt author avenue badge bakery ballad bamboo banjo banner barge barn barrel
basin basket beach beacon beaver bell bench berry bicycle biscuit blanket blossom bonnet
border bottle boulder branch brick bridge brook broom bucket buckle bugle butter button
cabin cable cactus camel camera candle canoe canvas canyon captain carpet carrot castle
cedar cellar chain chalk chapel cherry chimney circle cliff clock cloud clover coast cobbler
collar comet compass copper coral corner cottage cotton cousin cradle crane crayon cricket
crown crystal curtain cushion dagger daisy dancer desert diamond dolphin donkey dragon
drawer drum eagle easel elbow elm ember engine falcon farmer feather fence ferry fiddle
fiddler field finch flask flute forest fossil fountain fox galaxy garden garlic gate geyser
ginger glacier glove goose granite grape harbor harness harp hawk hazel helmet herald heron
hill hinge honey horizon hornet hunter iris island ivory jacket jasmine jewel jigsaw jungle
juniper kettle kitten ladder lagoon lantern lasso laurel ledger lemon letter library lily
linen lizard locket lotus magnet mallet mango mantle maple marble market marsh meadow melon
mentor meteor mill mirror mitten monk moss mountain mustard napkin needle nest nickel nutmeg
oasis oboe ocean olive onion orange orchard orchid otter oven owl oyster paddle palace
panther parade parcel parrot pasture peach pebble pelican pencil pepper piano pigeon pillow
pilot pine planet plaza plum pocket poet pond poplar poppy portal prairie prism puddle
puffin pumpkin puzzle quarry quill quilt rabbit radish raft ranch raven ribbon river robin
rocket saddle saffron sailor salmon sapling satchel scarf school scroll seed shadow shell
shepherd shovel signal singer skillet slipper sparrow spider spoon spruce squirrel statue
stork stove stream summit sunset swan tailor teapot temple thicket thimble thistle thunder
tiger timber toad torch tower tractor trail trumpet tulip tunnel turnip turtle valley vase
velvet village violet violin wagon walnut waterfall weaver whale wheat whistle willow window
winter wizard wolf woods yarn zebra
"""

ADJECTIVES: tuple[str, ...] = tuple(_ADJECTIVES.split())
NOUNS: tuple[str, ...] = tuple(_NOUNS.split())
