"""What an import knows of each model beyond the engines that serve it: Trilemma's `models` section.

    models(catalogue, stand_ins, settings, report) -> public name -> Model

Where replicas differ, the careful reading holds: the smallest context, the highest price, what all of them can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.config.problems import shown
from gateway.importing.catalogue import Catalogue
from gateway.importing.deployment import Deployment
from gateway.importing.report import Report
from gateway.importing.settings import Settings

DEFAULT_ATTEMPTS = 3
"""What both gateways take when nothing is said: LiteLLM's two retries are a third attempt."""

_MOST_ATTEMPTS = 20
_MOST_SLOTS = 100_000
_WORDS = ("tools", "json_schema", "vision", "reasoning", "embeddings")


@dataclass(frozen=True, slots=True)
class Model:
    """prices: USD per million tokens of input, cached input and output; None: not said. slots: calls at once."""

    aliases: Sequence[str]
    context: int | None
    capabilities: Sequence[str]
    prices: Sequence[float | None]
    attempts: int
    slots: int | None
    stand_ins: Sequence[str]


def models(catalogue: Catalogue, stand_ins: Mapping[str, Sequence[str]], settings: Settings, report: Report) -> dict[str, Model]:
    """Every model, in the order of the file."""
    retries = {name: _retries(group, settings) for name, group in catalogue.groups.items()}
    return {
        name: Model(
            aliases=[alias for alias, model in catalogue.aliases.items() if model == name],
            context=_context(group, report),
            capabilities=_capabilities(group),
            prices=_prices(group, report),
            attempts=_attempts(name, stand_ins.get(name, ()), retries, catalogue),
            slots=_slots(group, report),
            stand_ins=stand_ins.get(name, ()),
        )
        for name, group in catalogue.groups.items()
    }


def _retries(group: Sequence[Deployment], settings: Settings) -> int:
    own = [each.retries for each in group if each.retries is not None]
    return max(own) if own else settings.retries if settings.retries is not None else DEFAULT_ATTEMPTS - 1


def _attempts(name: str, stand_ins: Sequence[str], retries: Mapping[str, int], catalogue: Catalogue) -> int:
    """One number bounds the calls of a request, stand-ins included: enough that each of them gets its turn."""
    attempts = retries[name] + 1
    if stand_ins:
        attempts = max(attempts, len(catalogue.groups[name]))
        attempts += sum(min(retries[each] + 1, len(catalogue.groups[each])) for each in stand_ins)
    return min(attempts, _MOST_ATTEMPTS)


def _context(group: Sequence[Deployment], report: Report) -> int | None:
    said = {each.context for each in group if each.context is not None}
    if len(said) > 1:
        report.changed(group[0].place, "model_info.max_input_tokens", f"replicas of `{shown(group[0].name)}` differ: the smallest holds")
    return min(said, default=None)


def _prices(group: Sequence[Deployment], report: Report) -> list[float | None]:
    said = [{price for price in column if price is not None} for column in zip(*(each.prices for each in group), strict=True)]
    if any(len(column) > 1 for column in said):
        report.changed(
            group[0].place, "model_info.input_cost_per_token", f"replicas of `{shown(group[0].name)}` differ: the highest price holds"
        )
    return [max(column, default=None) for column in said]


def _capabilities(group: Sequence[Deployment]) -> list[str]:
    said = [(word, each.capabilities[word]) for each in group for word in each.capabilities]
    return [word for word in _WORDS if (word, True) in said and (word, False) not in said]


def _slots(group: Sequence[Deployment], report: Report) -> int | None:
    said = [each.parallel for each in group if each.parallel]
    if not said:
        return None
    name, setting = shown(group[0].name), "litellm_params.max_parallel_requests"
    if len(said) < len(group):
        report.lost(
            group[0].place, setting, f"only some replicas of `{name}` have a bound, and `queue.slots` would bound all of them together"
        )
        return None
    message = "`queue.slots` bounds all replicas of a model together; calls beyond it wait a while before they are turned away"
    report.changed(group[0].place, setting, message)
    return min(sum(said), _MOST_SLOTS)
