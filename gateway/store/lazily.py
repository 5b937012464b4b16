"""Modules that a serving process loads only once it needs them.

if TYPE_CHECKING:
    import sqlalchemy as sa
else:
    sa = Lazily("sqlalchemy")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazily:
    """Stands for a module, which is loaded, by the thread that asks, when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
