"""A deployment of LiteLLM: one entry of its `model_list`, as far as a backend can stand for it.

    read(root, settings, variables, report) -> deployments, in their order

An entry that no backend can stand for is left out, and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from gateway.config.problems import shown
from gateway.importing.address import address, host
from gateway.importing.document import Value, flag, names, number, text, variable
from gateway.importing.names import words
from gateway.importing.providers import Provider, Served, Unreachable, served
from gateway.importing.report import Place, Report
from gateway.importing.settings import Settings, tell, within
from gateway.importing.variables import Variables

# Mapped here; what else stands in `litellm_params` and `model_info` is told.
_PARAMS: Final = words(
    "model custom_llm_provider api_base base_url api_key litellm_credential_name weight timeout stream_timeout max_retries num_retries "
    "max_parallel_requests cooldown_time input_cost_per_token output_cost_per_token cache_read_input_token_cost rpm tpm"
)
_INFO: Final = words(
    "id max_tokens max_input_tokens input_cost_per_token output_cost_per_token cache_read_input_token_cost allowed_fails cooldown_time "
    "access_groups blocked supports_function_calling supports_response_schema supports_vision supports_reasoning mode"
)
_PRICES: Final = ("input_cost_per_token", "cache_read_input_token_cost", "output_cost_per_token")
_CAPABILITIES: Final[Mapping[str, str]] = {
    "supports_function_calling": "tools",
    "supports_response_schema": "json_schema",
    "supports_vision": "vision",
    "supports_reasoning": "reasoning",
}
_NOT_RELAYED: Final = frozenset(("realtime", "batch", "ocr", "search", "vector_store", "container", "assistant"))
_PER_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One engine that serves one model.

    name: as clients ask for it. model: as the engine knows it. url, key: text or a reference `${NAME}`. host: what a
    backend may be called after. weight, rpm, tpm: shares of the load, as written. prices: USD per million tokens of
    input, cached input and output, None where not said. capabilities: what is said to be there, or not to be.
    """

    place: Place
    name: str
    model: str
    url: str
    host: str
    engine: str | None
    key: str | None
    weight: float | None
    rpm: float | None
    tpm: float | None
    timeouts: Mapping[str, float]
    breaker: Mapping[str, float]
    retries: int | None
    parallel: int | None
    context: int | None
    prices: tuple[float | None, float | None, float | None]
    capabilities: Mapping[str, bool]
    id: str | None
    access_groups: tuple[str, ...]


def read(root: Value, settings: Settings, variables: Variables, report: Report) -> list[Deployment]:
    """The deployments that a backend can stand for. Everything else of `model_list` goes into the report."""
    listed = root.get("model_list")
    if listed is not None and not isinstance(listed.data, tuple):
        report.lost(listed.place, "model_list", "should be a list")
    reader = _Reader(settings, variables, report, dict(_credentials(root, report)))
    entries = listed.items() if listed is not None else ()
    return [found for entry in entries if (found := reader.deployment(entry)) is not None]


def _credentials(root: Value, report: Report) -> Iterator[tuple[str, Value]]:
    """Name -> values of every entry of `credential_list`."""
    listed = root.get("credential_list")
    for entry in listed.items() if listed is not None else ():
        name, values = text(entry.get("credential_name")), entry.get("credential_values")
        if name is None or values is None:
            report.lost(entry.place, "credential_list", "an entry needs `credential_name` and `credential_values`")
        else:
            yield name, values


@dataclass(frozen=True, slots=True)
class _Reader:
    settings: Settings
    variables: Variables
    report: Report
    credentials: Mapping[str, Value]

    def deployment(self, entry: Value) -> Deployment | None:
        name = text(entry.get("model_name"))
        try:
            if name is None:
                raise Unreachable("an entry without `model_name`")
            return self._read(name, entry)
        except Unreachable as error:
            self.report.lost(entry.place, "model_list", f"`{shown(name)}`: {error}" if name is not None else str(error))
            return None

    def _read(self, name: str, entry: Value) -> Deployment:
        params, info = entry.get("litellm_params"), entry.get("model_info") or Value(entry.place, {})
        if params is None or not isinstance(params.data, Mapping):
            raise Unreachable("no `litellm_params`")
        params = self._with_credential(params)
        found = self._served(name, params, info)
        url = self._url(params, found.provider)
        if url is None:
            raise Unreachable("no `api_base` that a backend's `url` could be")
        if found.provider.differs:
            self.report.changed(entry.place, f"litellm_params.model: {found.provider_name}/", found.provider.differs)
        self._tell_rest(entry, params, info)
        return Deployment(
            place=entry.place,
            name=name,
            model=found.model,
            url=url,
            host=found.provider_name if url == found.provider.url else host(url),
            engine=found.provider.engine,
            key=self._key(params, found.provider, url, name),
            weight=self._number(params, "weight", 0, 1e9),
            rpm=number(params.get("rpm")),
            tpm=number(params.get("tpm")),
            timeouts=self._timeouts(params),
            breaker=self._breaker(params, info),
            retries=self._count(params, "num_retries", "max_retries"),
            parallel=self._count(params, "max_parallel_requests") or self.settings.parallel,
            context=self._context(info),
            prices=self._prices(params, info),
            capabilities=self._capabilities(info),
            id=text(info.get("id")),
            access_groups=tuple(names(info.get("access_groups"))),
        )

    def _with_credential(self, params: Value) -> Value:
        """The parameters over those of the credential that they name."""
        name = text(params.get("litellm_credential_name"))
        if name is None:
            return params
        if name not in self.credentials:
            self.report.lost(params.place, "litellm_params.litellm_credential_name", f"there is no credential `{shown(name)}`")
            return params
        return Value(params.place, {**dict(self.credentials[name].entries()), **dict(params.entries())})

    def _served(self, name: str, params: Value, info: Value) -> Served:
        model = text(params.get("model"))
        if "*" in name:
            raise Unreachable("a pattern, for whatever models a provider has: name those that are wanted, one by one")
        if model is None:
            raise Unreachable("no `litellm_params.model`")
        if variable(params.get("model")) is not None:
            raise Unreachable("the name of its model stands in a variable, and has to stand here")
        if flag(info.get("blocked")):
            raise Unreachable("blocked")
        if text(info.get("team_id")) is not None:
            raise Unreachable("a team's own, and here a model is open to every key that names no `models`: add it by hand, and them")
        mode = text(info.get("mode"))
        if mode in _NOT_RELAYED:
            raise Unreachable(f"for a kind of request that is not relayed ({mode})")
        return served(model, text(params.get("custom_llm_provider")), (params.get("api_base") or params.get("base_url")) is not None)

    def _url(self, params: Value, provider: Provider) -> str | None:
        """Where it is: an address or a reference."""
        given = params.get("api_base") or params.get("base_url")
        if given is None:
            return provider.url or (self.variables.reference(provider.url_variable) if provider.url_variable else None)
        if (name := variable(given)) is not None:
            return self.variables.reference(name)
        return address(given, self.report)

    def _key(self, params: Value, provider: Provider, url: str, name: str) -> str | None:
        given = params.get("api_key")
        if given is not None:
            return self.variables.key(given, name)
        is_there = provider.url is not None and url.removesuffix("/v1") == provider.url.removesuffix("/v1")
        return self.variables.reference(provider.key_variable) if provider.key_variable and is_there else None

    def _timeouts(self, params: Value) -> dict[str, float]:
        """LiteLLM's bounds hold for each wait for bytes: for the whole answer, and between the parts of a stream."""
        whole = self._number(params, "timeout", 0.001, 86_400) or self.settings.timeout_s
        stream = self._number(params, "stream_timeout", 0.001, 86_400) or self.settings.stream_timeout_s
        found: dict[str, float] = {}
        if (first := whole or stream) is not None:
            found["first_byte_s"] = first
        if (idle := stream or whole) is not None:
            found["idle_s"] = idle
        if max(found.values(), default=0) > 3_600:
            found["total_s"] = max(found.values())
        if whole is not None and stream is not None and stream < whole:
            place = (params.get("stream_timeout") or params).place
            self.report.changed(
                place, "stream_timeout", "holds between the parts of a stream; the first one has `first_byte_s`, as whole answers have"
            )
        return found

    def _breaker(self, params: Value, info: Value) -> dict[str, float]:
        own = self._count(info, "allowed_fails")
        fails = own if own is not None else self.settings.allowed_fails
        pause = self._number(info, "cooldown_time", 0.001, 86_400) or self._number(params, "cooldown_time", 0.001, 86_400)
        pause = pause or self.settings.cooldown_s
        found: dict[str, float] = {} if fails is None else {"trip_after": min(fails + 1, 1_000)}
        return found if pause is None else {**found, "first_s": pause, "longest_s": pause}

    def _context(self, info: Value) -> int | None:
        found = self._number(info, "max_input_tokens", 1, 1e9)
        given = info.get("max_tokens")
        if found is None and given is not None and (found := self._number(info, "max_tokens", 1, 1e9)) is not None:
            message = "taken for the context, prompt and answer together; some write the longest answer here: see that it is right"
            self.report.todo(given.place, "model_info.max_tokens", message)
        return None if found is None else int(found)

    def _prices(self, params: Value, info: Value) -> tuple[float | None, float | None, float | None]:
        first, cached, output = (self._price(params.get(key) or info.get(key), key) for key in _PRICES)
        return first, cached, output

    def _price(self, value: Value | None, key: str) -> float | None:
        """USD per million tokens; decimal, so that 1e-07 becomes 0.1 and not something near it."""
        found = within(value, 0, 1, _setting(value, key), self.report)
        return None if found is None else float(Decimal(repr(found)) * _PER_MILLION)

    def _capabilities(self, info: Value) -> dict[str, bool]:
        found = {word: said for key, word in _CAPABILITIES.items() if (said := flag(info.get(key))) is not None}
        return found | ({"embeddings": True} if text(info.get("mode")) == "embedding" else {})

    def _number(self, section: Value, key: str, least: float, most: float) -> float | None:
        value = section.get(key)
        return within(value, least, most, _setting(value, key), self.report)

    def _count(self, section: Value, *keys: str) -> int | None:
        key = next((each for each in keys if section.get(each) is not None), keys[0])
        found = self._number(section, key, 0, 1_000_000)
        return None if found is None else int(found)

    def _tell_rest(self, entry: Value, params: Value, info: Value) -> None:
        for key, value in params.entries():
            if key not in _PARAMS or key in ("rpm", "tpm"):
                tell(self.report, "litellm_params", key, value)
        if not isinstance(info.data, Mapping) and not info.is_idle:
            self.report.lost(info.place, "model_info", "should be a mapping")
        for key, value in info.entries():
            if key not in _INFO:
                tell(self.report, "model_info", key, value)
        for key, value in entry.entries():
            if key not in ("model_name", "litellm_params", "model_info"):
                tell(self.report, "litellm_params", key, value)


def _setting(value: Value | None, key: str) -> str:
    """What a parameter is called in the report: `litellm_params.timeout`."""
    return key if value is None else value.place.path.rpartition("].")[2]
