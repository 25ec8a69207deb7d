# SPDX-License-Identifier: Apache-2.0
"""The word stock of the book: plain English words in the categories that `corpus.py` combines.

Few enough that almost every word becomes one token of a 2048-token vocabulary. That matters: a word
cut into pieces would let a draft guess the second piece from the first, without the target's help.
"""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split("/"))


SYLLABLES = (
    _split("tar hal bren os mir quel dun fal sel nor vin kest ard lim pol rav jun wex cor ild"),
    _split("vo wick by mere holt stead ra den mouth low combe ley garth sa fell bury ne ton"),
)

TRADES = _split(
    "miller baker carter weaver potter smith mason tailor fisher ferryman shepherd clerk doctor"
    " teacher printer painter gardener hunter drummer keeper porter cooper dyer tanner thatcher"
    " glazier brewer pilot saddler bookbinder clockmaker beekeeper locksmith midwife judge sexton"
)

KIN = _split("mother father sister brother uncle cousin widow daughter neighbour servant stranger")

OBJECTS = _split(
    "lamp ladder kettle barrel basket wheel rope hammer mirror candle letter map ledger bell anchor"
    " cart saddle lantern knife needle blanket cloak boot ring coin purse chest table chair stove"
    " bottle jug plate spoon loaf cheese apple pear plum onion sack shovel plough net oar sail flag"
    " drum flute fiddle clock key lock hinge window shutter carpet brush bucket broom whistle spade"
    " thimble umbrella telescope compass statue portrait"
)

PLACES = _split(
    "mill bridge harbour market chapel tower well orchard meadow quarry forest ferry inn forge"
    " granary library school courthouse barracks cellar attic kitchen stable garden wharf"
    " lighthouse canal dyke marsh valley ridge summit crossroads tavern workshop bakery"
    " tannery vineyard graveyard gate square tunnel causeway reservoir"
)

CREATURES = _split(
    "fox hen goose mule ox heron owl crow otter hound cat pony goat ram swan trout eel badger"
    " hedgehog sparrow"
)

PLURALS = _split(
    "lamps ropes coins letters bells carts knives candles sacks barrels boots apples onions nets"
    " wheels hens geese mules crows ducks stones bricks planks nails ribbons songs stories promises"
    " debts taxes guests children travellers sailors soldiers farmers merchants pilgrims thieves"
    " windows doors roofs fields ditches fences hedges roads"
)

ABSTRACT = _split(
    "silence patience courage anger hunger luck weather justice harvest winter rumour quarrel"
    " bargain custom secret fever holiday festival journey wedding flood frost drought fog thunder"
)

ADJECTIVES = _split(
    "old young narrow wide broken heavy quiet bright dusty wooden iron copper silver green yellow"
    " grey scarlet empty crooked hollow polished rusty damp frozen cheap costly famous forgotten"
    " honest clever foolish gentle stubborn hungry tired cheerful lonely patient proud lame deaf"
    " blind tall short round square painted borrowed stolen holy strange plain useless precious"
    " ancient crowded haunted southern northern eastern western muddy sunny windy bitter sweet"
)

ADVERBS = _split(
    "slowly quickly quietly twice once gladly seldom often carefully badly proudly secretly openly"
    " early late alone together again almost hardly bravely politely suddenly gently rarely daily"
)

#: Past tense, followed by an object.
TRANSITIVE = _split(
    "bought sold carried dropped mended painted stole hid found lost counted weighed measured"
    " borrowed buried opened closed broke cleaned followed watched guarded drew lifted pushed"
    " pulled burned washed praised cursed blamed forgave remembered described traded wrapped"
    " copied hung polished repaired inspected emptied filled promised refused admired ignored"
    " feared loved inherited auctioned sketched discovered"
)

#: Past tense, no object.
INTRANSITIVE = _split(
    "slept waited sang wept laughed stumbled vanished returned arrived left hesitated trembled"
    " prayed whistled shouted whispered wandered rested swam climbed fell danced coughed frowned"
    " smiled argued listened stayed fled knelt"
)

#: Base form, after "to", "could", "would" and the like.
BASE = _split(
    "buy sell carry mend paint steal hide find count weigh measure borrow bury open close break"
    " clean follow watch guard lift push pull burn wash praise blame forgive remember describe"
    " trade wrap copy polish repair inspect empty fill refuse admire ignore fear love"
)

MODALS = _phrases(
    "could / would / might / had to / meant to / tried to / forgot to / wished to / learned to /"
    " dared to / used to / agreed to / began to / offered to / never would / could not"
)

DETERMINERS = _split("the a this that every another some no one his her their our each either any")
PLURAL_DETERMINERS = _split("the these those many few several some all most both his her their our")

NUMBERS = _split(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty"
    " seventy ninety"
)

#: Before an object or a place.
PREPOSITIONS = _phrases(
    "behind / beside / under / near / above / below / beyond / inside / outside / before / after /"
    " without / against / across / around / towards / from / with / for / past / over / through"
)

CONJUNCTIONS = _split("and but so because although while until since unless whereas before after")

TIMES = _phrases(
    "at dawn / at noon / at dusk / after supper / before breakfast / last spring / one autumn /"
    " every Monday / on Tuesdays / each Thursday / that Friday / by Sunday / in March / in April /"
    " during June / since July / until October / all November / by candlelight / in heavy rain /"
    " under snow / on market days / long ago / next morning / that evening / some years later /"
    " within a week / after midnight / towards Christmas / between storms"
)

OPENERS = _phrases(
    "However / Besides / Meanwhile / Still / Then / Later / Indeed / Perhaps / Otherwise /"
    " Instead / Strangely / Luckily / Sadly / Finally / Afterwards / Nevertheless"
)

REPORTERS = _phrases(
    "people said / travellers reported / nobody denied / old songs claim / records show /"
    " I believe / rumour had it / witnesses swore / children repeat / scholars doubt /"
    " one reads / we heard"
)
