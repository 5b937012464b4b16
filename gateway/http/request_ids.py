"""Every answer has an `x-request-id`: the caller's own when it is a plain token, else a fresh one."""

from __future__ import annotations

import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.serving.ids import request_id
from gateway.wire import headers as wire_headers

_NAME = b"x-request-id"


class RequestIds:
    """ASGI in front of `app`; an answer that has an id already keeps it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = request_id(wire_headers.first(scope["headers"], _NAME), secrets.token_hex(16)).encode()

        async def identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                if wire_headers.first(headers, _NAME) is None:
                    message = {**message, "headers": [*headers, (_NAME, own)]}
            await send(message)

        await self._app(scope, receive, identified)
