"""What spans and their attributes are called: OpenTelemetry's semantic conventions, generative AI included, as of version 1.41.0.

The conventions of generative AI are not stable yet. A later version changes this module, `SCHEMA` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SCHEMA: Final = "https://opentelemetry.io/schemas/1.41.0"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
ERROR: Final = "error.type"

REQUEST_ID: Final = "trilemma.request_id"
DECISION_ID: Final = "trilemma.decision_id"
POLICY: Final = "trilemma.policy"
PLAN: Final = "trilemma.plan"
STRATEGY: Final = "trilemma.strategy"
PROPENSITY: Final = "trilemma.propensity"
ATTEMPTS: Final = "trilemma.attempts"
COST: Final = "trilemma.cost_usd"
CONFIG_HASH: Final = "trilemma.config_hash"
BACKEND: Final = "trilemma.backend"
PURPOSE: Final = "trilemma.purpose"

OPENAI: Final = "openai"
"""The provider, by the conventions' word the format that is spoken: OpenAI's, whatever engine speaks it."""

OPERATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/v1/chat/completions": "chat",
        "/v1/responses": "chat",
        "/v1/messages": "chat",
        "/v1/completions": "text_completion",
        "/v1/embeddings": "embeddings",
    }
)
METHODS: Final = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"))
"""Any other is `_OTHER`."""
