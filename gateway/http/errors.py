"""FastAPI's own errors in OpenAI's envelope: unknown routes, methods, validation, and what a handler raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from gateway.wire.errors import ApiError, Code

_CODES: Final[Mapping[int, tuple[Code, str]]] = {
    404: ("caller_not_found", "There is no such endpoint."),
    405: ("caller_method_not_allowed", "This endpoint does not take that method."),
}


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Registers the handlers. routers: those that the application includes."""

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:  # Starlette names the methods of the first route alone
            routes = (*app.routes, *(route for router in routers for route in router.routes))
            headers["Allow"] = ", ".join(sorted(_methods(routes, request.scope)))
        code, message = _CODES.get(error.status_code, ("caller_invalid_value", "The request cannot be served."))
        return answer(ApiError(error.status_code, code, message), headers)

    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, http_error)
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


def _methods(routes: Iterable[BaseRoute], scope: Scope) -> set[str]:
    """Of all routes that this path has."""
    found = (route for route in routes if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE)
    return {method for route in found for method in route.methods or ()}


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return answer(ApiError(400, "caller_invalid_value", f"`{param}`: {first['msg']}.", param=param))


async def _crashed(_request: Request, _error: Exception) -> Response:
    # Starlette raises the error again once this is sent, so the server's log has it.
    return answer(ApiError(500, "gateway_internal", "The gateway failed; its log has the details."))
