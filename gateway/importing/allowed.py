"""What a key of LiteLLM may ask for, as a list of Trilemma's names.

    allowed = Allowed(catalogue, teams, report)
    allowed.models(key) -> names and patterns, or None for all

As in LiteLLM: an empty list allows everything, an access group stands for its models, who may use a model may use its
aliases, and a key of a team is held to what both allow. What is not known is not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from gateway.config.problems import shown
from gateway.importing.catalogue import Catalogue
from gateway.importing.dump import TEAMS, Record
from gateway.importing.report import Report

_ALL, _TEAMS_OWN, _NONE = "all-proxy-models", "all-team-models", "no-default-models"
_NO_TEAMS = (
    f"the dump has no {TEAMS}: what a team may use, and its limits, are not known. Keys hold what their own rows say; "
    "`all-team-models` is nothing until you write it"
)


class Allowed:
    """Reads the `models` of keys against the models that were mapped."""

    def __init__(self, catalogue: Catalogue, teams: Mapping[str, Record] | None, report: Report) -> None:
        self._catalogue = catalogue
        self._teams = teams
        self._report = report

    def models(self, key: Record) -> list[str] | None:
        """What the key may ask for; None: everything. Raises ValueError where its list, or its team's, cannot be read."""
        listed, team_id = key.texts("models"), key.text("team_id")
        team = None if self._teams is None or team_id is None else self._teams.get(team_id)
        if team_id is not None and self._teams is None:
            self._report.lost(key.place, "team_id", _NO_TEAMS)
        of_team = [] if team is None else self._listed(team)
        if team_id is not None and team is None and self._teams is not None:
            self._report.lost(key.place, "team_id", f"the dump has no team `{shown(team_id)}`, so nothing of its is allowed")
        elif team is None and _TEAMS_OWN not in listed:
            of_team = None
        own = self._listed(key) if _TEAMS_OWN not in listed else None
        return of_team if own is None else own if of_team is None else _both(own, of_team)

    def _listed(self, record: Record) -> list[str] | None:
        listed = record.texts("models")
        if not listed or _ALL in listed or "*" in listed:
            return None
        found: list[str] = []
        for name in listed:
            found += [each for each in self._names(name, record) if each not in found]
        return found

    def _names(self, name: str, record: Record) -> Sequence[str]:
        """The names that one entry of a list stands for."""
        if name in (_NONE, _TEAMS_OWN):
            return ()
        public = self._catalogue.public.get(name)
        models = [public] if public is not None else self._catalogue.access.get(name, ())
        if models:
            aliases = [alias for alias, model in self._catalogue.aliases.items() if model in models]
            return [*models, *aliases]
        if "*" in name and not set(name) & set("[]?"):
            matched = [each for each in [*self._catalogue.groups, *self._catalogue.aliases] if fnmatchcase(each, name)]
            if matched:
                return [name]
        self._report.lost(record.place, "models", f"`{shown(name)}` is no model that was mapped: the keys that may use it do without")
        return ()


def _both(some: Sequence[str], others: Sequence[str]) -> list[str]:
    """What two lists of names and patterns both allow; of a pattern and a name that it matches, the name."""
    found = [name for name in some if any(fnmatchcase(name, other) for other in others)]
    return found + [other for other in others if other not in found and any(fnmatchcase(other, name) for name in some)]
