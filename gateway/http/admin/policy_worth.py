"""What policies would have been worth: `/admin/policies/NAME/evaluate`, and who may take whose place: `.../promote`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.config.plans import policy_specs
from gateway.config.problems import ConfigError
from gateway.http import schema
from gateway.http.admin import policy_shapes as shapes
from gateway.http.admin.asked import body_of, fields_of, moment, wrong
from gateway.http.admin.config import refused, reloader_of, said, taken_up
from gateway.http.admin.policies import chosen, converted, learner_of, most, newest_of
from gateway.http.admin.policy_changes import is_frozen, still, text_with
from gateway.http.decisions import asked
from gateway.http.routes import caller, gateway_of
from gateway.learning import statistics
from gateway.learning.evaluating import Busy, Evaluator, Question, TooLong, Untold
from gateway.learning.logged import Asked
from gateway.learning.scopes import scope_of
from gateway.learning.snapshots import Version
from gateway.serving.state import State, VirtualModel
from gateway.store.history import Stretch
from gateway.store.lazily import Lazily
from gateway.wire.errors import ApiError, retry_after
from policies.policy import Policy
from policies.registry import Spec

if TYPE_CHECKING:
    from policies.offpolicy import promotion
else:
    promotion = Lazily("policies.offpolicy.promotion")

router = APIRouter(prefix="/admin/policies", tags=["admin"], dependencies=[schema.KEYED])

_MAX_BODY: Final = 16_384
_BUSY_S: Final = 5.0
_EVALUATED: Final = 10_000
_PROMOTED: Final = 50_000


@router.post(
    "/{name}/evaluate",
    operation_id="evaluate_policy",
    summary="What it would have been worth on logged traffic",
    responses=schema.documented(shapes.EVALUATED),
    openapi_extra=dict(shapes.EVALUATE_BODY),
)
async def evaluate(request: Request) -> JSONResponse:
    """Direct, IPS, SNIPS, DR and SWITCH, with intervals, effective sample sizes, and why where there is no estimate. One at a time.

    `state`: `current`: with what it knows, kept as it is; rows that it has learnt from flatter it, see `learnt_from`. `none`: it begins
    with nothing and learns through the log, so that each row is new to it. Default: `current` where it knows something.
    """
    caller(request, "admin")
    asked_for = _Evaluation.read(await body_of(request, _MAX_BODY))
    state = gateway_of(request).state
    route, policy = chosen(state, request.path_params["name"], asked_for.virtual_model)
    learner = learner_of(request)
    newest = await newest_of(request, scope_of(route, policy)) if asked_for.state != "none" else None
    if newest is None and asked_for.state == "current" and policy.algorithm.empty() is not None:
        raise ApiError(409, "caller_invalid_value", "It has learnt nothing yet: there is no current state.", param="state")
    question = Question(
        route,
        policy,
        Asked(Stretch(route.name, None, asked_for.since, asked_for.until), asked_for.last),
        by_unit(state),
        None if newest is None else newest.state,
        asked_for.all_turns,
        asked_for.clip,
        asked_for.switch,
    )
    report = await told(evaluator_of(request).report(learner.read, question))
    learnt_from = None if newest is None else {"from": newest.data_from, "to": newest.data_to}
    return JSONResponse(
        {
            "object": "policy.evaluation",
            "virtual_model": route.name,
            "state": None if newest is None else {"version": newest.version, "observations": newest.observations},
            "learnt_from": learnt_from,
            "report": statistics.plain(msgspec.to_builtins(report)),
        }
    )


class _Evaluation(msgspec.Struct, frozen=True):
    """What the body of an evaluation says."""

    virtual_model: str | None = None
    last: int = _EVALUATED
    since: float | None = None
    until: float | None = None
    state: str | None = None
    all_turns: bool = False
    clip: float | None = None
    switch: float | None = None

    @staticmethod
    def read(body: bytes) -> _Evaluation:
        """Raises ApiError 400."""
        fields = fields_of(body or b"{}", *_Evaluation.__struct_fields__)
        times = {name: str(fields[name]) for name in ("since", "until") if fields.get(name) is not None}
        given = {name: value for name, value in fields.items() if value is not None}
        found = converted({**given, **{name: moment(times, name) for name in times}}, _Evaluation)
        if found.state not in (None, "current", "none"):
            raise wrong("state", "should be `current` or `none`")
        for name in ("clip", "switch"):
            if (bound := getattr(found, name)) is not None and not 0 < bound < 1e12:
                raise wrong(name, "should be a number above 0")
        most(found.last)
        return found


class _Promotion(msgspec.Struct, frozen=True):
    """What the body of a promotion says. See promotion.Rule."""

    candidate: str
    virtual_model: str | None = None
    force: bool = False
    margin: float = 0.0
    dearer: float | None = 0.0
    slower: float | None = None
    least: int = 500
    least_labels: int = 100
    last: int = _PROMOTED

    @property
    def rule(self) -> promotion.Rule:
        """Raises ApiError 400."""
        for name in ("margin", "dearer", "slower"):
            value = getattr(self, name)
            if value is not None and not -1 <= value <= (1 if name == "margin" else 1e6):
                raise wrong(name, "should be a share")
        for name in ("least", "least_labels", "last"):
            if not 1 <= getattr(self, name) <= 10**6:
                raise wrong(name, "should be a whole number from 1 to 1000000")
        return promotion.Rule(self.margin, self.dearer, self.slower, self.least, self.least_labels)


@router.post(
    "/{name}/promote",
    operation_id="promote_policy",
    summary="Let another policy take its place, if the log says that it may",
    responses=schema.documented(shapes.PROMOTED),
    openapi_extra=dict(shapes.PROMOTE_BODY),
)
async def promote(request: Request) -> JSONResponse:
    """The candidate is judged by a rule on what this policy decided, with bounds that hold however often it is asked; it learns through the
    log as it goes. 409, with the record, where the rule does not say `promote`, unless `force`. Else `virtual_models.NAME.policy` becomes
    the candidate, which begins with what both have learnt. The record stands in the audit log."""
    principal = caller(request, "admin")
    fields = fields_of(await body_of(request, _MAX_BODY), *_Promotion.__struct_fields__)
    wish = converted(fields, _Promotion)
    rule = wish.rule
    state = gateway_of(request).state
    route, current, candidate = _pair(state, request.path_params["name"], wish)
    loaded = reloader_of(request).loaded
    record = await _judged(request, route, current, candidate, wish, rule)
    plain = statistics.plain(record.plain())
    if record.verdict != "promote" and not wish.force:
        reasons = "; ".join(record.reasons) or "it does not hold"
        error = ApiError(409, "caller_invalid_value", f"The rule says to {record.verdict}: {reasons}.", param="candidate")
        return JSONResponse({**msgspec.json.decode(error.body()), "record": plain}, 409)
    version = await _prepared(request, state, route, current, candidate)
    detail = {"virtual_model": route.name, "from": current.name, "to": candidate.name, "forced": wish.force, "record": plain}
    place = ("virtual_models", route.name, "policy")
    try:
        text = await text_with(loaded, place, candidate.name)
        proposal = await taken_up(request, principal, ("policy.promote", ".".join(place)), text, still(loaded), detail)
    except ConfigError as error_:
        return refused(error_.problems)
    return JSONResponse(
        {
            "object": "policy.promotion",
            "virtual_model": route.name,
            "from": current.name,
            "to": candidate.name,
            "forced": wish.force,
            "version": version,
            "record": plain,
            **said(proposal.warnings, proposal.diff),
        }
    )


def _pair(state: State, name: str, wish: _Promotion) -> tuple[VirtualModel, Policy, Policy]:
    """The virtual model, the policy that serves it, and the one that is to."""
    route, current = chosen(state, name, wish.virtual_model)
    if route.policy.name != name:
        raise ApiError(409, "caller_invalid_value", f"`{route.name}` is served by `{route.policy.name}`, not by this policy.", param="name")
    candidate = route.policies.get(wish.candidate)
    if candidate is None or wish.candidate == name:
        raise wrong("candidate", f"should be another policy that fits the plans of `{route.name}`")
    return route, current, candidate


async def _judged(
    request: Request, route: VirtualModel, current: Policy, candidate: Policy, wish: _Promotion, rule: promotion.Rule
) -> promotion.Record:
    frozen = is_frozen(spec_of_any(gateway_of(request).state, candidate.name).wrappers)
    newest = await newest_of(request, scope_of(route, candidate)) if frozen else None
    question = Question(
        route,
        candidate,
        # Of a frozen one only what came after all that it has learnt from.
        Asked(Stretch(route.name, current.name, None if newest is None else newest.data_to), wish.last),
        by_unit(gateway_of(request).state),
        None if newest is None else newest.state,
    )
    record: promotion.Record = await told(evaluator_of(request).record(learner_of(request).read, question, rule, current.name))
    return record


async def _prepared(request: Request, state: State, route: VirtualModel, current: Policy, candidate: Policy) -> int | None:
    """The version with which the candidate begins; None: it has learnt nothing, or does not learn."""
    scope = scope_of(route, candidate, state.hash)
    if not scope.learns:
        return None
    if is_frozen(spec_of_any(state, candidate.name).wrappers):
        newest = await newest_of(request, scope)
        return None if newest is None else newest.version
    version: Version = await asked(learner_of(request).prepare(scope, scope_of(route, current).name))
    return version.version


def spec_of_any(state: State, name: str) -> Spec:
    """A policy as it is configured, or built in."""
    return policy_specs(state.config).get(name) or Spec(type=name)


def evaluator_of(request: Request) -> Evaluator:
    """Who answers what policies would have been worth."""
    evaluator: Evaluator = request.scope["state"]["evaluator"]
    return evaluator


def by_unit(state: State) -> frozenset[str]:
    """Policies that draw once for all requests of a unit."""
    specs = policy_specs(state.config)
    return frozenset(name for name, spec in specs.items() if any(each.get("type") == "canary" for each in spec.wrappers))


async def told(answer: Any) -> Any:
    """What an evaluator answers. Raises ApiError 503 when it is busy, 504 when it takes too long, 409 where the log cannot tell."""
    try:
        return await asked(answer)
    except Busy:
        message = "Another evaluation is running."
        raise ApiError(503, "gateway_overloaded", message, headers=retry_after(_BUSY_S)) from None
    except TooLong:
        raise ApiError(504, "gateway_deadline", "It takes too long: ask about fewer decisions (`last`).", param="last") from None
    except Untold as error:
        raise ApiError(409, "caller_invalid_value", f"The log cannot tell: {error}.") from None
