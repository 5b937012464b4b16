"""One answer, whatever it is: what a strategy comes down to where all its answers would be the same, as at temperature 0."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from models.response import Response
from policies.decoding.strategy import Needs, NoneLeft, Progress, Roles, Won


class Single:
    """The strategy. why: told of the winner."""

    def __init__(self, why: str = "single") -> None:
        self._why = why

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        return Needs()

    @property
    def most(self) -> int:
        """See Strategy."""
        return 1

    @property
    def asks(self) -> int:
        """See Strategy."""
        return 0

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        return None

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy."""
        async with aclosing(roles.sample(1)) as coming:
            async for sample in coming:
                yield Won(sample.index, self._why)
                return
        raise NoneLeft
