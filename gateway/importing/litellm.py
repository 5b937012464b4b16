"""A LiteLLM proxy's configuration as Trilemma's.

    imported(root, dump, env, now) -> Imported       raises UnusableError

root: the configuration as `document.load` reads it. dump: the keys of its database. env: where the digest of a master
key comes from that the configuration only refers to. now: keys that have expired by then are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gateway.config import tree
from gateway.config.problems import Loc
from gateway.importing import deployment, keys, settings
from gateway.importing.allowed import Allowed
from gateway.importing.backend import Backend, backends
from gateway.importing.catalogue import catalogue
from gateway.importing.document import Value
from gateway.importing.dump import Dump
from gateway.importing.fallback import fallbacks
from gateway.importing.keys import Key
from gateway.importing.model import DEFAULT_ATTEMPTS, Model, models
from gateway.importing.report import Entry, Place, Report
from gateway.importing.settings import Settings
from gateway.importing.variables import Variables
from gateway.importing.writing import Reference, write

_FIRST_KEY = "TRILEMMA_KEY_SHA256"
_HEAD = """\
# Made by `trilemma import litellm` from {source}. Lines that need you are marked `look:`.
# `trilemma check FILE` says what is missing; docs/configuration.md explains every key.
# LiteLLM listens on 0.0.0.0:4000 unless told otherwise, Trilemma on 127.0.0.1:8080: `server: {{host: 0.0.0.0, port: 4000}}` keeps that.
"""
_VARIABLES = "# Variables to set (or NAME_FILE, naming a file): {names}\n"


class UnusableError(Exception):
    """There is nothing that Trilemma could serve; `entries` say why."""

    def __init__(self, message: str, entries: Sequence[Entry]) -> None:
        self.entries = entries
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Imported:
    """text: the configuration, YAML. entries: what to know about it. variables: what it asks of the environment."""

    text: str
    entries: Sequence[Entry]
    variables: Sequence[str]


def imported(root: Value, dump: Dump, env: Mapping[str, str], now: datetime) -> Imported:
    """The whole import. Raises UnusableError when no model can be mapped, or the result would be too large to be read."""
    report = Report()
    variables = Variables(report)
    general = settings.read(root, report)
    found = catalogue(deployment.read(root, general, variables, report), general.aliases, report)
    engines = backends(found, report)
    known = models(found, fallbacks(found, general, report), general, report)
    callers = _keys(root, dump, general, Allowed(found, dump.teams, report), env, now, variables, report)
    if not engines:
        raise UnusableError("no model of it can be mapped", report.entries)
    comments = _comments(report, engines, callers)
    text = _head(root, variables) + write(_data(general, engines, known, callers), comments)
    try:
        tree.compose(text)
    except tree.MalformedError:
        message = f"what would be written is more than one file may hold ({len(callers)} keys, {len(text.encode())} bytes)"
        raise UnusableError(message, report.entries) from None
    return Imported(text, report.entries, tuple(variables.needed))


def _keys(
    root: Value,
    dump: Dump,
    general: Settings,
    allowed: Allowed,
    env: Mapping[str, str],
    now: datetime,
    variables: Variables,
    report: Report,
) -> list[Key]:
    environment = root.get("environment_variables")
    own = keys.master(general.master_key, dict(environment.entries()) if environment is not None else {}, env, variables, report)
    found = [own] if own is not None else []
    found += keys.keys(dump, allowed, now, report, found)
    for place in dump.models:
        report.todo(place, "models", "models of the database are not in LiteLLM's file: add them by hand")
    if not found:
        message = f"there are no keys, and nobody calls without one: `trilemma keys` makes one; its digest belongs into {_FIRST_KEY}"
        report.todo(Place(root.place.file), "keys", message)
        found.append(Key("first", variables.reference(_FIRST_KEY), scopes=("inference", "admin", "metrics")))
    return found


def _head(root: Value, variables: Variables) -> str:
    source = root.place.file.rpartition("/")[2]
    head = _HEAD.format(source=source if source.isprintable() else "a file")
    return head + (_VARIABLES.format(names=", ".join(variables.needed)) if variables.needed else "")


def _data(general: Settings, engines: Sequence[Backend], known: Mapping[str, Model], callers: Sequence[Key]) -> dict[str, Any]:
    """The configuration as plain data; what is as Trilemma's defaults have it is left out."""
    server = {"max_body_bytes": general.max_body_bytes, "heartbeat_s": general.heartbeat_s}
    sections = {
        "version": 1,
        "server": _given(server),
        "backends": {each.name: _backend(each) for each in engines},
        "models": {name: found for name, each in known.items() if (found := _model(each))},
        "keys": [_key(each) for each in callers],
        "limits": _given({"tenants": _tenants(callers)}),
    }
    return {name: section for name, section in sections.items() if section != {}}


def _backend(each: Backend) -> dict[str, Any]:
    return _given(
        {
            "url": _text(each.url),
            "engine": each.engine,
            "key": None if each.key is None else Reference(each.key),
            "models": each.models,
            "weight": each.share.weight,
            "timeouts": each.timeouts,
            "breaker": each.breaker,
            "enabled": None if each.share.enabled else False,
        }
    )


def _model(each: Model) -> dict[str, Any]:
    price = dict(zip(("input", "cached_input", "output"), each.prices, strict=True))
    return _given(
        {
            "aliases": list(each.aliases),
            "context": each.context,
            "capabilities": list(each.capabilities),
            "price": _given(price),
            "attempts": each.attempts if each.attempts != DEFAULT_ATTEMPTS else None,
            "queue": None if each.slots is None else {"slots": each.slots},
            "fallbacks": list(each.stand_ins),
        }
    )


def _key(each: Key) -> dict[str, Any]:
    found = _given(
        {
            "name": each.name,
            "tenant": None if each.tenant is None else each.tenant.name,
            "sha256": _text(each.sha256),
            "scopes": None if tuple(each.scopes) == ("inference",) else list(each.scopes),
            "expires": None if each.expires is None else each.expires.isoformat().replace("+00:00", "Z"),
            "limits": each.limits.as_config(),
        }
    )
    return found if each.models is None else {**found, "models": list(each.models)}


def _tenants(callers: Sequence[Key]) -> dict[str, dict[str, int]]:
    """What all keys of a tenant may use together."""
    return _given({each.tenant.name: each.tenant.limits.as_config() for each in callers if each.tenant is not None})


def _text(value: str) -> str:
    return Reference(value) if value.startswith("${") else value


def _given(section: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not said."""
    return {key: value for key, value in section.items() if value is not None and value != [] and value != {}}


def _comments(report: Report, engines: Sequence[Backend], callers: Sequence[Key]) -> dict[Loc, list[str]]:
    """What of the report belongs to one backend or key, above it."""
    backends_at = {(one.place.file, one.place.path): ("backends", each.name) for each in engines for one in each.deployments}
    keys_at = {each.place: ("keys", index) for index, each in enumerate(callers)}
    found: dict[Loc, list[str]] = {}
    for entry in report.entries:
        word = {"todo": "look: ", "changed": "changed: "}.get(entry.kind)
        if word is None:
            continue
        owners = (backends_at.get((place.file, place.path.partition(".")[0])) or keys_at.get(place) for place in entry.places)
        for loc in dict.fromkeys(owner for owner in owners if owner is not None):
            found.setdefault(loc, []).append(f"{word}{entry.setting}: {entry.message}")
    return found
