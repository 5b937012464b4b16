"""The shape of a Trilemma configuration file: one strict model per section (docs/configuration.md).

Every model forbids unknown keys and is frozen: a loaded Config is a value that flows. Prices are USD per million
tokens, times are seconds unless the name says otherwise. Descriptions go into the JSON schema that editors read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"
_URL = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"
_HEADER = r"^[A-Za-z0-9-]+$"
_SHA256 = r"^[0-9a-f]{64}$"

PATTERNS: Mapping[str, str] = {
    _NAME: "should begin with a letter or digit, and hold only letters, digits and . _ : / @ + -",
    _URL: "should be http://HOST[:PORT][/PATH] or https://..., without user, query or fragment (a key stands in `key`)",
    _HEADER: "should be the name of a header: letters, digits and -",
    _SHA256: "should be a SHA-256 digest: 64 digits of 0-9 and a-f",
}
"""What each pattern of this module asks for, in words."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_NAME)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Usd = Annotated[float, Field(ge=0, le=1e6)]
Secret = Annotated[SecretStr, Field(min_length=1)]


class Section(BaseModel):
    """Base of all sections: strict and frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class Server(Section):
    """Where the gateway listens and what it accepts."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65_535, description="Port to listen on; 0: any free one.")
    workers: int = Field(1, ge=1, le=64, description="Processes that serve.")
    max_body_bytes: int = Field(20_000_000, ge=1_024, le=2**31, description="Largest request body; a larger one is a 413.")
    max_n: int = Field(128, ge=1, le=10_000, description="Largest `n` that a request may ask for.")
    keep_alive_s: Seconds = Field(
        75.0, description="How long a client may be idle, send nothing of a request, or read nothing of an answer."
    )
    grace_s: float = Field(20.0, ge=0, le=3_600, description="How long a shutdown waits for running requests.")
    heartbeat_s: float = Field(0.0, ge=0, le=3_600, description="Silence in a stream after which a comment is sent; 0: never.")
    client: Literal["http1", "aiohttp"] = Field(
        "http1", description="How backends are reached: directly, or by aiohttp (extra `proxy`), which honours HTTP_PROXY."
    )
    secret: Secret | None = Field(None, description="Secret that keyed digests are made with, such as the tag in a decision id.")
    secret_file: Path | None = Field(None, description="File that holds `secret`.")
    watch: bool = Field(False, description="Reload when this file or a secret's file changes.")

    @model_validator(mode="after")
    def _one_secret(self) -> Server:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("give `secret` or `secret_file`, not both")
        return self


class Timeouts(Section):
    """Bounds of one upstream call: connecting, waiting for the first byte, silence between bytes, the whole."""

    connect_s: Seconds = Field(5.0, description="Opening the connection.")
    first_byte_s: Seconds = Field(300.0, description="From the request sent to the first byte of the answer.")
    idle_s: Seconds = Field(120.0, description="Longest silence between two bytes of an answer.")
    total_s: Seconds = Field(3_600.0, description="The whole call.")


class BreakerSpec(Section):
    """When a backend that fails is left alone, and for how long."""

    trip_after: int = Field(3, ge=1, le=1_000, description="Faults in a row; a failed connection and a 429 count at once.")
    trip_share: float = Field(0.5, gt=0, le=1, description="Or this share of faults among the last `window` calls.")
    window: int = Field(20, ge=1, le=10_000, description="Calls that `trip_share` looks back on.")
    min_calls: int = Field(10, ge=1, le=10_000, description="While fewer of them are known, `trip_share` says nothing.")
    first_s: Seconds = Field(1.0, description="The first pause; each failed trial doubles it.")
    longest_s: Seconds = Field(30.0, description="The longest pause that the backend did not ask for itself.")


Scheme = Literal["http", "https"]
Family = Literal["ipv4", "ipv6"]


class Listed(Section):
    """A replica with a weight of its own."""

    url: str = Field(pattern=_URL, description="Address of the replica.")
    weight: float = Field(1.0, gt=0, le=1_000, description="Times the backend's own.")


class DnsSource(Section):
    """Every address of a name is a replica."""

    host: str = Field(min_length=1, max_length=253, description="The name.")
    port: int = Field(ge=1, le=65_535, description="Port of every replica.")
    interval_s: Seconds = Field(10.0, description="Between two look-ups.")
    scheme: Scheme = Field("http", description="How replicas are spoken to.")
    family: Family | None = Field(None, description="Only these addresses. Default: IPv4, and IPv6 where there is none.")


class FileSource(Section):
    """A file lists the replicas."""

    path: Path = Field(description="A list of URLs: JSON where the name ends in .json, else YAML.")
    interval_s: Seconds = Field(1.0, description="Between two looks at it.")


class KubernetesSource(Section):
    """The pods behind a Service are the replicas."""

    service: str = Field(min_length=1, max_length=253, description="The Service's name.")
    namespace: str | None = Field(None, description="Its namespace. Default: the gateway's own.")
    port: str | int | None = Field(None, description="A port's name in the Service, or a number. Default: the only port there is.")
    scheme: Scheme = Field("http", description="How replicas are spoken to.")
    family: Family | None = Field(None, description="Only these addresses. Default: IPv4, and IPv6 where there is none.")
    server: str | None = Field(None, pattern=_URL, description="The API server, for a gateway that is no pod of the cluster.")
    token_file: Path | None = Field(None, description="Token for that server.")
    ca_file: Path | None = Field(None, description="Certificates that vouch for that server.")


class Discover(Section):
    """Where replicas are found: exactly one of these."""

    static: list[Annotated[str, Field(pattern=_URL)] | Listed] | None = Field(None, description="Listed here.")
    dns: DnsSource | None = Field(None, description="The addresses of a name.")
    file: FileSource | None = Field(None, description="A file.")
    kubernetes: KubernetesSource | None = Field(None, description="The pods behind a Service.")

    @model_validator(mode="after")
    def _one(self) -> Discover:
        if sum(each is not None for each in (self.static, self.dns, self.file, self.kubernetes)) != 1:
            raise ValueError("give exactly one of `static`, `dns`, `file`, `kubernetes`")
        return self


class Backend(Section):
    """An engine: *given* by `url`, or *managed* (started, watched, stopped) by `launch`."""

    url: str | None = Field(None, pattern=_URL, description="Address of an engine that runs, with or without `/v1`.")
    engine: Literal["vllm", "llama.cpp", "openai"] | None = Field(
        None, description="What the engine is. Default: as launched; `openai` (generic) for a `url`."
    )
    key: Secret | None = Field(None, description="Bearer key for the engine.")
    key_file: Path | None = Field(None, description="File that holds `key`.")
    models: dict[Name, str] = Field(min_length=1, description="Models served here: the public name -> the name that the engine knows.")
    weight: float = Field(1.0, gt=0, le=1_000, description="Share of the load, relative to other backends of the same model.")
    timeouts: Timeouts = Field(Timeouts(), description="Bounds of one call to this engine.")
    breaker: BreakerSpec = Field(BreakerSpec(), description="When it is left alone after faults.")
    on_change: Literal["leave_out", "warn"] = Field(
        "leave_out", description="When another model than at first answers for a name: it gets no calls for it, or goes on with a warning."
    )
    enabled: bool = Field(True, description="Whether it gets calls; those that run go on.")
    forward_headers: list[Annotated[str, Field(pattern=_HEADER)]] = Field(
        [], description="Headers of the client's request that go on to the engine."
    )

    discover: Discover | None = Field(None, description="Find several engines that run, instead of `url`.")
    launch: Literal["llama-server", "vllm"] | None = Field(None, description="Start this engine and manage it, instead of `url`.")
    model: str | None = Field(None, min_length=1, description="What a launched engine loads: a packaged model's name or a path.")
    slots: int = Field(8, ge=1, le=256, description="Requests that a launched engine runs at once.")
    context: int = Field(1_024, ge=64, le=10_000_000, description="Tokens of context per slot of a launched engine.")
    embeddings: bool = Field(False, description="Launch the engine so that it answers /v1/embeddings too.")
    python: Path | None = Field(None, description="Interpreter that a launched engine runs in. Default: the gateway's.")
    args: list[str] = Field([], description="More arguments for a launched engine, as they are.")
    port: int | None = Field(None, ge=1, le=65_535, description="Port of a launched engine. Default: any free one.")

    @model_validator(mode="after")
    def _given_or_managed(self) -> Backend:
        if sum(each is not None for each in (self.url, self.launch, self.discover)) != 1:
            raise ValueError("give either `url` (an engine that runs), `launch` (one to start) or `discover` (several that run)")
        if self.launch is not None and self.model is None:
            raise ValueError("`launch` needs `model`: a packaged model's name or a path")
        if self.key is not None and self.key_file is not None:
            raise ValueError("give `key` or `key_file`, not both")
        return self

    @property
    def engine_name(self) -> Literal["vllm", "llama.cpp", "openai"]:
        """The adapter that knows this engine's quirks."""
        if self.engine is not None:
            return self.engine
        if self.launch is not None:
            return "vllm" if self.launch == "vllm" else "llama.cpp"
        return "openai"


class Price(Section):
    """USD per million tokens. `cached_input` defaults to `input`."""

    input: Usd = Field(0.0, description="Prompt tokens.")
    cached_input: Usd | None = Field(None, description="Prompt tokens that the engine had cached. Default: as `input`.")
    output: Usd = Field(0.0, description="Sampled tokens.")


class OwnTimeouts(Section):
    """Bounds of one upstream call; what is not given here is as the backend has it."""

    connect_s: Seconds | None = Field(None, description="Opening the connection.")
    first_byte_s: Seconds | None = Field(None, description="From the request sent to the first byte of the answer.")
    idle_s: Seconds | None = Field(None, description="Longest silence between two bytes of an answer.")
    total_s: Seconds | None = Field(None, description="The whole call.")

    def over(self, others: Timeouts) -> Timeouts:
        """The others, with what is given here in their place."""
        return others.model_copy(update=self.model_dump(exclude_none=True))


class Hedge(Section):
    """A second replica is asked when the first is slow; the first answer is taken, the other call cancelled."""

    share: float = Field(0.1, gt=0, le=1, description="Of the calls, at most so many are hedged.")
    quantile: float = Field(0.95, ge=0.5, lt=1, description="Of the waits of calls of this size, after which one is hedged.")
    least_s: Seconds = Field(0.05, description="Never sooner than this.")


class Queue(Section):
    """What waits in front of a model when it has enough to do."""

    slots: int = Field(ge=1, le=100_000, description="Calls that run at once, over all replicas.")
    room: int = Field(64, ge=0, le=100_000, description="Calls that may wait; more get a 503 with Retry-After.")
    wait_s: Seconds = Field(30.0, description="Longest wait.")
    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="Tenant -> share of the slots while others wait; 1 for those not named."
    )


class Model(Section):
    """What is known of a real model beyond the backends that serve it."""

    aliases: list[Name] = Field([], description="Other names for this model.")
    context: int | None = Field(None, ge=1, description="Tokens of context, prompt and answer together.")
    capabilities: list[Literal["tools", "json_schema", "logprobs", "vision", "reasoning", "embeddings"]] = Field(
        [], description="What the model can do."
    )
    price: Price = Field(Price(), description="What its tokens cost.")
    attempts: int = Field(
        3, ge=1, le=20, description="Calls that one request may make, fallbacks and hedges included, until the first byte of an answer."
    )
    retry_wait_s: float = Field(5.0, ge=0, le=600, description="Longest Retry-After that is waited for when all replicas gave one.")
    queue: Queue | None = Field(None, description="A bounded queue. Default: none, everything goes to the engines at once.")
    fallbacks: list[Name] = Field(
        [],
        description="Models that stand in, in this order, when this one fails; for too long a prompt, the first that holds more.",
    )
    timeouts: OwnTimeouts = Field(OwnTimeouts(), description="Bounds of one call for this model, in place of the backend's.")
    deadline_ms: int | None = Field(None, ge=1, description="Longest time a request may take, waits and retries included, in milliseconds.")
    hedge: Hedge | None = Field(None, description="Ask a second replica when the first is slow. Default: never.")
    replaced_by: Name | None = Field(None, description="It is retired: this real model serves whatever asks for it.")


class Embeddings(Section):
    """An embeddings endpoint, whose vectors policies may read as features: `endpoint:NAME`."""

    url: str = Field(pattern=_URL, description="Address of a server that answers POST /v1/embeddings, with or without `/v1`.")
    model: str = Field(min_length=1, max_length=200, description="The model, by the name that the server knows.")
    dimensions: int = Field(ge=1, le=16_384, description="Numbers of a vector; an answer with another number of them is refused.")
    shorten: bool = Field(False, description="Ask for vectors of `dimensions` numbers, of a model whose vectors may be cut.")
    characters: int = Field(
        8_192, ge=64, le=131_072, description="Characters that are read of a conversation; no text that is sent is longer."
    )
    timeout_s: float = Field(0.5, gt=0, le=60, description="How long a call may take, in seconds; what it brings is remembered.")
    key: Secret | None = Field(None, description="Bearer key for the server.")
    key_file: Path | None = Field(None, description="File that holds `key`.")

    @model_validator(mode="after")
    def _one_key(self) -> Embeddings:
        if self.key is not None and self.key_file is not None:
            raise ValueError("give `key` or `key_file`, not both")
        return self


class Policy(Section):
    """A routing policy: its algorithm and that algorithm's parameters."""

    type: str = Field(
        min_length=1,
        description="The algorithm: `fixed`, `random`, `weighted`, `best_single`, `length`, `neighbors`, `rules`, `linucb` or `thompson`.",
    )
    params: dict[str, Any] = Field({}, description="The algorithm's parameters; docs/routing.md names them.")
    floor: float = Field(
        0.0, ge=0, lt=1, description="Total share of requests drawn evenly over the plans that may serve, whatever the algorithm says."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the draws.")
    wrappers: list[dict[str, Any]] = Field(
        [],
        description="What is put around it, the innermost first: each a `type` (`sticky`, `shadow`, `canary`, `frozen`, `safe`, "
        "`newcomers`, `alarm`), and more.",
    )


class Checker(Section):
    """A service of the operator's own that is sent answers, and says how good they are."""

    url: str = Field(pattern=_URL, description="Where answers are sent.")
    timeout_s: float = Field(10.0, gt=0, le=600, description="How long it may take, in seconds.")
    at_once: int = Field(16, ge=1, le=256, description="Answers that it looks at at the same time.")
    key: Secret | None = Field(None, description="Bearer key for it.")
    key_file: Path | None = Field(None, description="File that holds `key`.")

    @model_validator(mode="after")
    def _one_key(self) -> Checker:
        if self.key is not None and self.key_file is not None:
            raise ValueError("give `key` or `key_file`, not both")
        return self


class StrategySpec(Section):
    """How a plan's model is asked more than once, and which answer is given."""

    type: str = Field(min_length=1, description="The strategy: docs/decoding.md names them.")
    params: dict[str, Any] = Field({}, description="The strategy's parameters; docs/decoding.md names them.")
    roles: dict[str, Name] = Field(
        {}, description="Who does what beside sampling, role -> real model: a `judge`, for one. Default: the plan's own model."
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="The least temperature of its samples, where a request names a lower one. Default: at temperature 0 there is one.",
    )
    scoring: Literal["score", "classify", "pooling"] = Field(
        "score", description="How the role `reward` is asked: vLLM's endpoint that its model answers on."
    )
    verifier: Checker | None = Field(None, description="The service that plays the role `verifier`. Default: none.")


class PlanSpec(Section):
    """One way to run a request."""

    model: Name = Field(description="The real model that runs it.")
    strategy: str = Field("single", min_length=1, description="How it is decoded: a name in `strategies`, or `single`: one plain call.")
    reasoning: Literal["off", "low", "medium", "high"] | None = Field(
        None, description="How much the model thinks, where it can be told. Default: as it does by itself."
    )
    budget_tokens: int | None = Field(None, ge=1, description="Most tokens that it may sample. Default: as the request says.")


class Caps(Section):
    """The operator's bounds; they win over whatever a client asks for."""

    deadline_ms: int | None = Field(None, ge=1, description="Longest time a request may take, in milliseconds.")
    max_cost: float | None = Field(None, gt=0, description="Most that a request may cost, in USD; answers are cut to what that pays for.")


class Preference(Section):
    """How much quality, cost and latency count: numbers from 0, of which only the proportions matter.

    The dearest plan gives up `cost / quality` of a right answer for its price, the slowest `latency / quality` for its time.
    """

    quality: float = Field(0.9, gt=0, description="A right answer.")
    cost: float = Field(0.08, ge=0, description="What the dearest plan costs for this request.")
    latency: float = Field(0.02, ge=0, description="How long the slowest plan takes for this request.")


class Worth(Section):
    """What money and time are worth, in right answers; in place of `preference`, for who knows it."""

    cost: float = Field(0.0, ge=0, description="Right answers per USD: 100 where one is worth a cent.")
    latency: float = Field(0.0, ge=0, description="Right answers per second of waiting.")


class VirtualModel(Section):
    """A name that clients ask for; a policy picks one of its plans per request."""

    policy: str = Field(min_length=1, description="A name in `policies`, or `fixed` (one plan, always).")
    plans: dict[Name, PlanSpec] = Field(min_length=1, description="The ways to run a request, by name.")
    baseline: str | None = Field(
        None, description="The plan that serves when the policy cannot decide, and that a policy must not fall behind. Default: the first."
    )
    timeouts: OwnTimeouts = Field(OwnTimeouts(), description="Bounds of one call for this model, in place of the real model's.")
    caps: Caps = Field(Caps(), description="The operator's bounds.")
    preference: Preference = Field(Preference(), description="What counts how much, where a request does not say.")
    prices: Worth | None = Field(None, description="What money and time are worth, instead of `preference`.")


class Rules(Section):
    """What may be used of the gateway; what is not given is not limited."""

    rpm: int | None = Field(None, ge=1, le=10**9, description="Requests per minute.")
    tpm: int | None = Field(None, ge=1, le=10**12, description="Tokens per minute, of prompt and answer together.")
    concurrency: int | None = Field(None, ge=1, le=10**6, description="Requests at once; a stream counts until its end.")


class Key(Section):
    """A caller. Only the SHA-256 digest of the key is stored."""

    name: str = Field(min_length=1, max_length=100, description="What logs and metrics call it.")
    sha256: str = Field(pattern=_SHA256, description="SHA-256 digest of the key, in hex.")
    scopes: list[Literal["inference", "admin", "metrics"]] = Field(["inference"], description="What the key opens.")
    tenant: str = Field("default", min_length=1, max_length=100, description="Whose key it is.")
    models: list[str] = Field(["*"], description="Models that it may ask for: names or patterns with * and ?.")
    priority: Literal["interactive", "batch"] = Field("interactive", description="Which of two calls that wait goes first.")
    expires: str | None = Field(
        None, description="When it ends: a time with its zone, 2026-12-31T12:00:00Z, or a day, at whose end in UTC. Default: never."
    )
    tags: dict[str, str] = Field({}, max_length=16, description="Tags that each of its decisions gets.")
    limits: Rules = Field(Rules(), description="What it may use. Default: as `limits.key`.")

    @field_validator("expires")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        if text is not None:
            moment(text)
        return text

    @property
    def expires_at(self) -> float | None:
        """When it ends, seconds since 1970."""
        return None if self.expires is None else moment(self.expires)


def moment(text: str) -> float:
    """Seconds since 1970 of a time with its zone, or of a day's end in UTC. Raises ValueError."""
    try:
        if len(text) == len("2026-12-31"):
            day = date.fromisoformat(text)
            return (datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)).timestamp()
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time.timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError("should be a time with its zone (2026-12-31T12:00:00Z) or a day (2026-12-31)")


class Limits(Section):
    """What callers may use. Without it, nobody is ever refused for asking too much."""

    key: Rules = Field(Rules(), description="Each key, where its own `limits` do not say otherwise.")
    tenants: dict[str, Rules] = Field({}, description="Tenant -> what all its keys may use together.")
    failed_keys_per_minute: int = Field(
        60, ge=0, le=1_000_000, description="Wrong keys from one address, after which more of them get a 429; 0: any number."
    )


class Feedback(Section):
    """What callers say of answers."""

    per_key_per_hour: int | None = Field(
        None, ge=1, le=10**9, description="How much feedback of one key counts; more of it gets a 429. Default: any amount."
    )


class Believed(Section):
    """What a source's word is worth: the probability that an answer was a success."""

    at_0: float = Field(0.0, ge=0, le=1, description="Where it says 0.")
    at_1: float = Field(1.0, ge=0, le=1, description="Where it says 1.")


class Verifier(Checker):
    """A checker of answers that were given, after the request."""

    at_once: int = Field(4, ge=1, le=256, description="Answers that it looks at at the same time.")
    share: float = Field(1.0, gt=0, le=1, description="Of the decisions, so many are sent; by a hash of their ids.")


class Judge(Section):
    """A model that reads answers of others, and grades them."""

    model: Name = Field(description="A real model. It does not grade its own answers.")
    share: float = Field(0.0, ge=0, le=1, description="Of the decisions, so many are graded; by a hash of their ids.")
    max_tokens: int = Field(512, ge=8, le=100_000, description="Most tokens of a verdict, with the reasons before it.")
    timeout_s: float = Field(120.0, gt=0, le=3_600, description="How long one may take, in seconds.")
    at_once: int = Field(1, ge=1, le=64, description="Answers that are graded at the same time.")
    criteria: str | None = Field(None, min_length=1, max_length=4_000, description="What a good answer is, in words, in place of ours.")


class Learning(Section):
    """How policies learn from outcomes."""

    encoder_ms: float = Field(
        150.0, gt=0, le=10_000, description="How long a request waits for slow features; then its baseline plan serves, in milliseconds."
    )
    every_s: float = Field(0.2, gt=0, le=60, description="How often outcomes are looked for, in seconds.")
    signals: list[Literal["schema", "tools", "truncation", "refusal"]] = Field(
        [], description="What an answer's form tells of its quality, where no caller does."
    )
    max_answer_bytes: int = Field(
        1_048_576, ge=1_024, le=16_777_216, description="A longer answer is neither looked at nor sent to a judge; it is held meanwhile."
    )
    calibration: dict[Name, Believed] = Field(
        {}, description="Source -> what its word is worth until callers have judged enough of the same decisions."
    )
    verifier: Verifier | None = Field(None, description="A service that judges answers. Default: none.")
    judge: Judge | None = Field(None, description="A model that judges answers. Default: none.")


class Contents(Section):
    """Prompts and answers, which are kept only on demand."""

    enabled: bool = Field(False, description="Whether they are kept, in a table of their own.")
    max_bytes: int = Field(65_536, ge=1, le=16_777_216, description="Most that is kept of one prompt, and of one answer.")
    keep_days: float = Field(30.0, gt=0, le=36_500, description="How long, in days; not longer than the decision.")


class Storage(Section):
    """Where decisions are kept."""

    url: str = Field(
        "", repr=False, description="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE (extra `postgres`). Empty: nowhere."
    )
    keep_days: float | None = Field(None, gt=0, le=36_500, description="How long decisions are kept, in days. Default: for ever.")
    contents: Contents = Field(Contents(), description="Prompts and answers, which are kept only on demand.")
    keys_grace_s: float = Field(
        3_600.0, ge=0, le=10**8, description="How long keys of the database go on when it cannot be asked; those of this file always do."
    )


class Metrics(Section):
    """GET /metrics: Prometheus' text format."""

    enabled: bool = Field(True, description="Whether requests are counted, and the numbers shown.")
    public: bool = Field(False, description="Whether anybody may read them. Default: keys with the scope `metrics` or `admin`.")


class Logs(Section):
    """What goes to stderr."""

    format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object per line.")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least that is told; `--log-level` wins.")
    access: bool = Field(False, description="One line, of level info, for each request that has ended.")


class Telemetry(Section):
    """What can be seen of the gateway."""

    metrics: Metrics = Field(Metrics(), description="Numbers for Prometheus.")
    logs: Logs = Field(Logs(), description="What goes to stderr.")


class Config(Section):
    """A whole configuration file."""

    version: Literal[1] = Field(description="Version of this format.")
    server: Server = Field(Server(), description="Where the gateway listens and what it accepts.")
    backends: dict[Name, Backend] = Field(min_length=1, description="The engines, by name.")
    models: dict[Name, Model] = Field({}, description="What is known of real models, by public name.")
    embeddings: dict[Name, Embeddings] = Field({}, description="Embeddings endpoints that policies may read features from, by name.")
    policies: dict[Name, Policy] = Field({}, description="Routing policies, by name.")
    strategies: dict[Name, StrategySpec] = Field({}, description="Ways to decode that plans name.")
    virtual_models: dict[Name, VirtualModel] = Field({}, description="Names that a policy answers for.")
    keys: list[Key] = Field([], description="Who may call.")
    limits: Limits = Field(Limits(), description="What callers may use.")
    feedback: Feedback = Field(Feedback(), description="What callers say of answers.")
    storage: Storage = Field(Storage(), description="Where decisions are kept.")
    learning: Learning = Field(Learning(), description="How policies learn from outcomes.")
    telemetry: Telemetry = Field(Telemetry(), description="What can be seen of the gateway.")
