"""Changing policies: their configuration, through the configuration's file as every change of it, and what they have learnt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.config.editing import REMOVED, NotEditable, edited
from gateway.config.load import Loaded
from gateway.config.plans import policy_specs
from gateway.config.problems import ConfigError
from gateway.config.proposal import Proposal
from gateway.http import schema
from gateway.http.admin import policy_shapes as shapes
from gateway.http.admin.asked import body_of, fields_of, query_of, wrong
from gateway.http.admin.config import refused, reloader_of, said, taken_up
from gateway.http.admin.etags import instead_of
from gateway.http.admin.policies import (
    answer,
    chosen,
    digest,
    learner_of,
    named_by,
    spec_of,
    users,
)
from gateway.http.admin.trails import noted
from gateway.http.decisions import asked
from gateway.http.routes import caller, gateway_of
from gateway.learning.scopes import scope_of
from gateway.learning.snapshots import Version
from gateway.serving.state import State, VirtualModel
from gateway.wire.errors import ApiError, shown
from policies.policy import Policy
from policies.registry import Spec

router = APIRouter(prefix="/admin/policies", tags=["admin"], dependencies=[schema.KEYED])

Wrappers = Sequence[Mapping[str, Any]]

_MAX_BODY: Final = 65_536
_FROZEN: Final = "frozen"


@router.put(
    "/{name}",
    operation_id="put_policy",
    summary="Make or change a policy",
    responses=schema.documented(shapes.PUT),
    openapi_extra=dict(shapes.PUT_BODY),
)
async def put(request: Request) -> JSONResponse:
    """The section `policies.NAME` of the configuration, as a whole: checked, written to the file and taken up as by `PUT /admin/config`."""
    principal = caller(request, "admin")
    name: str = request.path_params["name"]
    query_of(request)
    old = policy_specs(gateway_of(request).state.config).get(name)
    matches(request, old)
    section = fields_of(await body_of(request, _MAX_BODY), "type", "params", "floor", "seed", "wrappers")
    return await _changed(request, ("policy.put", name), ("policies", name), section, status=200 if old is not None else 201, by=principal)


@router.delete(
    "/{name}",
    operation_id="delete_policy",
    summary="Take a policy out of the configuration",
    responses=schema.documented(shapes.DELETED),
    openapi_extra={"parameters": [shapes.NAME, shapes.IF_MATCH]},
)
async def delete(request: Request) -> JSONResponse:
    """Only one that nobody uses. What it had learnt stays in the database, should it come back."""
    principal = caller(request, "admin")
    name: str = request.path_params["name"]
    state = gateway_of(request).state
    spec = _configured(state, name)
    matches(request, spec)
    using = [f"virtual model `{route.name}`" for route in users(state, name)] + [f"policy `{each}`" for each in named_by(state, name)]
    if using:
        raise ApiError(409, "caller_invalid_value", f"It is in use: {', '.join(using)}.", param="name")
    loaded = reloader_of(request).loaded
    try:
        text = await text_with(loaded, ("policies", name), REMOVED)
        proposal = await taken_up(request, principal, ("policy.delete", f"policies.{name}"), text, still(loaded))
    except ConfigError as error:
        return refused(error.problems)
    return JSONResponse({"object": "policy.deleted", "name": name, **said(proposal.warnings, proposal.diff)})


@router.post(
    "/{name}/freeze",
    operation_id="freeze_policy",
    summary="It learns no more, and tries nothing out",
    responses=schema.documented(shapes.REWRAPPED),
    openapi_extra=dict(shapes.REWRAP),
)
async def freeze(request: Request) -> JSONResponse:
    """The wrapper `frozen` is put around it. What it knows stays as it is; what is said meanwhile it never learns."""

    def wrapped(wrappers: Wrappers) -> Wrappers:
        return wrappers if is_frozen(wrappers) else [*wrappers, {"type": _FROZEN}]

    return await _rewrapped(request, "policy.freeze", wrapped)


@router.post(
    "/{name}/unfreeze",
    operation_id="unfreeze_policy",
    summary="It learns again",
    responses=schema.documented(shapes.REWRAPPED),
    openapi_extra=dict(shapes.REWRAP),
)
async def unfreeze(request: Request) -> JSONResponse:
    """The wrapper `frozen` is taken off."""
    return await _rewrapped(request, "policy.unfreeze", lambda wrappers: [each for each in wrappers if each.get("type") != _FROZEN])


@router.post(
    "/{name}/shadow",
    operation_id="shadow_policy",
    summary="Let another policy watch, or end that",
    responses=schema.documented(shapes.REWRAPPED),
    openapi_extra=dict(shapes.SHADOW_BODY),
)
async def shadow(request: Request) -> JSONResponse:
    """`policy`: a configured one, which is asked what it would do and learns from the same outcomes, without influence. null: nobody."""
    caller(request, "admin")
    fields = fields_of(await body_of(request, _MAX_BODY), "policy")
    other = fields.get("policy", "")
    if other is not None and not (isinstance(other, str) and other):
        raise wrong("policy", "should be the name of a policy, or null")
    if other is not None and other not in gateway_of(request).state.config.policies:
        raise wrong("policy", f"should be a policy of the configuration, and `{shown(other)}` is none")

    def wrapped(wrappers: Wrappers) -> Wrappers:
        wish = {"type": "shadow", "policy": other}
        if wish in [dict(each) for each in wrappers]:
            return wrappers
        rest = [each for each in wrappers if each.get("type") != "shadow"]
        return rest if other is None else [*rest, wish]

    return await _rewrapped(request, "policy.shadow", wrapped, {"policy": other})


@router.post(
    "/{name}/rollback",
    operation_id="roll_back_policy",
    summary="Make what it knew at a version what it knows",
    responses=schema.documented(shapes.LEARNT),
    openapi_extra=dict(shapes.ROLLBACK_BODY),
)
async def roll_back(request: Request) -> JSONResponse:
    """As a new version, with a note. What was said of decisions since is forgotten; what is said of them again counts as new."""
    principal = caller(request, "admin")
    query = query_of(request, "virtual_model")
    number = fields_of(await body_of(request, _MAX_BODY), "version").get("version")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 10**9:
        raise wrong("version", "should be a whole number from 1")
    route, policy = _serving(request, query)
    learner = learner_of(request)
    try:
        version = await asked(learner.roll_back(scope_of(route, policy).name, number))
    except LookupError as error:
        raise ApiError(404, "caller_not_found", f"{_sentence(error)}.", param="version") from None
    except ValueError as error:
        raise ApiError(409, "caller_invalid_value", f"Version {number} cannot be used now: {error}.", param="version") from None
    detail = {"virtual_model": route.name, "to": number, "version": version.version}
    noted(request, principal, "policy.rollback", f"policies.{policy.name}", detail=detail)
    return JSONResponse(_learnt(route, version))


@router.post(
    "/{name}/rebuild",
    operation_id="rebuild_policy",
    summary="Make what it knows anew from the log",
    responses=schema.documented(shapes.LEARNT),
    openapi_extra=dict(shapes.REBUILD),
)
async def rebuild(request: Request) -> JSONResponse:
    """From the newest 20,000 decisions that it learnt from and that are still there, as a new version."""
    principal = caller(request, "admin")
    route, policy = _serving(request, query_of(request, "virtual_model"))
    if is_frozen(spec_of(gateway_of(request).state, policy.name).wrappers):
        raise ApiError(409, "caller_invalid_value", "It is frozen, and would learn nothing from the log: unfreeze it first.", param="name")
    try:
        version = await asked(learner_of(request).rebuild(scope_of(route, policy).name))
    except LookupError as error:
        raise ApiError(404, "caller_not_found", f"{_sentence(error)}.", param="name") from None
    detail = {"virtual_model": route.name, "version": version.version, "observations": version.observations}
    noted(request, principal, "policy.rebuild", f"policies.{policy.name}", detail=detail)
    return JSONResponse(_learnt(route, version))


def matches(request: Request, spec: Spec | None, *, needed: bool = True) -> None:
    """Raises ApiError 428 where `If-Match` is needed and missing, 412 where the policy is not what the caller has seen. spec: None: there
    is none, which is what `If-None-Match: *` asks for."""
    if request.headers.get("if-none-match", "").strip() == "*":
        if spec is not None:
            raise ApiError(412, "caller_precondition_failed", "There is such a policy already.", param="If-None-Match")
        return
    if not needed and "if-match" not in request.headers:
        return
    meant = instead_of(request)
    if meant is not None and (spec is None or not meant(digest(spec))):
        message = "There is no such policy." if spec is None else "The policy is another one by now: read it again, and change that."
        raise ApiError(412, "caller_precondition_failed", message, param="If-Match")


async def _rewrapped(
    request: Request, action: str, wrapped: Callable[[Wrappers], Wrappers], detail: Mapping[str, Any] | None = None
) -> JSONResponse:
    """Changes what is put around a policy; nothing where that is there already."""
    principal = caller(request, "admin")
    query_of(request)
    name: str = request.path_params["name"]
    spec = _configured(gateway_of(request).state, name)
    matches(request, spec, needed=False)
    wrappers = [dict(each) for each in wrapped(spec.wrappers)]
    if wrappers == [dict(each) for each in spec.wrappers]:
        return answer(request, name, more=said((), ""))
    return await _changed(request, (action, name), ("policies", name, "wrappers"), wrappers, by=principal, detail=detail)


async def _changed(
    request: Request,
    action: tuple[str, str],
    place: Sequence[str],
    value: Any,
    *,
    by: Any,
    status: int = 200,
    detail: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """Changes one place of the configuration; the policy then. action: and the policy's name."""
    loaded = reloader_of(request).loaded
    what, name = action
    try:
        text = await text_with(loaded, place, value)
        proposal: Proposal = await taken_up(request, by, (what, f"policies.{name}"), text, still(loaded), detail)
    except ConfigError as error:
        return refused(error.problems)
    return answer(request, name, status, said(proposal.warnings, proposal.diff))


async def text_with(loaded: Loaded, place: Sequence[str], value: Any) -> str:
    """The configuration's text with this value in that place. Raises ApiError 409."""
    try:
        return await asyncio.to_thread(partial(edited, loaded.text, place, value))
    except NotEditable as error:
        message = f"The configuration's text cannot be changed in this one place ({error}): use PUT /admin/config."
        raise ApiError(409, "gateway_read_only", message) from None


def still(loaded: Loaded) -> Callable[[str], bool]:
    """Whether what runs is what was looked at."""
    return lambda hash_: hash_ == loaded.hash


def _configured(state: State, name: str) -> Spec:
    spec = policy_specs(state.config).get(name)
    if spec is None:
        raise ApiError(404, "caller_not_found", f"The configuration has no policy `{shown(name)}`.", param="name")
    return spec


def _serving(request: Request, query: Mapping[str, str]) -> tuple[VirtualModel, Policy]:
    """A virtual model that the policy decides for. Raises ApiError 404, 400, 409."""
    name: str = request.path_params["name"]
    route, policy = chosen(gateway_of(request).state, name, query.get("virtual_model"))
    if route.policy.name != name:
        raise ApiError(409, "caller_invalid_value", f"It does not decide for `{route.name}`: it has no state to change.", param="name")
    if policy.algorithm.empty() is None:
        raise ApiError(409, "caller_invalid_value", "This policy learns nothing.", param="name")
    return route, policy


def is_frozen(wrappers: Wrappers) -> bool:
    """Whether the policy learns no more."""
    return any(each.get("type") == _FROZEN for each in wrappers)


def _learnt(route: VirtualModel, version: Version) -> dict[str, Any]:
    return {
        "object": "policy.learnt",
        "virtual_model": route.name,
        "version": version.version,
        "observations": version.observations,
        "data_from": version.data_from,
        "data_to": version.data_to,
        "note": version.note,
    }


def _sentence(error: LookupError) -> str:
    said_ = str(error.args[0]) if error.args else "there is no such version"
    return said_[:1].upper() + said_[1:]
