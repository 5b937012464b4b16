"""Small questions with one right answer, for small real models: sums, products, capitals, opposites, the mood of a sentence.

All are ours. Each is asked after two others with their answers, so that a small model says no more than the answer. An answer is right
where it is the same as one that is accepted, as votes have it (policies/answers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.answers.ballots import ballot
from policies.answers.equivalence import Wanted, key
from policies.values.answer import Said

ITEMS: Final = 40
"""Of each family."""
MOST_TOKENS: Final = 24
"""Of an answer."""


@dataclass(frozen=True)
class Item:
    """A question. turns: role and text of each message. accepted: answers that are right. wanted: what is looked for in an answer."""

    family: str
    number: int
    turns: tuple[tuple[str, str], ...]
    accepted: tuple[str, ...]
    wanted: Wanted

    def right(self, said: Said) -> bool:
        """Whether that is a right answer. One that was cut, or has no answer in it, is wrong."""
        found = ballot(said, self.wanted).key
        return found is not None and found in [key(each, self.wanted) for each in self.accepted]


def items(each: int = ITEMS) -> list[Item]:
    """The first so many questions of each family, the families one after the other."""
    return [item for family in FAMILIES for item in _family(family)[:each]]


def _family(name: str) -> list[Item]:
    ask, shown, asked, wanted = FAMILIES[name]
    before = tuple(turn for question, answer in shown for turn in (("user", ask.format(question)), ("assistant", answer)))
    return [
        Item(name, number, (*before, ("user", ask.format(question))), tuple(answer.split("/")), wanted)
        for number, (question, answer) in enumerate(asked)
    ]


def _pairs(text: str) -> list[tuple[str, str]]:
    found = [line.rpartition(": ") for line in text.strip().splitlines()]
    return [(question, answer) for question, _, answer in found]


def _spread(low: int, high: int, step: int) -> Iterator[tuple[int, int]]:
    """Pairs of numbers, `step` apart in the list of all, which has no factor in common with it: none comes twice."""
    width = high - low + 1
    for place in range(ITEMS):
        at = place * step % width**2
        yield low + at // width, low + at % width


_CAPITALS: Final = """
France: Paris
Italy: Rome
Spain: Madrid
Portugal: Lisbon
Greece: Athens
Austria: Vienna
Poland: Warsaw
Hungary: Budapest
Norway: Oslo
Sweden: Stockholm
Finland: Helsinki
Denmark: Copenhagen
Ireland: Dublin
Belgium: Brussels
Russia: Moscow
Ukraine: Kyiv/Kiev
Turkey: Ankara
Egypt: Cairo
Kenya: Nairobi
Nigeria: Abuja
Ghana: Accra
Ethiopia: Addis Ababa
Morocco: Rabat
India: New Delhi/Delhi
China: Beijing
South Korea: Seoul
Thailand: Bangkok
Vietnam: Hanoi
Indonesia: Jakarta
Iran: Tehran
Iraq: Baghdad
Australia: Canberra
New Zealand: Wellington
Canada: Ottawa
Mexico: Mexico City
Cuba: Havana
Peru: Lima
Chile: Santiago
Argentina: Buenos Aires
Brazil: Brasilia/Brasília
"""
_OPPOSITES: Final = """
big: small/little
up: down
left: right
fast: slow
old: young/new
early: late
open: closed/close/shut
full: empty
light: dark/heavy
rich: poor
strong: weak
long: short
high: low
wet: dry
happy: sad/unhappy
easy: hard/difficult
loud: quiet/soft/silent
thick: thin
wide: narrow
deep: shallow
clean: dirty
near: far
true: false
win: lose
push: pull
buy: sell
start: stop/end/finish
love: hate
give: take/receive
remember: forget
enter: exit/leave
begin: end/finish
north: south
inside: outside
always: never
arrive: depart/leave
accept: reject/refuse
attack: defend/defense
success: failure
ancient: modern
"""
_MOODS: Final = """
The food was wonderful and the staff were kind.: positive
I will never come back to this place.: negative
The film bored me to tears.: negative
What a lovely surprise, thank you so much!: positive
The screen broke after two days.: negative
This is the best book I have read in years.: positive
The room was dirty and it smelled.: negative
Our guide was cheerful and knew everything.: positive
The parcel came late, and half of it was missing.: negative
I slept like a baby in that bed.: positive
They ignored me for an hour.: negative
A perfect day from start to end.: positive
It stopped working, and nobody answers my mails.: negative
The music was beautiful.: positive
I want my money back.: negative
My children laughed all the way through.: positive
The soup was cold and had no taste.: negative
Setting it up took a minute, and it just works.: positive
The plot makes no sense at all.: negative
I am so proud of what this team did.: positive
The seats were hard and the hall was freezing.: negative
Great value, I would buy it again.: positive
Such a waste of an evening.: negative
She made us feel at home.: positive
The app crashes each time I open it.: negative
I could not be happier with the result.: positive
He was rude to my mother.: negative
The view from the terrace took my breath away.: positive
The paint peeled off within a week.: negative
Fresh, warm bread every morning, delicious!: positive
The noise kept us awake all night.: negative
It is a joy to use.: positive
Worst trip of my life.: negative
The doctor was patient and explained it all.: positive
They charged me twice and denied it.: negative
The garden is a little paradise.: positive
The sound is dull and it hums.: negative
I recommend it to everyone I know.: positive
The instructions are useless.: negative
The new version is so much better.: positive
"""

FAMILIES: Final[Mapping[str, tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]], Wanted]]] = {
    "sums": ("{} =", (("2 + 3", "5"), ("9 + 4", "13")), [(f"{a} + {b}", str(a + b)) for a, b in _spread(1, 9, 32)], "number"),
    "products": ("{} =", (("2 x 3", "6"), ("9 x 4", "36")), [(f"{a} x {b}", str(a * b)) for a, b in _spread(1, 9, 32)], "number"),
    "long_sums": (
        "{} =",
        (("21 + 34", "55"), ("48 + 27", "75")),
        [(f"{a} + {b}", str(a + b)) for a, b in _spread(10, 99, 2_039)],
        "number",
    ),
    "capitals": ("The capital of {}?", (("Japan", "Tokyo"), ("Germany", "Berlin")), _pairs(_CAPITALS), "text"),
    "opposites": ("The opposite of {}?", (("hot", "cold"), ("good", "bad")), _pairs(_OPPOSITES), "text"),
    "moods": (
        "Is this positive or negative? {}",
        (("I love this phone.", "positive"), ("The service was terrible.", "negative")),
        _pairs(_MOODS),
        "text",
    ),
}
"""Family -> how it is asked, examples with answers, questions with theirs (`/` between those that are accepted), what an answer is."""
