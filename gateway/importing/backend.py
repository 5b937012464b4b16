"""Deployments put together into Trilemma's backends: one for each engine, with all the models that it serves.

    backends(catalogue, report) -> backends

Shares of the load are relative within a model: `weight` where a deployment has one, else `rpm`, else `tpm`, as
LiteLLM's simple-shuffle takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.config.problems import shown
from gateway.importing.catalogue import Catalogue
from gateway.importing.deployment import Deployment
from gateway.importing.names import fitting, unique
from gateway.importing.report import Report

_LARGEST = 1_000.0


@dataclass(frozen=True, slots=True)
class Share:
    """What a replica gets of its model's load. weight: None where it makes no difference."""

    weight: float | None = None
    enabled: bool = True


@dataclass(slots=True)
class Backend:
    """models: public name -> the engine's name. deployments: what it stands for."""

    name: str
    url: str
    engine: str | None
    key: str | None
    timeouts: Mapping[str, float]
    breaker: Mapping[str, float]
    share: Share
    models: dict[str, str] = field(default_factory=dict)
    deployments: list[Deployment] = field(default_factory=list)

    def takes(self, model: str, each: Deployment, share: Share) -> bool:
        """Whether the deployment is this engine, called in the same way."""
        same = (self.url, self.engine, self.key, self.timeouts, self.breaker) == (
            each.url,
            each.engine,
            each.key,
            each.timeouts,
            each.breaker,
        )
        weights = {self.share.weight, share.weight} - {None}
        return same and model not in self.models and self.share.enabled == share.enabled and len(weights) <= 1


def backends(catalogue: Catalogue, report: Report) -> list[Backend]:
    """The backends, in the order in which their engines first occur."""
    found: list[Backend] = []
    taken: set[str] = set()
    for model, group in catalogue.groups.items():
        for each, share in zip(group, shares(group, report), strict=True):
            backend = next((one for one in found if one.takes(model, each, share)), None)
            if backend is None:
                name = unique(fitting(each.host, "engine"), taken)
                taken.add(name)
                backend = Backend(name, each.url, each.engine, each.key, each.timeouts, each.breaker, share)
                found.append(backend)
            elif backend.share.weight is None:
                backend.share = share
            backend.models[model] = each.model
            backend.deployments.append(each)
    return found


def shares(group: Sequence[Deployment], report: Report) -> list[Share]:
    """Each replica's share, in the group's order."""
    measures = ([each.weight for each in group], [each.rpm for each in group], [each.tpm for each in group])
    written = next((measure for measure in measures if any(each for each in measure)), None)
    if len(group) == 1 or written is None:
        return [Share()] * len(group)
    given = [each for each in written if each is not None and each > 0]
    least, most = min(given), max(given)
    unit = most / _LARGEST if most / least > _LARGEST else least
    found: list[Share] = []
    for each, measured in zip(group, written, strict=True):
        if measured is not None and measured <= 0:
            report.changed(
                each.place, "litellm_params.weight", f"a replica of `{shown(each.name)}` that gets no calls is written `enabled: false`"
            )
            found.append(Share(enabled=False))
            continue
        if measured is None:
            message = f"replicas of `{shown(each.name)}` without one get no calls while others have one; here they count as the smallest"
            report.changed(each.place, "litellm_params.weight", message)
        found.append(Share(_rounded((measured or least) / unit)))
    if len({share.weight for share in found if share.enabled}) == 1:
        return [Share(enabled=share.enabled) for share in found]
    return found


def _rounded(weight: float) -> float:
    """Three digits are enough of a share."""
    return max(float(f"{weight:.3g}"), 0.001)
