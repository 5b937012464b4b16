"""The addresses of a name, asked for again and again. A name without addresses is a failure: nobody takes a service away like that.

Look-ups run on the loop's threads. One that hangs keeps its thread, so a source never has more than one under way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from ipaddress import IPv6Address
from typing import Final

from gateway.pool.discovery.endpoint import at, merged
from gateway.pool.discovery.source import Failed, Found, News
from gateway.pool.discovery.spec import DnsSpec, Family

Resolve = Callable[[str, Family], Awaitable[Iterable[str]]]
"""The addresses of one family that a name has; repeats do no harm. Raises OSError, for a name without any too."""

LIMIT_S: Final = 10.0
_FAMILIES: Final[Mapping[Family, socket.AddressFamily]] = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
# What resolvers say of a name that is not there, or not in this family. Whatever else they say is trouble that may pass.
_ABSENT: Final = frozenset(
    code for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if (code := getattr(socket, name, None)) is not None
)


async def resolve(host: str, family: Family) -> list[str]:
    """As the machine resolves names: hosts file, search domains and all. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, family=_FAMILIES[family], type=socket.SOCK_STREAM)
    addresses = [str(address[0]).partition("%")[0] for _, _, _, _, address in found]
    # fe80::1 means something together with a link only, and that cannot stand in a URL.
    return [address for address in addresses if family == "ipv4" or not IPv6Address(address).is_link_local]


class Dns:
    """One replica per address."""

    def __init__(
        self,
        spec: DnsSpec,
        *,
        resolve: Resolve = resolve,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._spec = spec
        self._resolve = resolve
        self._sleep = sleep

    async def watch(self) -> AsyncGenerator[News, None]:
        """See Source.watch."""
        lookup: asyncio.Task[News] | None = None
        try:
            while True:
                if lookup is None:
                    lookup = asyncio.create_task(self._look_up(), name=f"look up {self._spec.host}")
                await asyncio.wait((lookup,), timeout=LIMIT_S)
                if lookup.done():
                    done, lookup = lookup, None
                    yield done.result()
                else:
                    yield Failed(f"{self._spec.host}: name servers do not answer")
                await self._sleep(self._spec.interval_s)
        finally:
            if lookup is not None:
                lookup.cancel()

    async def _look_up(self) -> News:
        spec = self._spec
        families: tuple[Family, ...] = ("ipv4", "ipv6") if spec.family is None else (spec.family,)
        for family in families:
            try:
                # Resolvers shuffle their answers.
                found = sorted(set(await self._resolve(spec.host, family)))
                if found:
                    return Found(merged(at(spec.scheme, address, spec.port) for address in found))
            except socket.gaierror as error:
                if error.errno not in _ABSENT:
                    return Failed(f"{spec.host}: {_words(error)}")
            except (OSError, ValueError) as error:  # UnicodeError is one: a name that no name server could be asked for
                return Failed(f"{spec.host}: {_words(error)}")
        return Failed(f"{spec.host} has no {families[0]} address" if len(families) == 1 else f"{spec.host} has no address")


def _words(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
