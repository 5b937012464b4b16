"""FastAPI's own errors in OpenAI's envelope: unknown routes, methods, validation, and what a handler raises."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gateway.wire.errors import ApiError, Code


def install(app: FastAPI) -> None:
    """Registers the handlers."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _crashed)


def answer(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """An ApiError as a response."""
    response = Response(error.body(), error.status, headers=dict(headers or {}), media_type="application/json")
    for name, value in error.headers:
        response.headers[name.decode()] = value.decode()
    return response


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return answer(error)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: dict[int, tuple[Code, str]] = {
        404: ("caller_not_found", "There is no such endpoint."),
        405: ("caller_method_not_allowed", "This endpoint does not take that method."),
    }
    code, message = codes.get(error.status_code, ("caller_invalid_value", "The request cannot be served."))
    return answer(ApiError(error.status_code, code, message), error.headers)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return answer(ApiError(400, "caller_invalid_value", f"`{param}`: {first['msg']}.", param=param))


async def _crashed(_request: Request, _error: Exception) -> Response:
    # Starlette raises the error again once this is sent, so the server's log has it.
    return answer(ApiError(500, "gateway_internal", "The gateway failed; its log has the details."))
