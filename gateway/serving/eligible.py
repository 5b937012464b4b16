"""Which plans may run a request: filters before anything is weighed, each exclusion with its reason.

    strategy          the caller asks for another one, or none can serve such a request: several answers, or no chat
    reasoning         the caller asks for another amount of thinking
    capability:NAME   the model cannot do what the request needs, anywhere in its history
    context_length    prompt and answer would not fit
    budget_tokens     not even short answers of all candidates fit
    max_cost          not even a short answer is paid for
    unavailable       no replica would take a call now

What a caller's own request rules out is an error when nothing is left; when no replica takes calls, all that else might serve stay, for
waiting and failing over are the relay's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from gateway.serving.choice import Excluded
from gateway.serving.state import Load, RealModel
from gateway.wire.errors import ApiError
from policies.decoding.registry import SINGLE
from policies.values.plan import Plan, Reasoning
from policies.values.prompt import Prompt

N = TypeVar("N", int, float)

# Of the estimated tokens, so many are certain enough to rule a plan out; what overflows after all goes to a larger model.
_SURE: Final = 0.9
# An answer that is cut shorter is of no use.
_SHORTEST: Final = 16


class Eligible(msgspec.Struct, frozen=True, gc=False):
    """plans: indexes of those that may serve, in order. excluded: who may not, and why. most: tokens that each plan, by index, may sample;
    None: as many as it will."""

    plans: tuple[int, ...]
    excluded: tuple[Excluded, ...]
    most: tuple[int | None, ...]


class Strategies(msgspec.Struct, frozen=True):
    """loads: of each plan. wanted: the one that the caller asks for. barred: the parameter of the request because of which it can be
    served by one plain call only."""

    loads: Sequence[Load]
    wanted: str | None = None
    barred: str | None = None

    def against(self, plan: Plan) -> str | None:
        """What is against a plan."""
        if self.wanted is not None and plan.strategy != self.wanted:
            return "strategy"
        return "strategy" if self.barred is not None and plan.strategy != SINGLE else None

    def refusal(self) -> ApiError:
        """What a caller is told when no plan is left."""
        if self.wanted is not None and self.barred is None:
            return ApiError(400, "caller_invalid_value", "No plan of this model has such a strategy.", param="trilemma.strategy")
        message = "Every plan of this model has a strategy, which such a request cannot be served with: it must be one chat completion."
        return ApiError(400, "caller_invalid_value", message, param=self.barred)


def eligible(
    plans: Sequence[Plan],
    models: Sequence[RealModel],
    prompt: Prompt,
    *,
    reasoning: Reasoning | None = None,
    max_cost: float | None = None,
    budget_tokens: int | None = None,
    answers: int = 1,
    strategies: Strategies | None = None,
) -> Eligible:
    """Filters. reasoning, budget_tokens: what the caller asks for. max_cost: most that the request may cost, USD. answers: how many there
    are to be, each as long as it may be. strategies: where plans have any, or the caller asks for one.

    Raises ApiError 400 when nothing fits.
    """
    bounds = [plan.budget_tokens for plan in plans]
    if budget_tokens is not None:
        bounds = [least(bound, budget_tokens) for bound in bounds]
    needs = _needs(prompt)
    if reasoning is None and max_cost is None and strategies is None and not needs and _all_fit(models, prompt, bounds):
        return Eligible(tuple(range(len(plans))), (), tuple(bounds))
    left = list(range(len(plans)))
    excluded: list[Excluded] = []

    def keep(against: Sequence[str | None], otherwise: Callable[[], ApiError] | None) -> None:
        """Those plans against which there is nothing. otherwise: raised when none is left; None: then all stay."""
        nonlocal left
        kept = [index for index in left if against[index] is None]
        if not kept and otherwise is not None:
            raise otherwise()
        if kept and len(kept) < len(left):
            excluded.extend(Excluded(plans[index].name, why) for index in left if (why := against[index]) is not None)
            left = kept

    loads = [Load.of(model, None) for model in models] if strategies is None else strategies.loads
    shares = [bound if bound is None else bound // load.candidates for bound, load in zip(bounds, loads, strict=True)]
    wanted = [least(share, prompt.max_tokens) for share in shares]
    each = _each([load.models for load in loads])
    if strategies is not None:
        keep([strategies.against(plan) for plan in plans], strategies.refusal)
        small = [load.candidates > 1 and _too_few(share, prompt.max_tokens) for share, load in zip(shares, loads, strict=True)]
        keep(["budget_tokens" if is_small else None for is_small in small], _no_budget)
    if reasoning is not None:
        keep([None if plan.reasoning in (None, reasoning) else "reasoning" for plan in plans], None)
    for need in needs:
        keep(each(partial(_lacks, need)), partial(_no_capability, need))
    by_plan = zip(loads, shares, strict=True)
    keep([_first(partial(_too_long, prompt=prompt, bound=share), load.models) for load, share in by_plan], _no_context)
    most = tuple(shares)
    if max_cost is not None:
        paid = [_paid(load, prompt, max_cost, answers) for load in loads]
        most = tuple(map(least, shares, paid))
        keep(["max_cost" if _too_few(*bound) else None for bound in zip(paid, wanted, strict=True)], _no_money)
    live = _each([(model,) for model in models])
    keep(live(lambda model: None if model.replicas.any_live else "unavailable"), None)
    return Eligible(tuple(left), tuple(excluded), most)


def _all_fit(models: Sequence[RealModel], prompt: Prompt, bounds: Sequence[int | None]) -> bool:
    """Whether there is nothing against any of them, for a request that needs nothing but text."""
    before: tuple[RealModel | None, int | None] = None, None
    for model, bound in zip(models, bounds, strict=True):
        same = model is before[0] and bound == before[1]
        if not same and (not model.replicas.any_live or _too_long(model, prompt, bound) is not None):
            return False
        before = model, bound
    return True


Against = Callable[[RealModel], str | None]


def _first(against: Against, models: Sequence[RealModel]) -> str | None:
    """What is against the first of them against which there is anything."""
    return next((why for model in models if (why := against(model)) is not None), None)


def _each(groups: Sequence[Sequence[RealModel]]) -> Callable[[Against], list[str | None]]:
    """Asks once for each group of models what is against it, however many plans it has; the answers, by plan."""
    keys = [tuple(map(id, group)) for group in groups]
    distinct = dict(zip(keys, groups, strict=True))

    def asked(against: Against) -> list[str | None]:
        found = {key: _first(against, group) for key, group in distinct.items()}
        return [found[key] for key in keys]

    return asked


def _needs(prompt: Prompt) -> list[str]:
    """Capabilities, as a model's card names them."""
    if not (prompt.images or prompt.tools or prompt.json_schema or prompt.logprobs):
        return []
    found = {"vision": prompt.images, "tools": prompt.tools, "json_schema": prompt.json_schema, "logprobs": prompt.logprobs}
    return [name for name, needed in found.items() if needed]


def _lacks(need: str, model: RealModel) -> str | None:
    """A model of which nothing is said may be able to do anything."""
    return f"capability:{need}" if model.capabilities and need not in model.capabilities else None


def _too_long(model: RealModel, prompt: Prompt, bound: int | None) -> str | None:
    """bound: tokens that the plan may sample, to which the answer will be cut."""
    held = model.held_context()
    if held is None:
        return None
    return (
        "context_length"
        if prompt.tokens * _SURE + (1 if prompt.max_tokens is None else least(bound, prompt.max_tokens) or 1) > held
        else None
    )


def _paid(load: Load, prompt: Prompt, max_cost: float, answers: int) -> int | None:
    """Tokens of each answer that the money buys; None: they cost nothing. answers: of each candidate."""
    rates, calls = load.rates, load.candidates
    rest = (max_cost - load.questions) * 1e6 - prompt.tokens * rates.input * calls
    if rates.output > 0:
        return max(0, int(rest / rates.output / answers / calls))
    return 0 if rest < 0 else None


def _too_few(tokens: int | None, wanted: int | None) -> bool:
    """Whether that is less than a short answer, or than all that is wanted."""
    return tokens is not None and tokens < min(_SHORTEST, wanted or _SHORTEST)


def least(one: N | None, other: N | None) -> N | None:
    """The lesser of two bounds; None: there is none."""
    return other if one is None else one if other is None else min(one, other)


def _no_capability(need: str) -> ApiError:
    return ApiError(
        400, "caller_unsupported_capability", f"No plan of this model has the capability `{need}` that the request needs.", param="model"
    )


def _no_context() -> ApiError:
    return ApiError(
        400,
        "context_length_exceeded",
        "The prompt, with as long an answer as is asked for, is too long for every plan of this model.",
        param="messages",
    )


def _no_budget() -> ApiError:
    message = "The budget is too small for the candidates of every plan of this model."
    return ApiError(400, "caller_invalid_value", message, param="trilemma.budget_tokens")


def _no_money() -> ApiError:
    return ApiError(400, "caller_max_cost", "No plan of this model can answer for `max_cost`.", param="trilemma.max_cost")
