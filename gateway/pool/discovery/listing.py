"""Replicas as a file lists them, in YAML or JSON. `[]` is a list; nothing at all is none.

- http://10.0.0.5:8000
- {url: http://10.0.0.6:8000, weight: 2}
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.config import tree
from gateway.config.references import References
from gateway.config.values import Values
from gateway.pool.discovery.endpoint import Endpoint, endpoint, merged


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica as the file names it."""

    url: str
    weight: float = 1.0


def replicas(text: str, *, json: bool) -> tuple[Endpoint, ...]:
    """What the text lists. Raises ValueError with what is wrong, never repeating a value."""
    try:
        entries = msgspec.convert(_data(text, json=json), list[str | Entry])
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(endpoint(entry) if isinstance(entry, str) else endpoint(entry.url, entry.weight))
        except ValueError as error:
            raise ValueError(f"replica {number}: {error}") from None
    return merged(found)


def _data(text: str, *, json: bool) -> Any:
    """Raises ValueError."""
    if not text.strip():
        raise ValueError("empty (a list without replicas is written [])")
    if json:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"not JSON: {error}") from None
        except RecursionError:
            raise ValueError("nested too deeply") from None
    try:
        root, problems = tree.compose(text)
    except tree.MalformedError as error:
        raise ValueError(str(error.problem)) from None
    if problems:
        raise ValueError(str(problems[0]))
    values = Values(root, References({}))
    if values.findings:
        raise ValueError("${...} is not answered here")
    return values.data
