"""aiohttp behind the transport seam: for backends that are reached through an HTTP proxy (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).

Every request has a connection of its own: aiohttp takes whatever came on an idle one (a server's 408, a second answer) for the answer to
the next request, so that one caller could be given what another was meant to have. It costs ten times the CPU of http1.py, which speaks
to backends directly, and reads less strictly: a body without framing counts as whole even after a reset.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gateway.pool.transport import Broken, ConnectFailed, Tap, TimedOut, TransportError
from gateway.wire.errors import Header

_LARGE: Final = 1 << 20
# Longer URLs (a query, mostly) are not worth remembering.
_REMEMBERED: Final = 1 << 10
_SKIP: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class AiohttpTransport:
    """One session without limits of its own: bounds belong to the pool. Build it inside the running loop; proxies are read then."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ttl_dns_cache=30),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_SKIP,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=1 << 18,
            max_line_size=1 << 16,
            max_field_size=1 << 16,
        )
        # Not trust_env: that would also send passwords out of ~/.netrc to backends, and start a thread per request to look for them.
        self._proxies = {scheme: proxy if "://" in proxy else f"http://{proxy}" for scheme, proxy in getproxies().items()}
        self._remembered = lru_cache(maxsize=1024)(self._target)
        self._timeout = lru_cache(maxsize=64)(lambda connect_s: aiohttp.ClientTimeout(total=None, connect=connect_s))

    async def send(
        self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False
    ) -> AiohttpUpstream:
        """See Transport.send. Every connection is fresh."""
        del fresh
        if self._session.closed:
            raise ConnectFailed("the transport is closed")
        try:
            target, proxy = self._remembered(url) if len(url) < _REMEMBERED else self._target(url)
        except ValueError:
            raise ConnectFailed("not the URL of a backend") from None
        try:
            response = await self._session.request(
                method,
                target,
                data=(body if len(body) < _LARGE else io.BytesIO(body)) if body or method == "POST" else None,
                headers=CIMultiDict([(_text(name), _text(value)) for name, value in headers]),
                allow_redirects=False,
                timeout=self._timeout(connect_s),
                proxy=proxy,
            )
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, UnicodeError) as error:
            raise ConnectFailed(type(error).__name__) from None
        except TimeoutError:
            raise TimedOut("the backend did not answer in time") from None
        except aiohttp.ClientError as error:
            raise Broken(type(error).__name__) from None
        except ValueError as error:
            raise TransportError("a header of the request cannot be sent") from error
        if response.status < 200:
            response.close()
            raise Broken("an interim answer that cannot be one")
        return AiohttpUpstream(response)

    async def close(self) -> None:
        """See Transport.close."""
        await self._session.close()

    def _target(self, text: str) -> tuple[URL, str | None]:
        """A URL, and the proxy that it is reached through. Raises ValueError."""
        url = URL(text, encoded=True)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(text)
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
        if response.connection is not None and response.connection.protocol is not None:
            closed = response.connection.protocol.closed
            if closed is not None:
                closed.add_done_callback(self._lost)

    def whole(self) -> bytes | None:
        """See Upstream.whole."""
        return None

    async def read_some(self, tap: Tap | None = None) -> bytes:  # noqa: ARG002 (nothing arrives here first)
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

    def _lost(self, closed: asyncio.Future[None]) -> None:
        """The connection is gone. After a malformed chunk, or when the session is closed, aiohttp would let the reader wait for ever."""
        closed.exception()
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the body ended early"))


def _text(value: bytes) -> str:
    """As aiohttp, which writes UTF-8, will send the same bytes; what is not UTF-8 it cannot send as it is."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
