"""aiohttp behind the transport seam: for backends that are reached through an HTTP proxy (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).

It costs some 100 us of CPU more per request than http1.py, which speaks to backends directly, and is less strict: a body without framing
is whole even when the connection was reset, and of a request without side effects (GET) it repeats a failed one by itself.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gateway.pool.transport import KEEP_ALIVE_S, RACE_S, Broken, ConnectFailed, TimedOut, TransportError
from gateway.wire.errors import Header

_LARGE: Final = 1 << 20
# Longer URLs (a query, mostly) are not worth remembering.
_REMEMBERED: Final = 1 << 10
_SKIP: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class AiohttpTransport:
    """Sessions without limits of their own: bounds belong to the pool. Build it inside the running loop; it reads the environment then."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=30))
        self._fresh = _session(aiohttp.TCPConnector(limit=0, force_close=True, ttl_dns_cache=30))
        self._proxies = {scheme: proxy if "://" in proxy else f"http://{proxy}" for scheme, proxy in getproxies().items()}
        self._remembered = lru_cache(maxsize=1024)(self._target)
        self._timeout = lru_cache(maxsize=64)(lambda connect_s: aiohttp.ClientTimeout(total=None, connect=connect_s))

    async def send(
        self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False
    ) -> AiohttpUpstream:
        """See Transport.send."""
        if self._kept.closed:
            raise ConnectFailed("the transport is closed")
        began = self._loop.time()
        connection = SimpleNamespace(reused=False)
        try:
            target, proxy = self._remembered(url) if len(url) < _REMEMBERED else self._target(url)
            response = await (self._fresh if fresh else self._kept).request(
                method,
                target,
                data=(body if len(body) < _LARGE else io.BytesIO(body)) if body or method == "POST" else None,
                headers=CIMultiDict([(name.decode("ascii"), _text(value)) for name, value in headers]),
                allow_redirects=False,
                timeout=self._timeout(connect_s),
                proxy=proxy,
                trace_request_ctx=connection,
            )
        except aiohttp.ServerDisconnectedError as error:
            race = connection.reused and self._loop.time() - began < RACE_S
            raise Broken("the backend closed the connection", untouched=race and not isinstance(error.message, tuple)) from None
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError, aiohttp.InvalidURL, aiohttp.ClientHttpProxyError) as error:
            raise ConnectFailed(type(error).__name__) from None
        except TimeoutError:
            raise TimedOut("the backend did not answer in time") from None
        except aiohttp.ClientOSError:
            race = connection.reused and self._loop.time() - began < RACE_S
            raise Broken("the backend reset the connection", untouched=race) from None
        except aiohttp.ClientError as error:
            raise Broken(type(error).__name__) from None
        except ValueError as error:
            raise TransportError(type(error).__name__) from None
        if response.status < 200:
            response.close()
            raise Broken("the answer is none")
        return AiohttpUpstream(response)

    async def close(self) -> None:
        """See Transport.close."""
        await self._kept.close()
        await self._fresh.close()

    def _target(self, text: str) -> tuple[URL, str | None]:
        """A URL, and the proxy that it is reached through. Raises ValueError."""
        url = URL(text, encoded=True)
        proxy = self._proxies.get(url.scheme)
        return url, None if proxy is None or proxy_bypass(url.authority) else proxy


class AiohttpUpstream:
    """An answer over aiohttp."""

    __slots__ = ("_read", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._read = response.content.readany
        self.status = response.status
        self.headers: Sequence[Header] = [(name.lower(), value) for name, value in response.raw_headers]

    async def read_some(self) -> bytes:
        """See Upstream.read_some."""
        try:
            return await self._read()
        except (aiohttp.ClientError, OSError) as error:
            raise Broken(type(error).__name__) from None

    def release(self) -> None:
        """See Upstream.release."""
        self._response.release()

    def close(self) -> None:
        """See Upstream.close."""
        self._response.close()


async def _reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused = True


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_reused)
    return aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIP,
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=1 << 18,
        max_line_size=1 << 16,
        max_field_size=1 << 16,
        trace_configs=[trace],
    )


def _text(value: bytes) -> str:
    """As aiohttp, which writes UTF-8, will send the same bytes; what is not UTF-8 it cannot send as it is."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
