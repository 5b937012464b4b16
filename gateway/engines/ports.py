"""Where managed engines listen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.engines.spec import free_port

if TYPE_CHECKING:
    from gateway.config.load import Loaded


class Ports:
    """A port, once chosen for a name, stays."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}

    def of(self, loaded: Loaded) -> Mapping[str, int]:
        """Name -> port of every managed backend."""
        for name, backend in loaded.config.backends.items():
            if backend.launch is not None:
                self._chosen[name] = backend.port or self._chosen.get(name) or self._free()
        return dict(self._chosen)

    def _free(self) -> int:
        while (port := free_port()) in self._chosen.values():
            pass
        return port
