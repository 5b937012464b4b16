"""`/admin/config/versions`: the configurations that ran, how they differ, and going back to one."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.config.proposal import difference
from gateway.config.source import masked
from gateway.http import schema
from gateway.http.admin import described
from gateway.http.admin.asked import body_of, fields_of, limit_of, query_of, whole, wrong
from gateway.http.admin.config import reloader_of, replaced, versions_of
from gateway.http.admin.etags import instead_of
from gateway.http.routes import caller
from gateway.store.versions import ConfigVersion
from gateway.wire.errors import ApiError, shown

router = APIRouter(prefix="/admin/config", tags=["admin"], dependencies=[schema.KEYED])


@router.get(
    "/versions",
    operation_id="list_config_versions",
    summary="The configurations that ran",
    responses=schema.documented(described.VERSIONS),
    openapi_extra=dict(described.VERSIONS_QUERY),
)
async def listed(request: Request) -> JSONResponse:
    """The newest first. However it came (start, signal, watch, API), a configuration whose hash is new is a new version."""
    caller(request, "admin")
    query = query_of(request, "limit", "cursor")
    limit = limit_of(query)
    found, source = await versions_of(request).page(whole(query, "cursor"), limit + 1)
    data = [_card(request, each) for each in found[:limit]]
    more = str(found[limit - 1].version) if len(found) > limit else None
    return JSONResponse({"object": "list", "data": data, "next": more, "source": source})


@router.get(
    "/versions/{version}",
    operation_id="get_config_version",
    summary="One of them, with its text",
    responses=schema.documented(described.VERSION),
    openapi_extra=dict(described.VERSION_PATH),
)
async def one(request: Request) -> JSONResponse:
    """The text is that with which it first ran; a text with secrets in it is not kept."""
    caller(request, "admin")
    version = await _named(request, request.path_params["version"])
    return JSONResponse(_card(request, version) | {"text": version.text})


@router.get(
    "/diff",
    operation_id="diff_config_versions",
    summary="How two of them differ",
    responses=schema.documented(described.DIFF),
    openapi_extra=dict(described.DIFF_QUERY),
)
async def diff(request: Request) -> JSONResponse:
    """A unified diff, from one version to another or to what runs."""
    caller(request, "admin")
    query = query_of(request, "from", "to")
    one, other = whole(query, "from"), whole(query, "to")
    if one is None:
        raise wrong("from", "is missing")
    before = _text(await _named(request, str(one)))
    if other is None:
        name, after = "running", await asyncio.to_thread(masked, reloader_of(request).loaded)
    else:
        name, after = f"version {other}", _text(await _named(request, str(other)))
    found = await asyncio.to_thread(difference, before, after, (f"version {one}", name))
    return JSONResponse({"object": "config.diff", "from": one, "to": other, "diff": found})


@router.post(
    "/rollback",
    operation_id="roll_back_config",
    summary="Make a version the configuration again",
    responses=schema.documented(described.ROLLBACK),
    openapi_extra=dict(described.ROLLBACK_BODY),
)
async def roll_back(request: Request) -> JSONResponse:
    """As `PUT /admin/config` with its text."""
    principal = caller(request, "admin")
    instead_of(request)  # before it is looked for what is not there
    number = fields_of(await body_of(request, 4_096), "version").get("version")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 10**9:
        raise wrong("version", "should be a whole number from 1")
    text = _text(await _named(request, str(number)))
    return await replaced(request, principal, "config.rollback", text, {"version": number})


async def _named(request: Request, number: str) -> ConfigVersion:
    known = number.isascii() and number.isdigit() and len(number) < 10
    version = await versions_of(request).get(int(number)) if known else None
    if version is None:
        raise ApiError(404, "caller_not_found", f"There is no version {shown(number)} of the configuration.", param="version")
    return version


def _text(version: ConfigVersion) -> str:
    if version.text is None:
        message = f"The text of version {version.version} was not kept, for it held secrets."
        raise ApiError(404, "caller_not_found", message, param="version")
    return version.text


def _card(request: Request, version: ConfigVersion) -> dict[str, Any]:
    return {
        "object": "config.version",
        "version": version.version,
        "hash": version.hash,
        "created": version.created,
        "by_key": version.by_key,
        "running": version.hash == reloader_of(request).loaded.hash,
    }
