"""Every answer has an `x-request-id`: the caller's own when it is a plain token, else a fresh one."""

from __future__ import annotations

import secrets
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.serving.ids import request_id
from gateway.wire import headers as wire_headers

REQUEST_ID: Final = "trilemma.request_id"
"""Where the id stands in an ASGI scope."""

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
        id_ = scope[REQUEST_ID] = request_id(wire_headers.first(scope["headers"], _NAME), secrets.token_hex(16))
        own = id_.encode()

        async def identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                if wire_headers.first(headers, _NAME) is None:
                    message = {**message, "headers": [*headers, (_NAME, own)]}
            await send(message)

        await self._app(scope, receive, identified)
