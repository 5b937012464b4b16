"""Why a setting of LiteLLM is not taken over: what is told of those that no other module maps.

    of(section, key) -> (kind, message)

A table per section; a key that ends in `*` stands for all that begin like it. What no table knows is lost, and said so.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, Literal

from gateway.importing.report import Kind

Section = Literal["", "router_settings", "litellm_settings", "general_settings", "litellm_params", "model_info"]
Reason = tuple[Kind, str]

_RECORD = "no such integrations: every request leaves a row in the database of `storage`, without a word of prompt or answer"
_SHARED_STATE = "counts are kept in the gateway itself; nothing is shared through Redis"
_RELAY = "a relay adds nothing to requests: clients send it themselves"
_RELAY_HEADERS = "a relay adds no headers of its own; `forward_headers` of a backend names headers of the client's that go on"
_RATES = "no limit: at most a replica's share of the load, where it has no `weight`; a 429 is heeded, and `queue` bounds what runs at once"
_NO_SPEND = "no budgets: cost is told with each answer and kept with each decision, but nobody is stopped by it"
_OTHER_TASKS = "not a task of Trilemma's, which relays inference"
_NO_CACHE = "answers are not cached; calls that begin alike stay with the replica whose engine has their prefix cached"
_DEBUG = "only concerns LiteLLM's own log"
_UI = "concerns LiteLLM's pages for people, of which there are none here"
_DATABASE = "concerns LiteLLM's database; keys stand in this file"
_PROBES = "engines are probed without being asked to"
_TAGS = "no routing by tags: give such deployments a model name of their own, and keys the names that they may use"
_ACCOUNT = "belongs to a provider that is not reached by OpenAI's API and a bearer key"
_BALANCE = "replicas of a model always share by load and weight"

_TABLES: Final[Mapping[Section, Mapping[str, Reason]]] = MappingProxyType(
    {
        "": {
            "environment_variables": ("todo", "set them where Trilemma is started: the file sets none; their values are not copied"),
            "callback_settings": ("lost", _RECORD),
            "guardrails": ("lost", "nothing looks into prompts or answers"),
            "mcp_*": ("lost", _OTHER_TASKS),
            "search_tools": ("lost", _OTHER_TASKS),
            "vector_store_registry": ("lost", _OTHER_TASKS),
            "prompts": ("lost", _OTHER_TASKS),
            "files_settings": ("lost", "files, batches and fine-tuning are not relayed"),
            "finetune_settings": ("lost", "files, batches and fine-tuning are not relayed"),
            "assistant_settings": ("lost", "assistants are not relayed"),
            "worker_registry": ("unneeded", _UI),
        },
        "router_settings": {
            "redis_*": ("unneeded", _SHARED_STATE),
            "cache_kwargs": ("unneeded", _SHARED_STATE),
            "cache_responses": ("lost", _NO_CACHE),
            "caching_groups": ("lost", _NO_CACHE),
            "client_ttl": ("unneeded", "connections to backends are kept as long as they work"),
            "routing_strategy_args": ("lost", _BALANCE),
            "routing_groups": ("lost", _BALANCE),
            "retry_after": ("lost", "another replica is tried at once; only an engine's own Retry-After is waited for (`retry_wait_s`)"),
            "retry_policy": ("lost", "one number of `attempts`, whatever the fault; what a caller got wrong is never tried again"),
            "model_group_retry_policy": (
                "lost",
                "one number of `attempts`, whatever the fault; what a caller got wrong is never tried again",
            ),
            "allowed_fails_policy": ("lost", "one number (`breaker.trip_after`) for all faults; what a caller got wrong never counts"),
            "disable_cooldowns": (
                "lost",
                "a backend that fails is always left alone for a moment; when all are, the soonest is tried all the same",
            ),
            "enable_pre_call_checks": (
                "changed",
                "prompts are not measured before the call: one too long goes to the first fallback that holds more",
            ),
            "content_policy_fallbacks": ("lost", "an engine's refusal goes to the caller as it is"),
            "max_fallbacks": ("unneeded", "`attempts` bounds all calls of a request, fallbacks included"),
            "enable_tag_filtering": ("lost", _TAGS),
            "tag_*": ("lost", _TAGS),
            "default_priority": ("lost", "a key's `priority` says who goes first when calls wait"),
            "polling_interval": ("unneeded", "nothing is polled: waiting calls are woken"),
            "default_litellm_params": ("lost", _RELAY),
            "set_verbose": ("unneeded", _DEBUG),
            "debug_level": ("unneeded", _DEBUG),
            "provider_budget_config": ("lost", _NO_SPEND),
            "alerting_config": ("lost", _RECORD),
            "optional_pre_call_checks": ("changed", "sessions and prompts that begin alike stay with a replica by themselves"),
            "deployment_affinity_ttl_seconds": ("unneeded", "sessions stay with a replica by themselves"),
            "ignore_invalid_deployments": ("unneeded", "a backend that does not answer is left alone"),
            "enable_weighted_failover": ("unneeded", "a failed call always goes to another replica first"),
            "*health_check*": ("unneeded", _PROBES),
        },
        "litellm_settings": {
            "*callback*": ("lost", _RECORD),
            "langfuse_*": ("lost", _RECORD),
            "*prometheus*": ("lost", _RECORD),
            "turn_off_message_logging": ("unneeded", "prompts and answers are not logged"),
            "redact_*": ("unneeded", "secrets, prompts and answers are not logged"),
            "drop_params": ("lost", "requests go on as they came: an engine that does not know a parameter says so to the caller"),
            "modify_params": ("lost", "requests go on as they came"),
            "additional_drop_params": ("lost", "requests go on as they came"),
            "cache": ("lost", _NO_CACHE),
            "cache_params": ("lost", _NO_CACHE),
            "enable_redis_auth_cache": ("unneeded", "keys are looked up in memory"),
            "set_verbose": ("unneeded", _DEBUG),
            "json_logs": ("unneeded", _DEBUG),
            "suppress_debug_info": ("unneeded", _DEBUG),
            "request_correlation_in_logs": ("unneeded", _DEBUG),
            "telemetry": ("unneeded", "nothing is sent anywhere"),
            "retry_after": ("lost", "another replica is tried at once; only an engine's own Retry-After is waited for (`retry_wait_s`)"),
            "cooldown_time": ("lost", "counts only under `router_settings`, for LiteLLM too"),
            "content_policy_fallbacks": ("lost", "an engine's refusal goes to the caller as it is"),
            "max_fallbacks": ("unneeded", "`attempts` bounds all calls of a request, fallbacks included"),
            "num_retries_per_request": ("lost", "`attempts` of a model bounds all calls of a request"),
            "*budget*": ("lost", _NO_SPEND),
            "cost_*": ("lost", "prices are what a model's `price` says"),
            "default_team_settings": ("lost", "there are no teams but a key's `tenant`"),
            "default_team_params": ("lost", "there are no teams but a key's `tenant`"),
            "default_internal_user_params": ("lost", "there are no users, only keys"),
            "key_generation_settings": ("lost", "keys are not made by the gateway: `trilemma keys` makes one"),
            "upperbound_key_generate_params": ("lost", "keys are not made by the gateway: `trilemma keys` makes one"),
            "default_key_generate_params": ("lost", "keys are not made by the gateway: `trilemma keys` makes one"),
            "custom_provider_map": ("lost", "no code of others runs in the gateway"),
            "mcp_*": ("lost", _OTHER_TASKS),
            "ssl_verify": ("lost", "certificates are always verified, against the system's authorities"),
            "ssl_certificate": ("lost", "no client certificates"),
            "force_ipv4": ("lost", "the system's resolver decides"),
            "disable_*cost_tracking*": ("unneeded", "users of a key are not told apart"),
            "*api_key": ("todo", "is a key for a provider: it is not copied; give it to the backends that need it"),
            "api_base": ("lost", "every backend has its own `url`"),
        },
        "general_settings": {
            "database_url": ("unneeded", "keys stand in this file; `storage.url` says where decisions are kept"),
            "database_*": ("unneeded", _DATABASE),
            "*prisma*": ("unneeded", _DATABASE),
            "proxy_b*": ("unneeded", _DATABASE),
            "allow_requests_on_db_unavailable": ("unneeded", "requests never wait for a database"),
            "store_model_in_db": (
                "todo",
                "models that were added by LiteLLM's API or pages are in its database, not in its file: add them by hand",
            ),
            "supported_db_objects": ("unneeded", _DATABASE),
            "store_prompts_in_spend_logs": ("lost", "prompts and answers are not stored"),
            "*spend_log*": ("unneeded", _DATABASE),
            "disable_spend_*": ("unneeded", _DATABASE),
            "*alert*": ("lost", "sends no alerts: watch /health and /ready, and the rows of `storage`"),
            "spend_report_frequency": ("lost", "sends no reports: sum up the rows of `storage`"),
            "background_health_checks": ("unneeded", _PROBES),
            "*health_check*": ("unneeded", _PROBES),
            "model_list_healthy_only": ("lost", "/v1/models lists what is configured"),
            "max_parallel_requests": (
                "todo",
                "LiteLLM refuses nothing by it: if each key is to have that bound, write `limits: {key: {concurrency: N}}`",
            ),
            "global_max_parallel_requests": (
                "lost",
                "no bound over all callers: `limits` bound a key or a tenant, a model's `queue.slots` what runs of it at once",
            ),
            "token_rate_limit_type": ("changed", "`tpm` counts tokens of prompt and answer together, whatever it says"),
            "max_response_size_mb": ("lost", "answers are passed on as they come, whatever their size"),
            "custom_auth*": ("lost", "callers are known by their keys, and nothing else"),
            "enable_jwt_auth": ("lost", "callers are known by their keys, and nothing else"),
            "litellm_jwtauth": ("lost", "callers are known by their keys, and nothing else"),
            "*oauth2*": ("lost", "callers are known by their keys, and nothing else"),
            "*sso*": ("unneeded", _UI),
            "ui_*": ("unneeded", _UI),
            "disable_master_key_return": ("unneeded", _UI),
            "disable_adding_master_key_hash_to_db": ("unneeded", _DATABASE),
            "litellm_key_header_name": ("lost", "a key stands in `Authorization: Bearer KEY`"),
            "forward_client_headers_to_llm_api": ("lost", "name the headers that go on in a backend's `forward_headers`"),
            "forward_openai_org_id": ("lost", "name `OpenAI-Organization` in a backend's `forward_headers`"),
            "pass_through_endpoints": ("lost", "only OpenAI's paths under /v1 are relayed, to the backend of the request's model"),
            "*_routes": ("lost", "a key's `scopes` say what it opens; /health and /ready are open to all"),
            "allowed_ips": ("lost", "leave that to the network in front"),
            "use_x_forwarded_for": ("unneeded", "addresses of callers decide nothing"),
            "enforce_user_param": ("lost", "requests go on as they came"),
            "completion_model": ("lost", "every request names its model"),
            "embedding_model": ("lost", "every request names its model"),
            "moderation_model": ("lost", "every request names its model"),
            "image_generation_model": ("lost", "every request names its model"),
            "infer_model_from_keys": ("lost", "models are what the file names"),
            "key_management_s*": ("todo", "secrets come from variables or mounted files (NAME_FILE, `key_file`): have them put there"),
            "use_azure_key_vault": ("todo", "secrets come from variables or mounted files (NAME_FILE, `key_file`): have them put there"),
            "use_google_kms": ("todo", "secrets come from variables or mounted files (NAME_FILE, `key_file`): have them put there"),
            "use_redis_transaction_buffer": ("unneeded", _SHARED_STATE),
            "coordination_redis": ("unneeded", _SHARED_STATE),
            "user_api_key_cache_*": ("unneeded", "keys are looked up in memory"),
            "litellm_license": ("unneeded", "there is no licence to give"),
            "cancel_on_disconnect": ("unneeded", "a caller that leaves always frees the engine at once"),
            "enforce_fallback_model_access": ("lost", "a fallback answers for the model that was asked for, whatever else the key may use"),
            "salt_key": ("unneeded", _DATABASE),
        },
        "litellm_params": {
            "rpm": ("lost", _RATES),
            "tpm": ("lost", _RATES),
            "itpm": ("lost", _RATES),
            "otpm": ("lost", _RATES),
            "default_api_key_*": ("lost", "no limits per model of a key: `limits` bound all that a key or a tenant asks for"),
            "order": ("lost", "all replicas share the load: give a spare one another model name and make that a fallback"),
            "tags": ("lost", _TAGS),
            "tag_regex": ("lost", _TAGS),
            "*budget*": ("lost", _NO_SPEND),
            "drop_params": ("lost", "requests go on as they came: an engine that does not know a parameter says so to the caller"),
            "additional_drop_params": ("lost", "requests go on as they came"),
            "allowed_openai_params": ("unneeded", "requests go on as they came"),
            "extra_headers": ("lost", _RELAY_HEADERS),
            "headers": ("lost", _RELAY_HEADERS),
            "organization": ("lost", _RELAY_HEADERS),
            "extra_body": ("lost", _RELAY),
            "mock_*": ("lost", "`trilemma mock-backend` is a backend that answers whatever a test wants"),
            "*_cost_per_*": ("lost", "prices are for tokens of input, cached input and output"),
            "cache_creation_*": ("lost", "prices are for tokens of input, cached input and output"),
            "cache_read_*": ("lost", "prices are for tokens of input, cached input and output"),
            "tiered_pricing": ("lost", "a model has one price per million tokens"),
            "keepalive_seconds": ("lost", "`server.heartbeat_s` holds for all models"),
            "kubernetes_pod_discovery": ("todo", "write `discover: {kubernetes: {service: NAME}}` in the place of `url`"),
            "region_name": ("unneeded", "the `url` says where"),
            "ssl_verify": ("lost", "certificates are always verified, against the system's authorities"),
            "api_version": ("lost", _ACCOUNT),
            "aws_*": ("lost", _ACCOUNT),
            "vertex_*": ("lost", _ACCOUNT),
            "azure_*": ("lost", _ACCOUNT),
            "use_in_pass_through": ("lost", "only OpenAI's paths under /v1 are relayed, to the backend of the request's model"),
            "configurable_clientside_auth_params": ("lost", "callers choose no addresses and no keys of backends"),
            "fallbacks": ("lost", "belongs under `router_settings`"),
            "supports_system_message": ("lost", _RELAY),
            "merge_reasoning_content_in_choices": ("lost", "answers come back as the engine gave them"),
            "model_info": ("lost", "belongs beside `litellm_params`"),
            "*": ("lost", _RELAY),
        },
        "model_info": {
            "id": ("unneeded", "backends have names"),
            "db_model": ("unneeded", _DATABASE),
            "base_model": ("unneeded", "prices and context are what the file says"),
            "mode": ("unneeded", "the path that a client asks says what it wants"),
            "version": ("unneeded", "a note"),
            "description": ("unneeded", "a note"),
            "litellm_provider": ("unneeded", "the `url` says where"),
            "max_output_tokens": ("lost", "only `context` is known of a model: prompt and answer together"),
            "output_vector_size": ("unneeded", "a note"),
            "supported_openai_params": ("unneeded", "requests go on as they came"),
            "supported_environments": ("lost", "one file for each environment"),
            "supports_*": ("unneeded", "`capabilities` has no such word"),
            "*health_check*": ("unneeded", _PROBES),
            "custom_tokenizer": ("unneeded", "tokens are counted by the engines"),
            "tier": ("unneeded", "a note"),
            "*_cost_*": ("lost", "prices are for tokens of input, cached input and output"),
            "cost_per_*": ("lost", "prices are for tokens of input, cached input and output"),
            "*": ("unneeded", "a note"),
        },
    }
)

_UNKNOWN: Final[Reason] = ("lost", "there is no such setting")


def of(section: Section, key: str) -> Reason:
    """What is told of a setting that is not mapped."""
    own = _TABLES[section]
    if key in own:
        return own[key]
    return next((reason for pattern, reason in own.items() if fnmatchcase(key, pattern)), _UNKNOWN)
