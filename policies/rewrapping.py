"""What a policy knows, when wrappers come or go: the algorithm's own state stays, and so does that of each wrapper that stays.

A state is layers, one around the other by the field `inner`. Seen from the algorithm outwards, each layer of the new policy that has
numbers of its own takes the next layer of the old one whose numbers have the same names and shapes; one that finds none begins empty.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from policies.policy import RoutingPolicy
from policies.states import Arrays, arrays, restored

_INNER: Final = "inner."


def rewrapped(empty: Any, found: Arrays) -> Any:
    """The state of a policy whose `empty()` is given, from the arrays of one with other wrappers. Raises ValueError where the algorithm
    itself does not fit."""
    layers = _layers(found)
    shells = []
    core = empty
    while _is_wrapped(core):
        shells.append(core)
        core = core.inner
    state, at = None, 0
    if core is not None:
        state, at = restored(core, layers[0]), 1
        if set(arrays(core)) != set(layers[0]):
            raise ValueError("the snapshot is of another algorithm")
    for shell in reversed(shells):
        own = {field.name: getattr(shell, field.name) for field in dataclasses.fields(shell) if field.name != "inner"}
        if own:
            for further in range(at, len(layers)):
                if (taken := _own(own, layers[further])) is not None:
                    own, at = taken, further + 1
                    break
        state = dataclasses.replace(shell, inner=state, **own)
    return state


def innermost(policy: RoutingPolicy[Any]) -> RoutingPolicy[Any]:
    """The algorithm inside of all wrappers."""
    while (inner := getattr(policy, "inner", None)) is not None:
        policy = inner
    return policy


def _is_wrapped(state: Any) -> bool:
    return state is not None and any(field.name == "inner" for field in dataclasses.fields(state))


def _layers(found: Arrays) -> list[dict[str, Any]]:
    """The arrays of each layer, the innermost first, under their names there."""
    depths: dict[int, dict[str, Any]] = {}
    for name, array in found.items():
        depth, rest = 0, name
        while rest.startswith(_INNER):
            depth, rest = depth + 1, rest.removeprefix(_INNER)
        depths.setdefault(depth, {})[rest] = array
    deepest = max(depths, default=0)
    return [depths.get(depth, {}) for depth in range(deepest, -1, -1)]


def _own(fields: dict[str, Any], layer: Arrays) -> dict[str, Any] | None:
    """These fields of a wrapper's state from a layer of the old state; None: they are not of this layer."""
    names: set[str] = set()
    values: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            one = restored(_Field(value), {f"value{each.removeprefix(name)}": array for each, array in layer.items() if _is_of(each, name)})
        except ValueError:
            return None
        values[name] = one.value
        names |= {each for each in layer if _is_of(each, name)}
    return values if names == set(layer) else None


def _is_of(array: str, field: str) -> bool:
    return array == field or array.startswith(f"{field}.")


@dataclasses.dataclass(frozen=True)
class _Field:
    """One field of a state by itself."""

    value: Any
