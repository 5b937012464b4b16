"""What load adds to the price of a second.

A call that holds a place for a second while others wait makes each of them wait for that second too. What it costs is theirs, not its own
caller's, so the caller's price of latency does not hold it; under load the gateway adds it:

    price = base (1 + slope max(0, utilisation - begins)),  at most base (1 + slope (most - begins))

A dearer second makes plans that take less of it win: smaller models, fewer samples, shorter chains of thought. So effort shrinks, smoothly
and for all, before any request is shed. Below `begins` nothing is added: there the places are free anyway. The bound keeps a burst from
making everything but the smallest plan unthinkable. Where `base` is 0 nobody minds waiting, and load changes nothing.
"""

from __future__ import annotations

from typing import Final

BEGINS: Final = 0.7
SLOPE: Final = 4.0
MOST: Final = 4.0


def utilisation(running: int, waiting: int, places: int) -> float:
    """How much of what can run at once is asked for: 1 when all places are taken, more when calls wait. places: 1 at least."""
    return (running + waiting) / max(1, places)


def latency_price(base: float, used: float, begins: float = BEGINS, slope: float = SLOPE, most: float = MOST) -> float:
    """The price of a second at this utilisation (`used`), in the unit of `base`. most: where it rises no further."""
    over = min(used, most) - begins
    return base * (1.0 + slope * over) if over > 0.0 else base
