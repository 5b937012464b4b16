"""The names are the conventions' own, as the library has them that ships with its SDK."""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes import error_attributes, http_attributes
from opentelemetry.semconv.schemas import Schemas

from gateway.telemetry import names


def test_names_of_the_conventions() -> None:
    assert Schemas.V1_41_0.value == names.SCHEMA
    assert names.OPERATION == gen_ai.GEN_AI_OPERATION_NAME
    assert names.PROVIDER == gen_ai.GEN_AI_PROVIDER_NAME
    assert names.REQUEST_MODEL == gen_ai.GEN_AI_REQUEST_MODEL
    assert names.RESPONSE_MODEL == gen_ai.GEN_AI_RESPONSE_MODEL
    assert names.INPUT_TOKENS == gen_ai.GEN_AI_USAGE_INPUT_TOKENS
    assert names.CACHED_TOKENS == gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS
    assert names.OUTPUT_TOKENS == gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS
    assert names.FIRST_CHUNK == gen_ai.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK
    assert names.METHOD == http_attributes.HTTP_REQUEST_METHOD
    assert names.ROUTE == http_attributes.HTTP_ROUTE
    assert names.STATUS == http_attributes.HTTP_RESPONSE_STATUS_CODE
    assert names.ERROR == error_attributes.ERROR_TYPE


def test_our_own_names_say_so() -> None:
    conventions = ("gen_ai.", "http.", "error.")
    texts = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and "." in value]
    own = [text for text in texts if not text.startswith(conventions) and text != names.SCHEMA]
    assert own and all(text.startswith("trilemma.") for text in own)


def test_every_route_s_operation_is_one_that_there_is() -> None:
    known = {each.value for each in gen_ai.GenAiOperationNameValues}
    assert set(names.OPERATIONS.values()) <= known
