"""The models of an import: who is who, under LiteLLM's names and under Trilemma's.

    catalogue(deployments, aliases, report) -> Catalogue

Names that Trilemma refuses are changed. An alias leads to a model; one that leads nowhere, or is itself a model, is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.config.problems import shown
from gateway.importing.deployment import Deployment
from gateway.importing.document import Value, flag, text
from gateway.importing.names import fitting, unique
from gateway.importing.report import Place, Report

_RENAMED = "is called `{}` now: Trilemma's names hold letters, digits and . _ : / @ + -"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """groups: public name -> its deployments, never none. aliases: public alias -> public name of its model.
    public: LiteLLM's name of a model or alias -> the public one. ids, access: a deployment's id or access group -> public
    names of models."""

    groups: Mapping[str, Sequence[Deployment]]
    aliases: Mapping[str, str]
    public: Mapping[str, str]
    ids: Mapping[str, str]
    access: Mapping[str, Sequence[str]]

    def model(self, name: str) -> str | None:
        """The model that LiteLLM means by a name, an alias or a deployment's id."""
        public = self.public.get(name)
        if public is None:
            return self.ids.get(name)
        return self.aliases.get(public, public)


def catalogue(deployments: Sequence[Deployment], aliases: Sequence[Value], report: Report) -> Catalogue:
    """Puts deployments of one name together, and finds where aliases lead."""
    public: dict[str, str] = {}
    groups: dict[str, list[Deployment]] = {}
    for each in deployments:
        if each.name not in public:
            public[each.name] = _renamed(each.name, each.place, groups, report)
        group = groups.setdefault(public[each.name], [])
        if any((each.url, each.model, each.key) == (other.url, other.model, other.key) for other in group):
            report.changed(each.place, "model_list", f"`{shown(each.name)}` stands twice with the same engine: it is one replica")
        else:
            group.append(each)
    ids = {each.id: public[each.name] for each in deployments if each.id is not None}
    access: dict[str, list[str]] = {}
    for each in deployments:
        for name in each.access_groups:
            if public[each.name] not in access.setdefault(name, []):
                access[name].append(public[each.name])
    found: dict[str, str] = {}
    wanted = list(_aliases(aliases, report))
    targets = {alias: target for alias, target, _ in wanted}
    for alias, _, place in wanted:
        model = _end(alias, targets, public)
        if alias in public:
            if public[alias] in groups and model != public[alias]:
                report.lost(place, "model_group_alias", f"`{shown(alias)}` is a model itself, which an alias cannot hide")
        elif model is None:
            report.lost(place, "model_group_alias", f"`{shown(alias)}` leads to no model that was mapped")
        else:
            name = _renamed(alias, place, {*groups, *found}, report)
            found[name] = model
            public[alias] = name
    return Catalogue(groups, found, public, ids, access)


def _renamed(name: str, place: Place, taken: Mapping[str, object] | set[str], report: Report) -> str:
    new = unique(fitting(name), taken)
    if new != name:
        report.changed(place, "model_list", f"`{shown(name)}` {_RENAMED.format(new)}")
    return new


def _aliases(sections: Sequence[Value], report: Report) -> Iterator[tuple[str, str, Place]]:
    """(alias, what it leads to, place). A target is a name, or a mapping with `model` and `hidden`."""
    for section in sections:
        for alias, value in section.entries():
            target = text(value) or text(value.get("model"))
            if target is None:
                report.lost(value.place, "model_group_alias", f"`{shown(alias)}` leads to nothing")
                continue
            if flag(value.get("hidden")):
                report.changed(value.place, "model_group_alias", "`hidden` aliases stand in /v1/models like all others")
            yield alias, target, value.place


def _end(alias: str, targets: Mapping[str, str], public: Mapping[str, str]) -> str | None:
    """The public name of the model at the end of a chain of aliases."""
    seen: set[str] = set()
    name = alias
    while name in targets and name not in seen:
        seen.add(name)
        name = targets[name]
    return public.get(name) if name not in targets else None
