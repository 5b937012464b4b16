"""`/admin/config`: what runs, taking up a changed file, and putting another one in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gateway.access.keys import Principal
from gateway.config import tree, writing
from gateway.config.problems import ConfigError, Problem
from gateway.config.proposal import Proposal
from gateway.config.replacer import Moved, NotTakenUp, Replacer
from gateway.config.source import masked
from gateway.config.versions import Versions
from gateway.http import schema
from gateway.http.admin import described
from gateway.http.admin.asked import body_of, flag, query_of
from gateway.http.admin.etags import etag, instead_of
from gateway.http.admin.trails import noted
from gateway.http.routes import caller
from gateway.reload import Reloader
from gateway.store.writer import Writer
from gateway.wire.errors import ApiError
from gateway.wire.request import json_object
from gateway.workers.crew import Crew

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[schema.KEYED])

# By their names, new and old. `curl -T FILE` gives none.
_YAML: Final = ("", "application/yaml", "text/plain", "application/x-yaml", "text/yaml", "text/x-yaml")


def reloader_of(request: Request) -> Reloader:
    """What takes up configurations."""
    reloader: Reloader = request.scope["state"]["reloader"]
    return reloader


def crew_of(request: Request) -> Crew:
    """All workers, for what is said to one of them counts for all."""
    crew: Crew = request.scope["state"]["crew"]
    return crew


def versions_of(request: Request) -> Versions:
    """The configurations that ran."""
    versions: Versions = request.scope["state"]["versions"]
    return versions


@router.get(
    "/config",
    operation_id="show_config",
    summary="Which configuration runs, and the last failed reload",
    responses=schema.documented(described.SHOW),
)
async def show(request: Request) -> JSONResponse:
    """Hash, version, source, time. `last_error`: the problems of the last reload that failed after it; `storage`: why decisions wait."""
    caller(request, "admin")
    return _status(request)


@router.get(
    "/config/source",
    operation_id="show_config_source",
    summary="The text of the configuration that runs",
    responses=schema.documented(described.SOURCE),
    response_class=Response,
)
async def source(request: Request) -> Response:
    """Secrets that stand in it in plain text are shown as `***`; references (`${NAME}`) as they are written."""
    caller(request, "admin")
    loaded = reloader_of(request).loaded
    text = await asyncio.to_thread(masked, loaded)
    return Response(text, headers={"content-type": "application/yaml", "etag": etag(loaded.hash), "cache-control": "no-store"})


@router.put(
    "/config",
    operation_id="put_config",
    summary="Make a text the configuration, in its file and in use",
    responses=schema.documented(described.PUT),
    openapi_extra=dict(described.PUT_BODY),
)
async def put(request: Request) -> JSONResponse:
    """Checked, written to the file as a whole, and taken up by all workers; on any problem nothing is changed, and all of them are told.

    New secrets in plain text are refused: write `${NAME}`, or name a file. `***` stands for the secret that is in the same place now.
    """
    principal = caller(request, "admin")
    dry_run = flag(query_of(request, "dry_run"), "dry_run")
    matches = None if dry_run and "if-match" not in request.headers else instead_of(request)
    text = await _text(request)
    if not dry_run:
        return await replaced(request, principal, "config.put", text)
    loaded = reloader_of(request).loaded
    if matches is not None and not matches(loaded.hash):
        raise _moved(loaded.hash)
    try:
        proposal = await _replacer(request).look_at(text)
    except ConfigError as error:
        return refused(error.problems)
    found = {"object": "config.check", "hash": proposal.loaded.hash, "running": loaded.hash}
    return JSONResponse(found | said(proposal.warnings, proposal.diff), headers={"etag": etag(loaded.hash)})


@router.post(
    "/config/reload",
    operation_id="reload_config",
    summary="Read the configuration file again",
    responses=schema.documented(described.RELOAD),
)
async def reload(request: Request) -> JSONResponse:
    """Parses, checks, builds a complete new state and swaps it in, in all workers; on any problem the old one stays."""
    principal = caller(request, "admin")
    before = reloader_of(request).loaded.hash
    problems = await crew_of(request).reload()
    if problems:
        raise ApiError(400, "gateway_reload_failed", f"The old configuration stays: {'; '.join(problems)}")
    noted(request, principal, "config.reload", "config", before_hash=before, after_hash=reloader_of(request).loaded.hash)
    return _status(request)


async def replaced(request: Request, principal: Principal, action: str, text: str, detail: Mapping[str, Any] | None = None) -> JSONResponse:
    """Makes the text the configuration, if what runs is what the caller means to replace. action, detail: for the audit log."""
    try:
        proposal = await taken_up(request, principal, (action, "config"), text, instead_of(request), detail)
    except ConfigError as error:
        return refused(error.problems)
    return _status(request, said(proposal.warnings, proposal.diff))


async def taken_up(
    request: Request,
    principal: Principal,
    action: tuple[str, str],
    text: str,
    instead: Callable[[str], bool] | None,
    detail: Mapping[str, Any] | None = None,
) -> Proposal:
    """Makes the text the configuration. action: and its target, for the audit log, as is `detail`. instead: see Replacer.replace. Raises
    ConfigError for what is wrong with it (`refused` tells of that), ApiError."""
    try:
        before, proposal = await _replacer(request).replace(text, principal.key, instead)
    except Moved as moved:
        raise _moved(moved.hash) from None
    except writing.NotWritable as error:
        message = (
            f"The configuration file {reloader_of(request).loaded.source} cannot be written ({error}): "
            "change it where it is kept, and it is taken up from there."
        )
        raise ApiError(409, "gateway_read_only", message) from None
    except NotTakenUp as error:
        raise ApiError(400, "gateway_reload_failed", f"The old configuration stays: {error}") from None
    noted(request, principal, *action, before_hash=before.hash, after_hash=proposal.loaded.hash, detail=detail)
    await versions_of(request).settle()
    return proposal


def _replacer(request: Request) -> Replacer:
    replacer: Replacer = request.scope["state"]["replacer"]
    return replacer


def _status(request: Request, more: Mapping[str, Any] | None = None) -> JSONResponse:
    writer: Writer | None = request.scope["state"]["writer"]
    storage = None if writer is None else {"error": writer.trouble, "waiting": writer.waiting, "dropped": writer.dropped}
    status = reloader_of(request).status()
    answer = status | {"storage": storage, "version": versions_of(request).running, **(more or {})}
    return JSONResponse(answer, headers={"etag": etag(status["hash"])})


def said(warnings: Sequence[Problem], diff: str) -> dict[str, Any]:
    """What is told of a change."""
    return {"warnings": [asdict(each) for each in warnings], "diff": diff}


def refused(problems: Sequence[Problem]) -> JSONResponse:
    """400 with all problems."""
    count = f"{len(problems)} problems, the first: " if len(problems) > 1 else ""
    error = ApiError(400, "caller_invalid_value", f"The old configuration stays: {count}{problems[0]}", param=problems[0].path or None)
    return JSONResponse(orjson.loads(error.body()) | {"problems": [asdict(each) for each in problems]}, 400)


def _moved(running: str | None) -> ApiError:
    if running is None:
        message = "The file was changed since it was taken up: POST /admin/config/reload, or write over it with `If-Match: *`."
    else:
        message = f"Another configuration runs, {running}: read it again, and change that."
    return ApiError(412, "caller_precondition_failed", message, param="If-Match")


async def _text(request: Request) -> str:
    """The body as the text of a configuration. Raises ApiError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (*_YAML, "application/json"):
        message = "Send application/yaml, text/plain or application/json."
        raise ApiError(415, "caller_unsupported_media_type", message, param="content-type")
    body = await body_of(request, tree.MAX_BYTES)
    if kind == "application/json":
        found = json_object(body)
        if found is None:
            raise ApiError(400, "caller_invalid_json", "The request body is not a JSON object.")
        return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ApiError(400, "caller_invalid_value", "The request body is not UTF-8 text.") from None
