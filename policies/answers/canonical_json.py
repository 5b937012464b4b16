"""One text for all JSON texts that mean the same: names sorted, numbers exact, white space gone.

    {"b": 1.0, "a": "x"}   and   {"a":"x","b":1}   are   {"a":"x","b":1}

1, 1.0, 10e-1 are one number, -0 is 0, and 1 is not true. Of a name that is there twice, the last counts. Numbers are never rounded:
0.1 and 0.10000000000000001 differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

DEEPEST: Final = 64


class Unreadable(ValueError):
    """The text is no JSON, is nested deeper than 64 levels, or has a number beyond all bounds."""


def canonical(text: str) -> str:
    """The canonical text, ASCII. Raises Unreadable."""
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_none)
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise Unreadable from error
    return canonical_value(value)


def canonical_value(value: Any) -> str:
    """The same of a decoded value. Raises Unreadable where it is none of JSON's."""
    parts: list[str] = []
    _write(value, parts, 0)
    return "".join(parts)


def _none(_name: str) -> NoReturn:
    raise Unreadable


def _write(value: Any, parts: list[str], depth: int) -> None:
    if depth > DEEPEST:
        raise Unreadable
    if isinstance(value, str):
        parts.append(json.dumps(value))
    elif value is None or isinstance(value, bool):
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int | float | Decimal):
        parts.append(_number(value))
    elif isinstance(value, Mapping):
        parts.append("{")
        for at, name in enumerate(sorted(value, key=str)):
            parts.append(f"{',' if at else ''}{json.dumps(str(name))}:")
            _write(value[name], parts, depth + 1)
        parts.append("}")
    elif isinstance(value, list | tuple):
        parts.append("[")
        for at, each in enumerate(value):
            if at:
                parts.append(",")
            _write(each, parts, depth + 1)
        parts.append("]")
    else:
        raise Unreadable


def _number(value: int | float | Decimal) -> str:
    """Its digits and exponent without zeros at either end."""
    try:
        sign, digits, exponent = Decimal(repr(value) if isinstance(value, float) else value).as_tuple()
    except (InvalidOperation, ValueError) as error:
        raise Unreadable from error
    if not isinstance(exponent, int):
        raise Unreadable
    written = "".join(map(str, digits)).lstrip("0")
    bare = written.rstrip("0")
    if not bare:
        return "0"
    exponent += len(written) - len(bare)
    if 0 <= exponent <= 20:
        bare, exponent = bare + "0" * exponent, 0
    return f"{'-' if sign else ''}{bare}{f'e{exponent}' if exponent else ''}"
