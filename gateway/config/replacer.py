"""Another configuration in the place of the one that runs: looked at, written to its file, taken up; or nothing is changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from gateway.config import tree, writing
from gateway.config.files import read
from gateway.config.load import Loaded
from gateway.config.problems import ConfigError, Problem
from gateway.config.proposal import Proposal, proposed

log = logging.getLogger("trilemma.config")


class Moved(Exception):
    """What runs, or what stands in the file, is not what was to be replaced. hash: of what runs; None: that is as expected."""

    def __init__(self, running: str | None = None) -> None:
        super().__init__(running)
        self.hash = running


class NotTakenUp(Exception):
    """It was written, could not be taken up after all, and was taken back."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Replacer:
    """One replacement after another.

    running: what is in use. problems: why a configuration could not be taken up, though its text is good. reload: takes up the file, and
    says what was wrong. coming: is told of the hash, and the name of the key that brings it, before that.
    """

    def __init__(
        self,
        running: Callable[[], Loaded],
        problems: Callable[[Loaded], Sequence[str]],
        reload: Callable[[], Awaitable[Sequence[str]]],
        coming: Callable[[str, str], None],
    ) -> None:
        self._running = running
        self._problems = problems
        self._reload = reload
        self._coming = coming
        self._lock = asyncio.Lock()

    async def look_at(self, text: str) -> Proposal:
        """What the text would be. Raises ConfigError with all problems."""
        before = self._running()
        proposal = await asyncio.to_thread(proposed, text, before)
        if problems := self._problems(proposal.loaded):
            raise ConfigError([Problem(0, 0, "", each) for each in problems], before.source)
        return proposal

    async def replace(self, text: str, by_key: str, instead_of: Callable[[str], bool] | None) -> tuple[Loaded, Proposal]:
        """Makes the text the configuration; what ran before, and what it is now.

        instead_of: says of the hash of what runs whether that is what is to be replaced; None: whatever runs, and stands in the file.
        Raises Moved, ConfigError, writing.NotWritable, NotTakenUp: in all cases everything is as before.
        """
        async with self._lock:
            before = self._running()
            if instead_of is not None and not instead_of(before.hash):
                raise Moved(before.hash)
            proposal = await self.look_at(text)
            file = Path(before.source)
            await self._take(file, before.text if instead_of is not None else await _text(file), proposal, by_key)
            return before, proposal

    async def _take(self, file: Path, old: str, proposal: Proposal, by_key: str) -> None:
        new = proposal.loaded.text
        try:
            await asyncio.to_thread(writing.replace, file, old, new)
        except writing.Changed:
            raise Moved from None
        self._coming(proposal.loaded.hash, by_key)
        try:
            problems = await self._reload()
        except BaseException:
            await self._restore(file, new, old)
            raise
        if problems:
            await self._restore(file, new, old)
            raise NotTakenUp(problems)

    async def _restore(self, file: Path, new: str, old: str) -> None:
        try:
            await asyncio.to_thread(writing.replace, file, new, old)
        except (writing.Changed, writing.NotWritable) as error:
            log.error("%s holds a configuration that was not taken up, and cannot be given its old text: %r", file, error)  # noqa: TRY400


async def _text(file: Path) -> str:
    """What stands in the file now; empty when there is no text."""
    try:
        return (await asyncio.to_thread(read, file, tree.MAX_BYTES)).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""
