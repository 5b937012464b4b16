"""Whether a JSON value fits a JSON schema, as far as that can be told in bounded time.

    fits(value, schema) -> bool

Known: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, bounds of numbers, lengths and
counts, `anyOf`, `allOf`, and `$ref` within the schema; `oneOf` counts as `anyOf`. Other words are not looked at, `not`, `pattern` and
`format` among them: the schema is a caller's, and a regular expression of a caller's may run for ever. So what does not fit is surely
wrong, and what fits may not be right in every detail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_MOST_STEPS: Final = 50_000
_DEEPEST: Final = 100


class Undecided(Exception):
    """It would take too long, or the schema is none."""


def fits(value: Any, schema: Any) -> bool:
    """value, schema: decoded JSON. Raises Undecided."""
    return _Check(schema).fits(value, schema, 0)


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def fits(self, value: Any, schema: Any, depth: int) -> bool:
        self._steps += 1
        if self._steps > _MOST_STEPS or depth > _DEEPEST:
            raise Undecided
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise Undecided
        return (
            _typed(value, schema)
            and _counted(value, schema)
            and self._composed(value, schema, depth + 1)
            and (not isinstance(value, dict) or self._object(value, schema, depth + 1))
            and (not isinstance(value, list) or self._array(value, schema, depth + 1))
        )

    def _composed(self, value: Any, schema: Mapping[str, Any], depth: int) -> bool:
        reference = schema.get("$ref")
        if reference is not None and not self.fits(value, self._referred(reference), depth):
            return False
        if not all(self.fits(value, each, depth) for each in _list(schema, "allOf")):
            return False
        # What fits several of `oneOf` may fit only one of them by words that are not looked at; `not` would turn that round.
        groups = (_list(schema, "anyOf"), _list(schema, "oneOf"))
        return all(not group or any(self.fits(value, each, depth) for each in group) for group in groups)

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], depth: int) -> bool:
        known = schema.get("properties", {})
        if not isinstance(known, Mapping):
            raise Undecided
        if not all(name in value for name in _list(schema, "required")):
            return False
        others = schema.get("additionalProperties", True) if "patternProperties" not in schema else True
        return all(self.fits(each, known.get(name, others), depth) for name, each in value.items())

    def _array(self, value: list[Any], schema: Mapping[str, Any], depth: int) -> bool:
        first = _list(schema, "prefixItems")
        others = schema.get("items", True)
        return all(self.fits(each, first[at] if at < len(first) else others, depth) for at, each in enumerate(value))

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Undecided
        found = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise Undecided
            found = found[name]
        return found


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}


def _is(value: Any, name: Any) -> bool:
    if name not in _TYPES:
        raise Undecided
    if isinstance(value, bool):
        return bool(name == "boolean")
    return isinstance(value, _TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())


def _typed(value: Any, schema: Mapping[str, Any]) -> bool:
    wanted = schema.get("type")
    if wanted is not None:
        names = wanted if isinstance(wanted, list) else [wanted]
        if not all(isinstance(name, str) for name in names):
            raise Undecided
        if not any(_is(value, name) for name in names):
            return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    return "enum" not in schema or any(_same(value, each) for each in _list(schema, "enum"))


def _same(one: Any, other: Any) -> bool:
    """As JSON has it: true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _counted(value: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return (
            value >= _bound(schema, "minimum", value)
            and value <= _bound(schema, "maximum", value)
            and ("exclusiveMinimum" not in schema or value > _bound(schema, "exclusiveMinimum", value))
            and ("exclusiveMaximum" not in schema or value < _bound(schema, "exclusiveMaximum", value))
        )
    for kind, least, most in ((str, "minLength", "maxLength"), (list, "minItems", "maxItems"), (dict, "minProperties", "maxProperties")):
        if isinstance(value, kind):
            size = len(value)
            return _bound(schema, least, size) <= size <= _bound(schema, most, size)
    return True


def _bound(schema: Mapping[str, Any], name: str, default: float) -> float:
    found = schema.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Undecided
    return found


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name, [])
    if not isinstance(found, list):
        raise Undecided
    return found
