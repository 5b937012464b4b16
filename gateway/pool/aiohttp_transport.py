"""aiohttp behind the transport seam: for backends that are reached through an HTTP proxy (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).

It costs some 50 us of CPU more per request than http1.py, which speaks to backends directly.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gateway.pool.transport import Broken, ConnectFailed, TimedOut, TransportError
from gateway.wire.errors import Header

# llama.cpp closes an idle connection after 5 s: ours must go first.
_KEEP_ALIVE_S: Final = 4.0
_LARGE: Final = 1 << 20
_SKIP: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class AiohttpTransport:
    """One session without limits of its own: bounds belong to the pool. Build it inside the running loop."""

    def __init__(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ttl_dns_cache=30)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
            skip_auto_headers=_SKIP,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=1 << 18,
            max_line_size=1 << 16,
            max_field_size=1 << 16,
        )
        self._url = lru_cache(maxsize=1024)(lambda text: URL(text, encoded=True))
        self._timeout = lru_cache(maxsize=64)(
            lambda connect_s: aiohttp.ClientTimeout(total=None, sock_connect=connect_s, connect=connect_s)
        )

    async def send(
        self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False
    ) -> AiohttpUpstream:
        """See Transport.send. aiohttp chooses the connection itself, so `fresh` is a wish that is not heard."""
        del fresh
        try:
            response = await self._session.request(
                method,
                self._url(url),
                data=(body if len(body) < _LARGE else io.BytesIO(body)) if body or method == "POST" else None,
                headers=CIMultiDict([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]),
                allow_redirects=False,
                timeout=self._timeout(connect_s),
            )
        except aiohttp.ServerDisconnectedError:
            raise Broken("the backend closed the connection", untouched=True) from None
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise ConnectFailed(type(error).__name__) from None
        except TimeoutError:
            raise TimedOut("the backend did not answer in time") from None
        except aiohttp.ClientOSError:
            raise Broken("the connection was reset", untouched=True) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise TransportError(type(error).__name__) from None
        return AiohttpUpstream(response)

    async def close(self) -> None:
        """See Transport.close."""
        await self._session.close()


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
