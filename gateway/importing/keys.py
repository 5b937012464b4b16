"""LiteLLM's keys as Trilemma's: the same digests, so that callers keep the keys they have.

    master(value, given, env, variables, report) -> Key
    keys(dump, allowed, now, report) -> keys

LiteLLM stores the SHA-256 of a key in hex, and so does Trilemma. Keys that are blocked, expired, or only for LiteLLM's
own pages are left out. No key opens more than it did as far as its row, and its team's, say; what only other tables
say (budgets) is told.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gateway.config.problems import shown
from gateway.importing import limits
from gateway.importing.allowed import Allowed
from gateway.importing.document import Value, text, variable
from gateway.importing.dump import Dump, Record
from gateway.importing.limits import UNLIMITED, Limits
from gateway.importing.names import unique
from gateway.importing.report import Kind, Place, Report
from gateway.importing.variables import Variables

MASTER_VARIABLE: Final = "LITELLM_MASTER_KEY"
"""Where LiteLLM looks when its file has no `master_key`."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LIKE_A_KEY = re.compile(r"\s*(sk-|[A-Za-z0-9+/=]{32,}\s*$)")
_LONGEST = 100
_UI_TEAM: Final = "litellm-dashboard"
_KNOWN_TO_ALL: Final = frozenset(("sk-1234", "sk-12345", "sk-123456", "sk-my_special_key", "sk-master-key", "sk-test", "sk-litellm"))
_ALL_ROUTES: Final = frozenset(("llm_api_routes", "openai_routes", "*", "/*", "/v1", "/v1/*"))
_OWN_ROUTES = re.compile(r"\w+_routes$|/(key|user|team|model|spend|budget|organization|customer|global|health|config|sso|login|ui|mcp)\b")
_COLUMNS: Final = ("models", "expires", "blocked", "team_id", "allowed_routes", *limits.COLUMNS.values())
_WITHOUT_TEAM: Final = "default"
_NO_BUDGETS: Final = "no budgets: cost is told with each answer and kept with each decision, but nobody is stopped by it"
_SAME_FOR_ALL: Final = "aliases and settings hold for all callers, not for one key"
_MAPPINGS: Final[Mapping[str, str]] = {
    "model_max_budget": _NO_BUDGETS,
    "aliases": _SAME_FOR_ALL,
    "config": _SAME_FOR_ALL,
    "router_settings": _SAME_FOR_ALL,
    "permissions": "a key has scopes, models and a tenant, no other permissions",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team. limits: of all its keys together."""

    name: str
    limits: Limits = UNLIMITED


@dataclass(frozen=True, slots=True)
class Key:
    """sha256: a digest, or a reference to one. models: None for all. expires: in UTC; None for never."""

    name: str
    sha256: str
    tenant: Tenant | None = None
    scopes: Sequence[str] = ("inference",)
    models: Sequence[str] | None = None
    expires: datetime | None = None
    limits: Limits = UNLIMITED
    place: Place | None = None


def master(value: Value | None, given: Mapping[str, Value], env: Mapping[str, str], variables: Variables, report: Report) -> Key | None:
    """The key that opens everything; None where there is none. `given`: the file's own `environment_variables`."""
    name = variable(value) or (MASTER_VARIABLE if value is None and (MASTER_VARIABLE in given or env.get(MASTER_VARIABLE)) else None)
    secret = text(value) if name is None else text(given.get(name)) or env.get(name)
    place = value.place if value is not None else Place(MASTER_VARIABLE)
    if name is None and secret is None:
        if value is not None and not isinstance(value.data, str):
            report.lost(place, "master_key", "should be text")
        return None
    if secret is None:
        digest = variables.reference(f"{name}_SHA256")
        report.todo(place, "master_key", f'its digest belongs into {digest[2:-1]}: printf %s "${shown(name or "")}" | sha256sum')
    else:
        digest = hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
        if secret in _KNOWN_TO_ALL:
            report.todo(place, "master_key", "is the key that all examples have, so everybody knows it: `trilemma keys` makes another")
    return Key("master", digest, scopes=("inference", "admin", "metrics"), place=place)


def keys(dump: Dump, allowed: Allowed, now: datetime, report: Report, taken: Sequence[Key] = ()) -> list[Key]:
    """The keys of a dump that still open something, beside those that are there already."""
    return list(_Reader(dump, allowed, now, report, taken).keys())


class _Reader:
    def __init__(self, dump: Dump, allowed: Allowed, now: datetime, report: Report, taken: Sequence[Key]) -> None:
        self._dump = dump
        self._allowed = allowed
        self._now = now
        self._report = report
        self._names = {key.name for key in taken}
        self._digests = {key.sha256 for key in taken}
        self._tenants: dict[str, Tenant] = {}
        self._tenant_names = {_WITHOUT_TEAM}

    def keys(self) -> Iterator[Key]:
        self._tell_missing()
        for record in self._dump.keys:
            digest = self._digest(record)
            if digest is None:
                self._report.lost(record.place, "token", "is no SHA-256 digest: the key is left out")
                continue
            name = self._name(record, digest)
            try:
                closed = self._closed(record, digest)
                models = self._allowed.models(record) if closed is None else None
            except ValueError:  # who cannot read what a key may not do leaves it out
                closed, models = ("lost", "has a list, a time or a limit that cannot be read"), None
            if closed is not None:
                kind, why = closed
                self._report.add(kind, record.place, "keys", f"`{name}` {why}: left out")
                continue
            self._digests.add(digest)
            self._names.add(name)
            self._tell(record, name)
            if models is not None and not models:
                self._report.todo(record.place, "keys", f"`{name}` may use none of the models that were mapped")
            tenant = self._tenant(record)
            yield Key(name, digest, tenant, models=models, expires=record.time("expires"), limits=limits.of_key(record), place=record.place)

    def _tell_missing(self) -> None:
        """What an export of some columns does not say of any key."""
        first = next(iter(self._dump.keys), None)
        for column in _COLUMNS:
            if first is not None and column not in first.values:
                self._report.lost(first.place, column, "the dump has no such column, so what it says of keys is not known")

    def _digest(self, record: Record) -> str | None:
        token = (record.text("token") or "").strip()
        if token.startswith("sk-"):  # never stored by LiteLLM, but by people who made the file by hand
            return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
        return token.lower() if _DIGEST.fullmatch(token.lower()) else None

    def _name(self, record: Record, digest: str) -> str:
        """Its alias; `key_name` is not used, because it holds the key's last letters."""
        alias = record.text("key_alias")
        if alias is None or _LIKE_A_KEY.match(alias):
            alias = f"key-{digest[:8]}"
        return unique(_printable(alias), self._names, _LONGEST)

    def _team(self, record: Record) -> Record | None:
        """The row of a key's team, where the dump has it."""
        return (self._dump.teams or {}).get(record.text("team_id") or "")

    def _tenant(self, record: Record) -> Tenant | None:
        """One for each team: keys of two teams share no limits, nor do those without one share a team's."""
        team_id = record.text("team_id")
        if team_id is None:
            return None
        if team_id not in self._tenants:
            team = self._team(record)
            wanted = _printable(team_id)
            name = unique(wanted, self._tenant_names, _LONGEST)
            if name != wanted:
                self._report.changed(record.place, "team_id", f"`{wanted}` is the tenant `{name}` now: the name is another's already")
            self._tenant_names.add(name)
            self._tenants[team_id] = Tenant(name, UNLIMITED if team is None else limits.of_team(team))
        return self._tenants[team_id]

    def _closed(self, record: Record, digest: str) -> tuple[Kind, str] | None:
        """Why a key opens nothing any more, never opened a model, or would open more than it did. Raises ValueError."""
        if digest in self._digests:
            return "unneeded", "is there already"
        if record.text("team_id") == _UI_TEAM:
            return "unneeded", "is a session of LiteLLM's own pages"
        if record.flag("blocked"):
            return "unneeded", "is blocked"
        team = self._team(record)
        if team is not None and team.flag("blocked"):
            return "unneeded", "belongs to a team that is blocked"
        if column := limits.of_key(record).closed:
            return "unneeded", f"lets no request through (`{column}`)"
        if team is not None and (column := limits.of_team(team).closed):
            return "unneeded", f"belongs to a team that lets no request through (`{column}`)"
        expires = record.time("expires")
        if expires is not None and expires <= self._now:
            return "unneeded", "has expired"
        routes = record.texts("allowed_routes")
        if not routes or _ALL_ROUTES.intersection(routes):
            return None
        if all(_OWN_ROUTES.match(route) for route in routes):
            return "unneeded", "opens LiteLLM's own routes only"
        return "lost", "opens some paths only, and a key of Trilemma opens all paths of inference"

    def _tell(self, record: Record, name: str) -> None:
        """What of the row is not taken over."""
        team = self._team(record)
        for source in (record, team):
            if source is not None and source.number("max_budget") is not None:
                self._report.lost(source.place, "max_budget", _NO_BUDGETS)
        limits.tell(record, team, name, self._report)
        for column, message in _MAPPINGS.items():
            if record.mapping(column):
                self._report.lost(record.place, column, message)
        if record.text("budget_id"):
            self._report.lost(record.place, "budget_id", f"{_NO_BUDGETS}; limits that it holds belong into the key's `limits`")
        budget, spent = record.number("max_budget"), record.number("spend")
        if budget is not None and spent is not None and spent >= budget:
            self._report.todo(record.place, "max_budget", f"`{name}` has spent its budget, so LiteLLM refuses it; here it works")


def _printable(name: str) -> str:
    """As it is, but on one line and not too long."""
    return shown(" ".join(name.split()) or "unnamed")[:_LONGEST]
