"""What is not counted but looked at: how the gateway stands when it is asked."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from gateway import __version__
from gateway.pool.backend import Backend
from gateway.serving.choice import Snapshot
from gateway.serving.state import RealModel, State
from gateway.telemetry import families
from gateway.telemetry.families import Family
from gateway.telemetry.numbers import Labels, Value

_STATES: Final = ("closed", "half_open", "open")


class Backlog(Protocol):
    """Rows on their way to the database."""

    @property
    def waiting(self) -> int:
        """Not stored yet."""
        ...

    @property
    def dropped(self) -> int:
        """So many since the start."""
        ...


class Learning(Protocol):
    """What learns from outcomes."""

    @property
    def folded(self) -> int:
        """Outcomes that it folded since the start."""
        ...

    @property
    def waiting(self) -> int:
        """Those that were left, when it last looked."""
        ...

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """What policies know, by scope."""
        ...


Count = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look. state: the configuration in use. rows: None when nothing is stored. clients, backends: open sockets; None: not known
    here. learner: None when nothing is learnt."""

    state: Callable[[], State]
    reload_failures: Count
    rows: Backlog | None = None
    clients: Count | None = None
    backends: Count | None = None
    learner: Learning | None = None


def gauges(sources: Sources) -> dict[str, dict[Labels, Value]]:
    """How it stands now."""
    state = sources.state()
    found: dict[str, dict[Labels, Value]] = {
        families.BUILD.name: {(__version__, platform.python_version()): 1.0},
        families.CONFIG.name: {(state.hash,): 1.0},
        families.RELOAD_FAILURES.name: {(): float(sources.reload_failures())},
    }

    def add(family: Family, value: float, *labels: str) -> None:
        found.setdefault(family.name, {})[labels] = value

    for name, backend in state.backends.items():
        _backend(add, name, backend)
    for public, model in {route.public: route for route in state.names.values() if isinstance(route, RealModel)}.items():
        if model.admission is not None:
            add(families.QUEUE_WAITING, model.admission.waiting, public)
            add(families.QUEUE_RUNNING, model.admission.running, public)
    if sources.rows is not None:
        add(families.LOG_WAITING, sources.rows.waiting)
        add(families.LOG_DROPPED, sources.rows.dropped)
    if sources.learner is not None:
        add(families.LEARNED, sources.learner.folded)
        add(families.UNLEARNED, sources.learner.waiting)
        for scope, known in sources.learner.snapshots.items():
            add(families.LEARNED_AT, known.version, scope)
    for side, count in (("clients", sources.clients), ("backends", sources.backends)):
        if count is not None:
            add(families.CONNECTIONS, count(), side)
    return found


def _backend(add: Callable[..., None], name: str, backend: Backend) -> None:
    state = backend.breaker.state
    add(families.IN_FLIGHT, backend.in_flight, name)
    add(families.UP, float(backend.answered and state != "open"), name)
    add(families.BREAKER, _STATES.index(state), name)
    add(families.CHANGED, float(bool(backend.changed)), name)
    age_s = backend.probe_age_s
    if age_s is not None:
        add(families.PROBE_AGE, age_s, name)
