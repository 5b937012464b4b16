"""`/admin/policies`: which policies there are, what they have learnt, how they did, and what one of them would have been worth."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import orjson
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.config import tree
from gateway.config.plans import policy_specs
from gateway.http import schema
from gateway.http.admin import policy_shapes as shapes
from gateway.http.admin.asked import limit_of, moment, query_of, whole, wrong
from gateway.http.admin.etags import etag
from gateway.http.decisions import asked
from gateway.http.routes import caller, gateway_of
from gateway.learning import rebuilding, statistics
from gateway.learning.learner import Learner
from gateway.learning.logged import Asked, recorded
from gateway.learning.scopes import Scope, scope_of
from gateway.learning.snapshots import Version
from gateway.serving.choice import Snapshot
from gateway.serving.state import State, VirtualModel
from gateway.store import history
from gateway.store.history import Card, Stretch
from gateway.wire.errors import NO_RETRY, ApiError, shown
from policies.policy import Policy
from policies.registry import Spec

router = APIRouter(prefix="/admin/policies", tags=["admin"], dependencies=[schema.KEYED])

T = TypeVar("T")

MOST_ROWS: Final = 100_000
_ROWS: Final = 10_000
_LAST_BUCKET: Final = 500


def learner_of(request: Request) -> Learner:
    """What learns. Raises ApiError 503 without a database."""
    learner: Learner | None = request.scope["state"]["learner"]
    if learner is None:
        message = "Nothing is learnt here: `storage.url` is empty in the configuration."
        raise ApiError(503, "gateway_storage_unavailable", message, headers=(NO_RETRY,))
    return learner


def spec_of(state: State, name: str) -> Spec:
    """A policy as it is configured, or built in and in use. Raises ApiError 404."""
    spec = policy_specs(state.config).get(name)
    if spec is not None:
        return spec
    if not users(state, name):
        raise ApiError(404, "caller_not_found", f"There is no policy `{shown(name)}`.", param="name")
    return Spec(type=name)


def users(state: State, name: str) -> list[VirtualModel]:
    """The virtual models that it decides for."""
    return [route for route in state.names.values() if isinstance(route, VirtualModel) and route.policy.name == name]


def digest(spec: Spec) -> str:
    """Of what is configured."""
    return hashlib.sha256(orjson.dumps(msgspec.to_builtins(spec), option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def chosen(state: State, name: str, wanted: str | None) -> tuple[VirtualModel, Policy]:
    """The virtual model that is meant, and the policy over its plans. Raises ApiError 404, 400 where there are several, naming them."""
    spec_of(state, name)
    fitting = [route for route in state.names.values() if isinstance(route, VirtualModel) and name in route.policies]
    if wanted is not None:
        found = next((route for route in fitting if route.name == wanted), None)
        if found is None:
            raise wrong("virtual_model", f"should be one whose plans fit the policy: {_names(fitting)}")
        return found, found.policies[name]
    several = users(state, name) or fitting
    if len(several) != 1:
        raise wrong("virtual_model", f"is needed, one of {_names(several)}" if several else "is needed, and none fits the policy")
    return several[0], several[0].policies[name]


def _names(routes: list[VirtualModel]) -> str:
    return ", ".join(f"`{route.name}`" for route in routes) or "there is none"


@router.get(
    "",
    operation_id="list_policies",
    summary="Every policy, who uses it, and how much it has learnt",
    responses=schema.documented(shapes.LIST),
)
async def listed(request: Request) -> JSONResponse:
    """Those of the configuration, and built-in ones that are in use."""
    caller(request, "admin")
    state = gateway_of(request).state
    used = [route.policy.name for route in state.names.values() if isinstance(route, VirtualModel)]
    names = dict.fromkeys([*state.config.policies, *used])
    learner: Learner | None = request.scope["state"]["learner"]
    learning = None
    if learner is not None:
        learning = {
            "waiting": learner.waiting,
            "folded": learner.folded,
            "skipped": dict(learner.skipped),
            "last_fold": learner.last_fold,
            "error": learner.trouble,
        }
    data = [card(request, state, name) for name in names]
    return JSONResponse({"object": "list", "data": data, "next": None, "learning": learning})


@router.get(
    "/{name}",
    operation_id="get_policy",
    summary="One policy, and what it knows",
    responses=schema.documented(shapes.ONE),
    openapi_extra={"parameters": [shapes.NAME]},
)
async def one(request: Request) -> JSONResponse:
    """`ETag`: of what is configured. `statistics`: for each virtual model that it decides for; of a wrapper, those inside in `inner`."""
    caller(request, "admin")
    return answer(request, request.path_params["name"])


def answer(request: Request, name: str, status: int = 200, more: Mapping[str, Any] | None = None) -> JSONResponse:
    """A policy with its statistics."""
    state = gateway_of(request).state
    found = card(request, state, name)
    known = {route.name: _statistics(route.policy, _snapshot(request, route)) for route in users(state, name)}
    body = found | {"statistics": known, **(more or {})}
    return JSONResponse(body, status, headers={"etag": etag(digest(spec_of(state, name)))})


def card(request: Request, state: State, name: str) -> dict[str, Any]:
    """A policy as the admin API tells of it. Raises ApiError 404."""
    spec = spec_of(state, name)
    return {
        "object": "policy",
        "name": name,
        "configured": name in state.config.policies,
        "type": spec.type,
        "params": msgspec.to_builtins(spec.params),
        "floor": spec.floor,
        "seed": spec.seed,
        "wrappers": [dict(each) for each in spec.wrappers],
        "etag": etag(digest(spec)),
        "virtual_models": [_use(request, route) for route in users(state, name)],
        "named_by": named_by(state, name),
    }


def named_by(state: State, name: str) -> list[str]:
    """Other policies whose wrappers name it."""
    specs = policy_specs(state.config)
    return [other for other, spec in specs.items() if other != name and any(each.get("policy") == name for each in spec.wrappers)]


def _snapshot(request: Request, route: VirtualModel) -> Snapshot | None:
    return gateway_of(request).deciding.snapshots.get(f"{route.name}/{route.policy.name}")


def _use(request: Request, route: VirtualModel) -> dict[str, Any]:
    snapshot = _snapshot(request, route)
    version = snapshot if isinstance(snapshot, Version) else None
    return {
        "name": route.name,
        "learns": route.policy.algorithm.empty() is not None,
        "version": 0 if version is None else version.version,
        "observations": 0 if version is None else version.observations,
        "created": version.created if version is not None and version.version else None,
        "data_from": None if version is None else version.data_from,
        "data_to": None if version is None else version.data_to,
        "note": None if version is None else version.note,
    }


def _statistics(policy: Policy, snapshot: Snapshot | None) -> dict[str, Any]:
    state = policy.algorithm.empty() if snapshot is None or not snapshot.version else snapshot.state
    return known(policy, state)


def known(policy: Policy, state: Any) -> dict[str, Any]:
    """What it knows, as JSON can hold it."""
    found: dict[str, Any] = statistics.plain(policy.algorithm.statistics(state))
    return found


@router.get(
    "/{name}/versions",
    operation_id="list_policy_versions",
    summary="What it had learnt, version by version",
    responses=schema.documented(shapes.VERSIONS),
    openapi_extra=dict(shapes.VERSIONS_QUERY),
)
async def versions(request: Request) -> JSONResponse:
    """The newest first. Of older ones only some are kept; those between can be made again from what was learnt."""
    caller(request, "admin")
    query = query_of(request, "virtual_model", "limit", "cursor")
    limit, before = limit_of(query), whole(query, "cursor")
    route, policy = _meant(request, query)
    scope = scope_of(route, policy)
    rows = await asked(learner_of(request).read(partial(history.cards, policy=scope.name, before=before, limit=limit + 1)))
    more = str(rows[limit - 1].version) if len(rows) > limit else None
    data = [_version_card(each) for each in rows[:limit]]
    return JSONResponse({"object": "list", "virtual_model": route.name, "data": data, "next": more})


@router.get(
    "/{name}/versions/{version}",
    operation_id="get_policy_version",
    summary="What it knew at one of them",
    responses=schema.documented(shapes.VERSION),
    openapi_extra=dict(shapes.VERSION_QUERY),
)
async def version(request: Request) -> JSONResponse:
    """Restored, or made again to the bit from what was learnt since the last one that is kept."""
    caller(request, "admin")
    query = query_of(request, "virtual_model")
    route, policy = _meant(request, query)
    found = await restored(request, scope_of(route, policy), request.path_params["version"])
    return JSONResponse(_version_card(_card(found)) | {"virtual_model": route.name, "statistics": known(policy, found.state)})


@router.get(
    "/{name}/diff",
    operation_id="diff_policy_versions",
    summary="How two of them differ",
    responses=schema.documented(shapes.DIFF),
    openapi_extra=dict(shapes.DIFF_QUERY),
)
async def diff(request: Request) -> JSONResponse:
    """Of what it knew, and of its configuration. Without `to`: what it knows now."""
    caller(request, "admin")
    query = query_of(request, "from", "to", "virtual_model")
    before, after = whole(query, "from"), whole(query, "to")
    if before is None:
        raise wrong("from", "is missing")
    route, policy = _meant(request, query)
    scope = scope_of(route, policy)
    if after is None:
        rows = await asked(learner_of(request).read(partial(history.cards, policy=scope.name, before=None, limit=1)))
        after = rows[0].version if rows else 0
    one, other = await restored(request, scope, str(before)), await restored(request, scope, str(after))
    texts = await asked(learner_of(request).read(partial(history.config_texts, hashes=(one.config_hash, other.config_hash))))
    return JSONResponse(
        {
            "object": "policy.diff",
            "virtual_model": route.name,
            "from": one.version,
            "to": other.version,
            "statistics": statistics.differences(known(policy, one.state), known(policy, other.state)),
            "config": await asyncio.to_thread(_config_difference, policy.name, texts, one.config_hash, other.config_hash),
        }
    )


@router.get(
    "/{name}/curve",
    operation_id="policy_curve",
    summary="How its plans did, over time",
    responses=schema.documented(shapes.CURVE),
    openapi_extra=dict(shapes.CURVE_QUERY),
)
async def curve(request: Request) -> JSONResponse:
    """Decisions, labels, mean quality and cost of each plan, in stretches of equal time."""
    caller(request, "admin")
    query = query_of(request, "buckets", "last", "since", "until", "virtual_model")
    buckets, last = whole(query, "buckets") or 20, whole(query, "last") or _ROWS
    if buckets > _LAST_BUCKET:
        raise wrong("buckets", f"should be a whole number from 1 to {_LAST_BUCKET}")
    since, until = moment(query, "since"), moment(query, "until")
    route, policy = _meant(request, query)
    stretch = Stretch(route.name, policy.name, since, until)
    learner = learner_of(request)
    record = await asked(recorded(learner.read, Asked(stretch, most(last), features=False), learner.calibrations))
    data = await asyncio.to_thread(statistics.curve, record, buckets)
    return JSONResponse({"object": "list", "virtual_model": route.name, "decisions": len(record.decisions), "data": data, "next": None})


def converted(fields: Mapping[str, Any], kind: type[T]) -> T:
    """The fields as a value. Raises ApiError 400, naming the field."""
    try:
        return msgspec.convert(dict(fields), kind)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).partition(" - at `$.")
        # Of a field that is missing, the sentence itself has the name.
        name = place.rstrip("`") or sentence.partition("`")[2].partition("`")[0]
        raise ApiError(400, "caller_invalid_value", f"{shown(sentence)}: `{shown(name)}`.", param=shown(name) or None) from None


def most(last: int) -> int:
    """How many decisions. Raises ApiError 400."""
    if not 1 <= last <= MOST_ROWS:
        raise wrong("last", f"should be a whole number from 1 to {MOST_ROWS}")
    return last


async def newest_of(request: Request, scope: Scope) -> Version | None:
    """What the policy knows; None: nothing, or it does not learn."""
    learner = learner_of(request)
    if not scope.learns:
        return None
    rows = await asked(learner.read(partial(history.cards, policy=scope.name, before=None, limit=1)))
    return await restored(request, scope, str(rows[0].version)) if rows else None


async def restored(request: Request, scope: Scope, number: str) -> Version:
    """A version. Raises ApiError 404 where there is none, or none that old any more; 409 where it is of other plans or features, or where
    decisions that it was made from are gone."""
    if not (number.isascii() and number.isdigit() and 0 < len(number) < 10 and int(number) > 0):
        raise _unknown(number)
    try:
        return await asked(learner_of(request).read(partial(rebuilding.recomputed, scope=scope, version=int(number))))
    except LookupError:
        raise _unknown(number) from None
    except ValueError as error:
        raise ApiError(409, "caller_invalid_value", f"Version {number} cannot be used now: {error}.", param="version") from None


def _unknown(number: str) -> ApiError:
    return ApiError(404, "caller_not_found", f"There is no version {shown(number)} of what it learnt, or not any more.", param="version")


def _meant(request: Request, query: Mapping[str, str]) -> tuple[VirtualModel, Policy]:
    return chosen(gateway_of(request).state, request.path_params["name"], query.get("virtual_model"))


def _card(version: Version) -> Card:
    return Card(
        version.version,
        version.created,
        version.config_hash,
        version.plans,
        version.feature_version,
        None,
        version.observations,
        version.data_from,
        version.data_to,
        version.note,
    )


def _version_card(of: Card) -> dict[str, Any]:
    return {"object": "policy.version", **of._asdict(), "plans": list(of.plans)}


def _config_difference(name: str, texts: Mapping[str, str], before: str, after: str) -> list[dict[str, Any]] | None:
    """Of the policy's section; None: one of the texts was not kept."""
    if before == after:
        return []
    sections = [_section(texts[each], name) for each in (before, after) if each in texts]
    return statistics.differences(*sections) if len(sections) == 2 else None


def _section(text: str, name: str) -> dict[str, Any]:
    try:
        root, _ = tree.compose(text)
    except tree.MalformedError:
        return {}
    found = tree.plain(node) if (node := tree.find(root, ("policies", name))) is not None else {}
    return found if isinstance(found, dict) else {}
