"""The best of several answers, chosen by a judge who sees them side by side."""

from __future__ import annotations

import msgspec

from policies.decoding.strategy import Roles
from policies.judging.asking import asked
from policies.judging.lineup import Lineup
from policies.judging.verdicts import choice
from policies.prompts.select import select_prompt


class Selected(msgspec.Struct, frozen=True):
    """index: of the sample. place: at which it was shown, from 1 on. shown: how many there were."""

    index: int
    place: int
    shown: int


async def selected(roles: Roles, request: str, lineup: Lineup, most: int) -> Selected | None:
    """The judge's choice; None: none that can be relied on. request: as it is shown. most: tokens of a reply."""
    shown = len(lineup.indices)
    place = await asked(
        roles,
        lambda again: select_prompt(request, lineup.texts, again=again),
        lambda said: choice(said, shown),
        most,
    )
    return None if place is None else Selected(lineup.at(place), place, shown)
