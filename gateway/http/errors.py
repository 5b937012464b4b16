"""FastAPI's own errors in OpenAI's envelope: unknown routes, methods, validation, and what a handler raises."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gateway.serving.ids import request_id
from gateway.wire.errors import ApiError, Code


def install(app: FastAPI) -> None:
    """Registers the handlers."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)


def answer(request: Request, error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """An ApiError as a response."""
    response = Response(error.body(), error.status, headers=dict(headers or {}), media_type="application/json")
    for name, value in error.headers:
        response.headers[name.decode()] = value.decode()
    wished = request.headers.get("x-request-id")
    fresh = secrets.token_hex(16)
    response.headers["x-request-id"] = request_id(wished.encode("latin-1") if wished else None, fresh)
    return response


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return answer(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: dict[int, tuple[Code, str]] = {
        404: ("caller_not_found", "There is no such endpoint."),
        405: ("caller_method_not_allowed", "This endpoint does not take that method."),
    }
    code, message = codes.get(error.status_code, ("caller_invalid_value", "The request cannot be served."))
    return answer(request, ApiError(error.status_code, code, message), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return answer(request, ApiError(400, "caller_invalid_value", f"`{param}`: {first['msg']}.", param=param))
