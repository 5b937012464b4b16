"""Budget forcing (s1: Muennighoff et al. 2025, arXiv 2501.19393): one answer, whose thoughts are no longer, and no shorter, than is wanted.

    cap       after so many tokens the thoughts are closed, and the model answers
    least     where it would close them before, that is left out, `wait` is put in its place, and it thinks on; `waits` times at most
    tell      a number of tokens stands in the prompt (TALE: Han et al. 2025, arXiv 2412.18547): as given, or as the model itself estimates

    text      opens thoughts [wait thoughts]... closes answer        written on from token to token (`by: text`)
    engine    one call, the cap as the engine's own bound            (`by: engine`)

In the text the thoughts are the model's own words up to `closes`; what is left of the bound on the whole answer is for what it says after.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final, Literal

import msgspec

from models.response import Response
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Roles, Unanswered, Won
from policies.judging.conversation import conversation

ESTIMATOR: Final = "estimator"
"""The role that says how many tokens a question takes."""
# Of the bound on the whole answer, what is kept for what is said after the thoughts.
_SAID: Final = 0.25
# Tokens of a thought and an answer, of at least one each.
_LEAST: Final = 2
_ASKED_ABOUT: Final = 8_000
_REPLY: Final = 64
_BRACKETED: Final = re.compile(r"\[\[\s*(\d{1,6})\s*\]\]")
_BARE: Final = re.compile(r"\b(\d{1,6})\b")
_SENTENCE: Final = "Let's think step by step and use less than {} tokens."
_QUESTION: Final = """\
How many tokens does it take, at least, to answer the last message of this conversation completely and rightly, with the steps to get there?
Do not answer it. Reply with the number alone, in double brackets, such as [[120]].

{}"""

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """cap: most tokens of thought. least: fewest; 0: as few as it will. waits: how often it is made to think on. wait: what it then reads
    as its own words. by: see above. opens, closes: what thoughts stand between, as the model's template has it; opens is empty where the
    template itself begins them. tell: tokens that the prompt speaks of; `estimate`: as many as the role `estimator` says."""

    cap: Tokens = 2_048
    least: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    waits: Annotated[int, msgspec.Meta(ge=0, le=16)] = 2
    wait: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "\nWait"
    by: Literal["text", "engine"] = "text"
    opens: Annotated[str, msgspec.Meta(max_length=200)] = "<think>\n"
    closes: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "</think>"
    tell: Tokens | Literal["estimate"] | None = None

    def __post_init__(self) -> None:
        """What the fields alone do not say."""
        if self.least > self.cap:
            raise ValueError("`least` must not be above `cap`")
        if self.by == "engine" and self.least:
            raise ValueError("no engine has a bound below: `least` needs `by: text`")


class BudgetForcing:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        params = self._params
        thinking, writes = params.cap if params.by == "engine" else None, params.by == "text"
        if params.tell != "estimate":
            return Needs(thinking=thinking, writes=writes)
        asked = Question(ESTIMATOR, len(_QUESTION) + _ASKED_ABOUT, _REPLY)
        return Needs(roles=frozenset({ESTIMATOR}), thinking=thinking, writes=writes, asked=asked)

    @property
    def most(self) -> int:
        """See Strategy."""
        return 1

    @property
    def asks(self) -> int:
        """See Strategy."""
        return 1 if self._params.tell == "estimate" else 0

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        return None

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy. What cannot be written on is one plain call, and the winner says so."""
        await self._tell(roles)
        written = await self._written(roles) if self._params.by == "text" and roles.writes else None
        if written is not None:
            yield written
            return
        async with aclosing(roles.sample(1)) as coming:
            async for sample in coming:
                yield Won(sample.index, "engine" if self._params.by == "engine" and roles.bounds_thoughts else "unforced")
                return
        raise NoneLeft

    async def _tell(self, roles: Roles) -> None:
        """Tells the budget; where nobody can estimate it, none."""
        tokens = self._params.tell
        if tokens == "estimate":
            try:
                reply = await roles.ask(ESTIMATOR, _QUESTION.format(conversation(roles.task.turns, _ASKED_ABOUT)), _REPLY)
            except Unanswered:
                return
            said = reply.said.spoken
            found = _BRACKETED.search(said) or _BARE.search(said)
            tokens = None if found is None else int(found[1])
        if tokens:
            roles.tell(_SENTENCE.format(tokens))

    async def _written(self, roles: Roles) -> Won | None:
        """None: not a word could be written, or there is no room for thoughts and an answer."""
        params, most = self._params, roles.task.most
        if most is not None and most < _LEAST:
            return None
        cap = params.cap if most is None else max(1, min(params.cap, int(most * (1.0 - _SAID))))
        thought, thoughts, waits, begun = "", 0, 0, False
        try:
            while True:
                part = await roles.write(params.opens + thought, cap - thoughts, (params.closes.strip(),))
                thought, thoughts, begun = thought + part.text, thoughts + part.tokens, True
                if part.finish == "length" or thoughts >= cap:
                    why = "capped"
                    break
                if thoughts >= params.least or waits == params.waits:
                    why = "waited" if waits else "ended"
                    break
                thought, waits = thought.rstrip() + params.wait, waits + 1
            text = f"{params.opens}{thought.rstrip()}\n{params.closes}\n\n"
            said = await roles.write(text, None if most is None else max(1, most - thoughts))
        except Unanswered:
            if begun:
                raise NoneLeft from None
            return None
        return Won(roles.written(thought.strip(), said.text.lstrip(), said.finish).index, why)


def build(params: Params) -> BudgetForcing:
    """The strategy of these parameters."""
    return BudgetForcing(params)
