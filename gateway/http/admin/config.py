"""`/admin/config` and `/admin/backends`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.http import schema
from gateway.http.routes import caller, gateway_of
from gateway.reload import Reloader
from gateway.wire.errors import ApiError

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[schema.KEYED])


def _reloader(request: Request) -> Reloader:
    reloader: Reloader = request.scope["state"]["reloader"]
    return reloader


@router.get(
    "/config",
    operation_id="show_config",
    summary="Which configuration runs, and the last failed reload",
    responses=schema.documented(schema.CONFIG),
)
async def show(request: Request) -> JSONResponse:
    """Hash, source, time; `last_error` holds the problems of the last reload that failed after it."""
    caller(request, "admin")
    return JSONResponse(_reloader(request).status())


@router.post(
    "/config/reload",
    operation_id="reload_config",
    summary="Read the configuration file again",
    responses=schema.documented(schema.RELOAD),
)
async def reload(request: Request) -> JSONResponse:
    """Parses, checks, builds a complete new state and swaps it in; on any problem the old one stays."""
    caller(request, "admin")
    reloader = _reloader(request)
    if not await reloader.reload():
        problems = "; ".join(reloader.status()["last_error"] or ())
        raise ApiError(400, "gateway_reload_failed", f"The old configuration stays: {problems}")
    return JSONResponse(reloader.status())


@router.get(
    "/backends",
    operation_id="list_backends",
    summary="Every backend: where, what, how busy",
    responses=schema.documented(schema.BACKENDS),
)
async def backends(request: Request) -> JSONResponse:
    """In configured order."""
    caller(request, "admin")
    engines = _reloader(request).engines()
    listed = [
        {
            "name": backend.name,
            "engine": backend.adapter.name,
            "url": backend.url,
            "models": dict(backend.models),
            "in_flight": backend.in_flight,
            "answered": backend.answered,
            "breaker": backend.breaker.state,
            "managed": engines.get(backend.name),
        }
        for backend in gateway_of(request).state.backends.values()
    ]
    return JSONResponse({"object": "list", "data": listed, "sources": _reloader(request).sources()})
