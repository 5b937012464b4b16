"""Secrets masked in text: those that the configuration holds, and what looks like one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote

from pydantic import BaseModel, SecretStr

from gateway.config.schema import Config

MASK: Final = "***"
# A shorter word stands in too many others.
_SHORTEST: Final = 6
_PASSWORD: Final = re.compile(r"://[^/@:]*:([^/]*)@")

_LIKELY: Final = (
    # credentials in a URL
    (re.compile(r"(?<=://)([^\s/@:'\"]*):[^\s/@'\"]+(?=@)"), rf"\1:{MASK}"),
    # a header's value, as text or as repr shows it
    (re.compile(r"(?i)\b(bearer)[ \t]+[^\s'\"\\,;]+"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b(basic)[ \t]+[a-z0-9+/]{8,}={0,2}"), rf"\1 {MASK}"),
    # keys by their prefix
    (re.compile(r"\b(sk|pk|rk|hf|ghp|gho|glpat|xox[a-z])([-_])[A-Za-z0-9_\-]{4,}"), rf"\1\2{MASK}"),
    # named: key=..., "key": "...", (b'key', b'...')
    (
        re.compile(
            r"(?i)\b((?:x-)?api[_-]?key|authorization|proxy-authorization|cookie|passw(?:or)?d|pwd|(?:client[_-]?)?secret|access[_-]?token)"
            r"((?>\\?[\"']?\s*(?:[:=]\s*|,\s*(?=b?\\?[\"']))(?:b(?=\\?[\"']))?\\?[\"']?))(?!(?:bearer|basic)\b)[^\s\"'\\,;&)}\]]+"
        ),
        rf"\1\2{MASK}",
    ),
)


class Redactor:
    """Masks secrets; used by all threads. `know` adds to what it knows, for what ran under a configuration may still speak of it."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def know(self, secrets: Iterable[str]) -> None:
        """Masks these from now on, however they are quoted."""
        fresh = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
        if not fresh <= self._known:
            self._known |= fresh
            self._pattern = re.compile("|".join(re.escape(each) for each in sorted(self._known, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        for pattern, masked in _LIKELY:
            text = pattern.sub(masked, text)
        return text


def secrets_of(config: Config) -> list[str]:
    """All that a configuration keeps to itself."""
    found = list(_kept(config))
    password = _PASSWORD.search(config.storage.url)
    return found if password is None else [*found, unquote(password[1])]


def _kept(value: object) -> Iterator[str]:
    """Every secret in it, wherever it stands: no section has to be remembered here."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for _, each in value:
            yield from _kept(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _kept(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _kept(each)


def secrets_of_environment(environ: Mapping[str, str]) -> list[str]:
    """What OpenTelemetry's variables hold: headers for the collector, which are keys as a rule."""
    values = [value for name, value in environ.items() if name.startswith("OTEL_EXPORTER_") and name.endswith("_HEADERS")]
    return [pair.partition("=")[2].strip() for value in values for pair in value.split(",")]


def _forms(secret: str) -> set[str]:
    return {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
