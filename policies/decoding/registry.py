"""Every strategy, by the name that it has in the configuration: one line each.

A module is loaded when a configuration first names it. It holds

    Params             a msgspec.Struct: the parameters, from the configuration
    build(params)      the strategy
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from policies.decoding.strategy import Strategy

SINGLE: Final = "single"
"""One plain call: no strategy."""

STRATEGIES: Mapping[str, str] = MappingProxyType(
    {
        "best_of_n": "policies.decoding.best_of_n",
        "budget_forcing": "policies.decoding.budget_forcing",
        "cascade": "policies.decoding.cascade",
        "genselect": "policies.decoding.genselect",
        "self_consistency": "policies.decoding.self_consistency",
        "synthesis": "policies.decoding.synthesis",
        "tournament": "policies.decoding.tournament",
    }
)


def strategy(kind: str, params: Mapping[str, Any]) -> Strategy:
    """The strategy of that type. Raises ValueError, in words for who configures it."""
    if kind not in STRATEGIES:
        raise ValueError(f"unknown strategy type `{kind}`; there are: {', '.join(STRATEGIES)}")
    module = importlib.import_module(STRATEGIES[kind])
    try:
        made: Strategy = module.build(msgspec.convert(dict(params), module.Params))
    except msgspec.ValidationError as error:
        raise ValueError(f"{kind}: {error}") from None
    return made
