"""What LiteLLM's sections say of all models at once; of the rest of them, why it is not taken over.

Where `router_settings` and `litellm_settings` both say something, the former holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.config.problems import shown
from gateway.importing import reasons
from gateway.importing.document import Value, number, text
from gateway.importing.names import words
from gateway.importing.report import Report

At = tuple[reasons.Section, str]

ROUTER: Final = "router_settings"
LITELLM: Final = "litellm_settings"
GENERAL: Final = "general_settings"
_DAY_S: Final = 86_400

# Mapped by whoever reads `Settings`.
_MAPPED: Final[Mapping[reasons.Section, frozenset[str]]] = MappingProxyType(
    {
        ROUTER: words(
            "num_retries timeout stream_timeout allowed_fails cooldown_time default_max_parallel_requests fallbacks "
            "context_window_fallbacks default_fallbacks model_group_alias routing_strategy"
        ),
        LITELLM: words(
            "num_retries request_timeout allowed_fails fallbacks context_window_fallbacks default_fallbacks model_alias_map "
            "sse_keepalive_ping_interval_seconds"
        ),
        GENERAL: words("master_key max_request_size_mb sse_keepalive_ping_interval_seconds"),
    }
)
_OTHER_SECTIONS: Final = ("model_list", "credential_list")

_STRATEGIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "least-busy": "",  # just that
        "simple-shuffle": "calls are not drawn by lot: each goes to the less loaded of two replicas, by weight",
        "latency-based-routing": "latencies are not compared: each call goes to the less loaded of two replicas; slow ones carry more load",
        "usage-based-routing": "tokens per minute are not compared: each call goes to the less loaded of two replicas, by weight",
        "usage-based-routing-v2": "tokens per minute are not compared: each call goes to the less loaded of two replicas, by weight",
        "cost-based-routing": "replicas share by load and weight: give a dearer one a model name of its own, and make it a fallback",
    }
)


@dataclass(frozen=True, slots=True)
class Settings:
    """For all models. Times in seconds; None: not said. The lists and mappings are as they stand in the file."""

    retries: int | None
    timeout_s: float | None
    stream_timeout_s: float | None
    allowed_fails: int | None
    cooldown_s: float | None
    parallel: int | None
    fallbacks: Value | None
    context_fallbacks: Value | None
    default_fallbacks: Value | None
    aliases: tuple[Value, ...]
    max_body_bytes: int | None
    heartbeat_s: float | None
    master_key: Value | None


def read(root: Value, report: Report) -> Settings:
    """The settings of a configuration. What is not taken over goes into the report."""
    sections = {name: section for name in _MAPPED if (section := root.get(name)) is not None}
    reader = _Reader(sections, report)
    strategy = reader.value((ROUTER, "routing_strategy"))
    if strategy is not None:
        _strategy(strategy, report)
    megabytes = reader.number([(GENERAL, "max_request_size_mb")], 0.001, 2_048)
    keepalive = "sse_keepalive_ping_interval_seconds"
    settings = Settings(
        retries=reader.count((ROUTER, "num_retries"), (LITELLM, "num_retries")),
        timeout_s=reader.seconds((ROUTER, "timeout"), (LITELLM, "request_timeout")),
        stream_timeout_s=reader.seconds((ROUTER, "stream_timeout")),
        allowed_fails=reader.count((ROUTER, "allowed_fails"), (LITELLM, "allowed_fails")),
        cooldown_s=reader.seconds((ROUTER, "cooldown_time")),
        parallel=reader.count((ROUTER, "default_max_parallel_requests")),
        fallbacks=reader.value((ROUTER, "fallbacks"), (LITELLM, "fallbacks")),
        context_fallbacks=reader.value((ROUTER, "context_window_fallbacks"), (LITELLM, "context_window_fallbacks")),
        default_fallbacks=reader.value((ROUTER, "default_fallbacks"), (LITELLM, "default_fallbacks")),
        aliases=tuple(
            found for at in ((ROUTER, "model_group_alias"), (LITELLM, "model_alias_map")) if (found := reader.value(at)) is not None
        ),
        max_body_bytes=None if megabytes is None else max(1_024, round(megabytes * 2**20)),
        heartbeat_s=reader.seconds((LITELLM, keepalive), (GENERAL, keepalive), most=3_600),
        master_key=reader.value((GENERAL, "master_key")),
    )
    for name, section in sections.items():
        if not isinstance(section.data, Mapping):
            report.lost(section.place, name, "should be a mapping")
        for key, value in section.entries():
            if key not in _MAPPED[name]:
                tell(report, name, key, value)
    for key, value in root.entries():
        if key not in sections and key not in _OTHER_SECTIONS:
            tell(report, "", key, value)
    return settings


def tell(report: Report, section: reasons.Section, key: str, value: Value) -> None:
    """Puts a setting that is not mapped into the report, unless it says nothing."""
    if not value.is_idle:
        kind, message = reasons.of(section, key)
        report.add(kind, value.place, f"{section}.{shown(key)}" if section else shown(key), message)


def within(value: Value | None, least: float, most: float, name: str, report: Report) -> float | None:
    """The number that a value holds, brought between the bounds; None, and told, where it holds none."""
    if value is None:
        return None
    found = number(value)
    if found is None:
        report.lost(value.place, name, "should be a number that stands here")
        return None
    kept = min(max(found, least), most)
    if kept != found:
        report.changed(value.place, name, f"is {kept:g} now: it has to be between {least:g} and {most:g}")
    return kept


def _strategy(value: Value, report: Report) -> None:
    message = _STRATEGIES.get(text(value) or "", "replicas of a model always share by load and weight")
    if message:
        report.changed(value.place, f"{ROUTER}.routing_strategy", message)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Looks for a setting in the places where it may stand; the first that has it holds."""

    sections: Mapping[reasons.Section, Value]
    report: Report

    def value(self, *places: At) -> Value | None:
        found = (self.sections[section].get(key) for section, key in places if section in self.sections)
        return next((each for each in found if each is not None), None)

    def number(self, places: Sequence[At], least: float, most: float) -> float | None:
        value = self.value(*places)
        return within(value, least, most, "" if value is None else value.place.path, self.report)

    def count(self, *places: At) -> int | None:
        found = self.number(places, 0, 1_000_000)
        return None if found is None else int(found)

    def seconds(self, *places: At, most: float = _DAY_S) -> float | None:
        return self.number(places, 0, most) or None
