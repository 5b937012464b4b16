"""`/admin/backends`: every backend as it runs, and the operator's word on it.

    serving     as configured
    draining    no new calls; those that run end; it is still probed
    disabled    draining, and nobody asks it anything
    off         `enabled: false` in the configuration, whatever else was said

What is said here holds until it is said otherwise or the process ends.
"""

from __future__ import annotations

import asyncio
import math
import time
from types import MappingProxyType
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.http import schema
from gateway.http.admin.asked import body_of, fields_of
from gateway.http.admin.config import crew_of, reloader_of
from gateway.http.admin.trails import noted
from gateway.http.routes import caller, gateway_of
from gateway.pool.backend import Backend
from gateway.serving.life import Gateway
from gateway.wire.errors import ApiError, shown
from gateway.workers.messages import Change, Running

router = APIRouter(prefix="/admin/backends", tags=["admin"], dependencies=[schema.KEYED])

_MAX_BODY: Final = 4_096
_ACTIONS: Final = MappingProxyType({"serving": "backend.serve", "draining": "backend.drain", "disabled": "backend.disable"})
_LOOK_S: Final = 0.05


@router.get(
    "",
    operation_id="list_backends",
    summary="Every backend: where, what, how busy",
    responses=schema.documented(schema.BACKENDS),
)
async def listed(request: Request) -> JSONResponse:
    """In configured order; a discovered backend is each of its replicas. `sources` tells how their sources do."""
    caller(request, "admin")
    reloader = reloader_of(request)
    engines, running = reloader.engines(), await crew_of(request).running()
    data = [card(backend, engines.get(backend.name), running) for backend in gateway_of(request).state.backends.values()]
    return JSONResponse({"object": "list", "data": data, "sources": reloader.sources()})


@router.get(
    "/{name:path}",
    operation_id="get_backend",
    summary="One backend",
    responses=schema.documented(schema.BACKEND),
    openapi_extra={"parameters": [schema.BACKEND_NAME]},
)
async def one(request: Request) -> JSONResponse:
    """Its name may hold slashes."""
    caller(request, "admin")
    running = await crew_of(request).running()
    backend = _named(gateway_of(request), request.path_params["name"])
    return JSONResponse(card(backend, reloader_of(request).engines().get(backend.name), running))


@router.patch(
    "/{name:path}",
    operation_id="change_backend",
    summary="Drain a backend, disable it, let it serve again, accept its models",
    responses=schema.documented(schema.BACKEND_CHANGED),
    openapi_extra=dict(schema.BACKEND_CHANGE),
)
async def change(request: Request) -> JSONResponse:
    """Takes effect at once. With `wait_s`, answers when none of our calls runs there any more, or after that time: `drained` tells."""
    principal = caller(request, "admin")
    gateway = gateway_of(request)
    name: str = request.path_params["name"]
    _named(gateway, name)
    asked = _change(name, await body_of(request, _MAX_BODY))
    wait_s = _wait_s(request, asked)
    backend = _named(gateway, name)
    before = state(backend)
    unheard = await crew_of(request).change(asked)
    for action in _actions(asked):
        noted(request, principal, action, name, detail={"before": before})
    running = await crew_of(request).running()
    backend = gateway.state.backends.get(name, backend)
    if wait_s:
        backend, running = await _until_empty(request, backend, running, wait_s)
    running = Running(running.calls, sorted({*unheard, *running.unheard}))
    answer = card(backend, reloader_of(request).engines().get(name), running)
    return JSONResponse(answer | {"drained": not backend.serves and _is_empty(backend, running)})


def card(backend: Backend, managed: dict[str, Any] | None, running: Running) -> dict[str, Any]:
    """A backend as the admin API tells of it. managed: its engine, where that is the gateway's own. running: calls, of all workers."""
    age_s = backend.probe_age_s
    unheard = {"unheard": running.unheard} if running.unheard else {}
    return {
        "name": backend.name,
        "engine": backend.adapter.name,
        "url": backend.url,
        "models": dict(backend.models),
        "changed": dict(backend.changed),
        "left_out": dict(backend.strangers),
        "weight": backend.weight,
        "state": state(backend),
        "in_flight": _calls(backend, running),
        "answered": backend.answered,
        "breaker": {"state": backend.breaker.state, "wait_s": round(backend.breaker.wait_s, 3)},
        "probe": {"age_s": None if age_s is None else round(age_s, 3), "error": backend.probe_error},
        "managed": managed,
        **unheard,
    }


def state(backend: Backend) -> str:
    """See the top of this module."""
    if not backend.spec.enabled:
        return "off"
    if backend.disabled:
        return "disabled"
    return "draining" if backend.draining else "serving"


def _named(gateway: Gateway, name: str) -> Backend:
    backends = gateway.state.backends
    backend = backends.get(name)
    if backend is not None:
        return backend
    message = f"There is no backend `{shown(name)}`."
    if name in gateway.state.config.backends:
        message = f"The backend `{name}` is discovered: name one of its replicas, as GET /admin/backends lists them."
    raise ApiError(404, "caller_not_found", message, param="name")


def _change(name: str, body: bytes) -> Change:
    fields = fields_of(body, "state", "accept")
    if not fields:
        raise ApiError(400, "caller_invalid_value", "Give `state` or `accept`.", param="state")
    if "state" in fields and fields["state"] not in schema.STATES:
        raise ApiError(400, "caller_invalid_value", f"`state` should be one of {', '.join(schema.STATES)}.", param="state")
    if "accept" in fields and fields["accept"] is not True:
        raise ApiError(400, "caller_invalid_value", "`accept` should be true.", param="accept")
    return Change(name, fields.get("state"), "accept" in fields)


def _wait_s(request: Request, asked: Change) -> float:
    given = request.query_params.getlist("wait_s")
    if not given:
        return 0.0
    try:
        wait_s = float(given[0]) if len(given) == 1 else math.nan
    except ValueError:
        wait_s = math.nan
    if not 0 <= wait_s <= schema.LONGEST_WAIT_S:
        raise ApiError(400, "caller_invalid_value", f"`wait_s` should be a number from 0 to {schema.LONGEST_WAIT_S}.", param="wait_s")
    if asked.state not in ("draining", "disabled"):
        raise ApiError(400, "caller_invalid_value", "`wait_s` goes with `draining` or `disabled`.", param="wait_s")
    return wait_s


def _actions(asked: Change) -> list[str]:
    """As the audit log calls them."""
    return ([] if asked.state is None else [_ACTIONS[asked.state]]) + (["backend.accept"] if asked.accept else [])


async def _until_empty(request: Request, backend: Backend, running: Running, within_s: float) -> tuple[Backend, Running]:
    """Waits until it runs nothing, is to serve again, or the time is over; the backend of that name, which a reload may have replaced, and
    the calls then."""
    gateway = gateway_of(request)
    deadline = time.monotonic() + within_s
    while not _is_empty(backend, running) and not backend.serves and time.monotonic() < deadline and not gateway.draining:
        if await request.is_disconnected():
            break
        await asyncio.sleep(_LOOK_S)
        running = await crew_of(request).running()
        backend = gateway.state.backends.get(backend.name, backend)
    return backend, running


def _is_empty(backend: Backend, running: Running) -> bool:
    return not running.unheard and _calls(backend, running) == 0


def _calls(backend: Backend, running: Running) -> int:
    """Of all workers; of one that a reload took away, this worker's."""
    return running.calls.get(backend.name, backend.running)
