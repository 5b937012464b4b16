"""What one candidate votes for: the tools that it calls, or what it says in the end."""

from __future__ import annotations

from typing import NamedTuple

from policies.answers.equivalence import OPTIONS, Key, Wanted
from policies.answers.extraction import extract
from policies.answers.tool_calls import calls_key
from policies.values.answer import Said

_CUT = "length"


class Ballot(NamedTuple):
    """key: what it is the same as; None: it abstains. text: what it says, as it is written. how: where that was found (extraction.py), or
    `tool_calls`; or why there is nothing: `refused`, `cut`, `none`."""

    key: Key | None
    text: str
    how: str


def ballot(said: Said, wanted: Wanted = "any", options: str = OPTIONS, *, opened: bool = False) -> Ballot:
    """The vote of one choice. Tools that it calls are its answer, whatever it says beside them; calls that were cut are none. An answer
    that was refused or withheld abstains. opened: as of `extract`; it counts for engines that leave thoughts in the text."""
    cut = said.finish == _CUT
    if said.refused or said.finish == "content_filter":
        return Ballot(None, "", "refused")
    if said.tool_calls:
        called = None if cut else calls_key(said.tool_calls)
        return Ballot(called, "", "cut" if called is None else "tool_calls")
    found = extract(said.text, wanted, options, cut=cut, opened=opened and not said.thought)
    if found is None:
        return Ballot(None, "", "cut" if cut else "none")
    return Ballot(found.key, found.text, found.how)
