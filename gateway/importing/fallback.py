"""LiteLLM's fallbacks as each model's list of stand-ins, without the circles that Trilemma refuses.

    fallbacks(catalogue, settings, report) -> model -> stand-ins, in order

A model's own `fallbacks` come first, then its `context_window_fallbacks`, then those of `"*"` and `default_fallbacks`.
Links are taken in the file's order; one that would lead back to a model in front of it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.config.problems import shown
from gateway.importing.catalogue import Catalogue
from gateway.importing.document import Value, text
from gateway.importing.report import Place, Report
from gateway.importing.settings import Settings

_EMBEDDINGS = "embeddings are never answered by another model"
_CONTEXT = "stand-ins for prompts that are too long also stand in when a model fails; they are tried last, and need a larger `context`"


@dataclass(frozen=True, slots=True)
class Link:
    """`stand_in` answers when `model` cannot: public names. `setting`: where it is from."""

    model: str
    stand_in: str
    setting: str
    place: Place


def fallbacks(catalogue: Catalogue, settings: Settings, report: Report) -> dict[str, list[str]]:
    """Model -> stand-ins, only of models that have some."""
    finder = _Finder(catalogue, report)
    pairs = list(finder.pairs(settings.fallbacks, "fallbacks"))
    own = [link for name, value in pairs if name != "*" for link in finder.links(name, value, "fallbacks")]
    context = [
        link
        for name, value in finder.pairs(settings.context_fallbacks, "context_window_fallbacks")
        for link in finder.links(name, value, "context_window_fallbacks")
    ]
    if settings.context_fallbacks is not None and context:
        report.changed(settings.context_fallbacks.place, "context_window_fallbacks", _CONTEXT)
    having = {link.model for link in own}
    others = [model for model in catalogue.groups if model not in having and not finder.embeds(model)]
    general = [link for name, value in pairs if name == "*" for link in finder.stand_ins(value, "fallbacks", others)]
    if settings.default_fallbacks is not None:
        general += finder.stand_ins(settings.default_fallbacks, "default_fallbacks", others)
    return _without_circles([*own, *context, *general], report)


@dataclass(frozen=True, slots=True)
class _Finder:
    catalogue: Catalogue
    report: Report

    def pairs(self, section: Value | None, setting: str) -> Iterator[tuple[str, Value]]:
        """(model, its stand-ins) of a list of mappings, or of one mapping."""
        for entry in () if section is None else section.items() or (section,):
            pairs = dict(entry.entries())
            if not pairs and not entry.is_idle:
                self.report.lost(entry.place, setting, "should be a list of `{model: [stand-ins]}`")
            yield from pairs.items()

    def embeds(self, model: str) -> bool:
        """Whether it is there for embeddings, which are of use only beside others of the same model."""
        return any(each.capabilities.get("embeddings") for each in self.catalogue.groups[model])

    def links(self, name: str, value: Value, setting: str) -> list[Link]:
        """The links of one model, or of all for `*`."""
        if name == "*":
            return self.stand_ins(value, setting, [model for model in self.catalogue.groups if not self.embeds(model)])
        model = self.catalogue.model(name)
        if model is None:
            self.report.lost(value.place, setting, f"`{shown(name)}` is no model that was mapped")
            return []
        if self.embeds(model):
            self.report.lost(value.place, setting, f"`{shown(name)}`: {_EMBEDDINGS}")
            return []
        return self.stand_ins(value, setting, [model])

    def stand_ins(self, value: Value, setting: str, models: Sequence[str]) -> list[Link]:
        """The links from each of the models to what a list names."""
        found: list[tuple[str, Place]] = []
        for each in value.items() if isinstance(value.data, tuple) else (value,):
            name = text(each) or text(each.get("model"))
            stand_in = None if name is None else self.catalogue.model(name)
            if stand_in is None:
                if name is not None or not each.is_idle:
                    self.report.lost(each.place, setting, f"`{shown(name or '?')}` is no model that was mapped")
                continue
            if len(dict(each.entries())) > 1:
                self.report.lost(each.place, setting, "a stand-in gets the same request: parameters of its own are not added")
            found.append((stand_in, each.place))
        return [Link(model, stand_in, setting, place) for model in models for stand_in, place in found if stand_in != model]


def _without_circles(links: Sequence[Link], report: Report) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for link in links:
        if link.stand_in in found.get(link.model, ()):
            continue
        way = _way(link.stand_in, link.model, found)
        if way is not None:
            circle = " -> ".join([link.model, *way])
            message = f"`{link.stand_in}` does not stand in for `{link.model}`: that would be a circle ({circle})"
            report.lost(link.place, link.setting, message)
            continue
        found.setdefault(link.model, []).append(link.stand_in)
    return found


def _way(start: str, end: str, edges: Mapping[str, Sequence[str]]) -> list[str] | None:
    """A way from one model to another along stand-ins, or None."""
    came_from: dict[str, str] = {start: start}
    waiting = [start]
    while waiting:
        at = waiting.pop(0)
        if at == end:
            way = [at]
            while way[-1] != start:
                way.append(came_from[way[-1]])
            return way[::-1]
        for stand_in in edges.get(at, ()):
            if stand_in not in came_from:
                came_from[stand_in] = at
                waiting.append(stand_in)
    return None
