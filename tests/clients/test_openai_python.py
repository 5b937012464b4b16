"""The official Python SDK over the gateway over llama.cpp: what a user gets, whatever the model says."""

from __future__ import annotations

import math
from typing import Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from pydantic import BaseModel

from tests.support.engine import STRONG, WEAK, Started

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of Japan?"}]
# Greedy and without the engine's prompt cache: asked twice, the same short text comes twice.
SAME: dict[str, Any] = {"model": STRONG, "messages": MESSAGES, "max_tokens": 40, "temperature": 0, "extra_body": {"cache_prompt": False}}


class Verdict(BaseModel):
    """What a structured answer must look like."""

    colour: Literal["red", "green", "blue"]
    certain: bool


def content(answer: ChatCompletion) -> str:
    """The text of the only choice."""
    (choice,) = answer.choices
    assert choice.message.content is not None
    return choice.message.content


def test_a_chat(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=STRONG, messages=MESSAGES, max_tokens=5)
    assert (answer.object, answer.model) == ("chat.completion", STRONG)
    (choice,) = answer.choices
    assert (choice.index, choice.message.role, choice.finish_reason) == (0, "assistant", "length")
    assert choice.message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens > 6  # words
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_a_stop_word_ends_it(sdk: openai.OpenAI) -> None:
    whole = content(sdk.chat.completions.create(**SAME))
    word = whole.split()[1]
    answer = sdk.chat.completions.create(**SAME, stop=[word])
    assert answer.choices[0].finish_reason == "stop"
    assert content(answer) == whole[: whole.index(word)]


def test_the_weaker_model_and_the_virtual_one(sdk: openai.OpenAI) -> None:
    assert sdk.chat.completions.create(model=WEAK, messages=MESSAGES, max_tokens=2).model == WEAK
    raw = sdk.chat.completions.with_raw_response.create(model="auto", messages=MESSAGES, max_tokens=2)
    assert raw.headers["x-trilemma-policy"] == "learn"
    assert raw.headers["x-trilemma-model"] in (STRONG, WEAK)
    assert raw.parse().model == raw.headers["x-trilemma-model"]


def test_the_policy_of_the_virtual_model_uses_both(sdk: openai.OpenAI) -> None:
    # Even weights: 40 draws miss one of the two once in 2**39 runs.
    served = {sdk.chat.completions.create(model="auto", messages=MESSAGES, max_tokens=1).model for _ in range(40)}
    assert served == {STRONG, WEAK}


def test_a_stream_says_what_the_whole_answer_says(sdk: openai.OpenAI) -> None:
    whole = sdk.chat.completions.create(**SAME)
    chunks = list(sdk.chat.completions.create(**SAME, stream=True))
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert len(choices) == len(chunks)  # the usage chunk that was not asked for is not there
    assert all(chunk.usage is None for chunk in chunks)
    assert [choice.delta.role for choice in choices if choice.delta.role] == ["assistant"]
    assert "".join(choice.delta.content or "" for choice in choices) == content(whole)
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert choices[-1].finish_reason == whole.choices[0].finish_reason


def test_a_stream_with_usage_ends_with_it(sdk: openai.OpenAI) -> None:
    whole = sdk.chat.completions.create(**SAME)
    *chunks, last = sdk.chat.completions.create(**SAME, stream=True, stream_options={"include_usage": True})
    assert (last.choices, last.usage) == ([], whole.usage)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_the_stream_helper(sdk: openai.OpenAI) -> None:
    whole = sdk.chat.completions.create(**SAME)
    with sdk.chat.completions.stream(**SAME, stream_options={"include_usage": True}) as events:
        deltas = [event.delta for event in events if event.type == "content.delta"]
        answer = events.get_final_completion()
    assert len(deltas) > 1
    assert "".join(deltas) == answer.choices[0].message.content == content(whole)
    assert (answer.choices[0].message.role, answer.choices[0].finish_reason) == ("assistant", "stop")
    assert answer.usage == whole.usage


def test_two_choices(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=STRONG, messages=MESSAGES, max_tokens=4, n=2)
    assert [(choice.index, choice.message.role, choice.finish_reason) for choice in answer.choices] == [
        (0, "assistant", "length"),
        (1, "assistant", "length"),
    ]
    assert all(choice.message.content for choice in answer.choices)


def test_two_choices_streamed(sdk: openai.OpenAI) -> None:
    chunks = list(sdk.chat.completions.create(model=STRONG, messages=MESSAGES, max_tokens=4, n=2, stream=True))
    for index in (0, 1):
        choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert choices[0].delta.role == "assistant"
        assert [choice.delta.role for choice in choices[1:]] == [None] * (len(choices) - 1)
        assert "".join(choice.delta.content or "" for choice in choices)
        assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
        assert choices[-1].finish_reason == "length"
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(sdk: openai.OpenAI, stream: bool) -> None:
    asked = SAME | {"logprobs": True, "top_logprobs": 2}
    if stream:
        with sdk.chat.completions.stream(**asked) as events:
            answer: Any = events.get_final_completion()
    else:
        answer = sdk.chat.completions.create(**asked)
    (choice,) = answer.choices
    scored = choice.logprobs.content
    assert "".join(entry.token for entry in scored) == choice.message.content
    assert b"".join(bytes(entry.bytes) for entry in scored).decode() == choice.message.content
    for entry in scored:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 2
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)  # greedy


def test_a_schema_is_kept(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.parse(model=STRONG, messages=MESSAGES, max_tokens=60, temperature=0, response_format=Verdict)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Verdict)


def test_a_schema_is_kept_in_a_stream(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model=STRONG, messages=MESSAGES, max_tokens=60, temperature=0, response_format=Verdict) as events:
        (choice,) = events.get_final_completion().choices
    assert isinstance(choice.message.parsed, Verdict)


def test_a_completion_whole_and_streamed(sdk: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": STRONG, "prompt": "One, two, three,", "max_tokens": 6, "temperature": 0}
    asked["extra_body"] = {"cache_prompt": False}
    whole = sdk.completions.create(**asked)
    assert (whole.object, whole.model, whole.choices[0].finish_reason) == ("text_completion", STRONG, "length")
    assert whole.choices[0].text
    assert whole.usage is not None
    assert (whole.usage.completion_tokens, whole.usage.total_tokens) == (6, whole.usage.prompt_tokens + 6)
    chunks = list(sdk.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]


def test_embeddings_as_numbers_and_packed(sdk: openai.OpenAI) -> None:
    texts = ["a cat", "a kitten", "a bill of exchange"]
    floats = sdk.embeddings.create(model=STRONG, input=texts, encoding_format="float")
    assert (floats.object, floats.model, [item.index for item in floats.data]) == ("list", STRONG, [0, 1, 2])
    assert floats.usage.total_tokens == floats.usage.prompt_tokens > len(texts)
    vectors = [item.embedding for item in floats.data]
    assert [len(vector) for vector in vectors] == [576] * 3  # the width of SmolLM2-135M
    assert all(math.isclose(math.fsum(x * x for x in vector), 1, abs_tol=1e-4) for vector in vectors)
    packed = sdk.embeddings.create(model=STRONG, input=texts)  # the SDK asks for base64 when nothing else is wished
    for item, vector in zip(packed.data, vectors, strict=True):
        assert item.embedding == pytest.approx(vector, abs=1e-3)


def test_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == [STRONG, WEAK, "auto"]
    model = sdk.models.retrieve(STRONG)
    assert (model.id, model.object) == (STRONG, "model")
    assert model.model_extra is not None
    assert model.model_extra["max_model_len"] == 1024
    with pytest.raises(openai.NotFoundError) as raised:
        sdk.models.retrieve("nothing")
    assert raised.value.code == "model_not_found"


def test_the_headers_of_an_answer(sdk: openai.OpenAI) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model=STRONG, messages=MESSAGES, max_tokens=3)
    answer = raw.parse()
    assert answer.usage is not None
    assert raw.headers["content-type"] == "application/json; charset=utf-8"
    assert raw.headers["x-request-id"] == raw.request_id == answer._request_id
    assert raw.headers["x-trilemma-model"] == STRONG
    assert (raw.headers["x-trilemma-policy"], raw.headers["x-trilemma-strategy"]) == ("none", "single")
    assert (raw.headers["x-trilemma-attempts"], raw.headers["x-trilemma-candidates"]) == ("1", "1")
    # The prices of `trilemma up`: USD 0.02 and 0.06 per million tokens.
    cost = (answer.usage.prompt_tokens * 0.02 + answer.usage.completion_tokens * 0.06) / 1e6
    assert float(raw.headers["x-trilemma-cost"]) == pytest.approx(cost)
    again = sdk.chat.completions.with_raw_response.create(model=STRONG, messages=MESSAGES, max_tokens=3)
    assert raw.headers["x-trilemma-decision-id"] != again.headers["x-trilemma-decision-id"]


def test_settings_of_the_gateway_are_not_for_the_engine(sdk: openai.OpenAI) -> None:
    settings = {"trilemma": {"session_id": "s-1", "tags": {"team": "red"}, "deadline_ms": 60_000}}
    assert sdk.chat.completions.create(model="auto", messages=MESSAGES, max_tokens=1, extra_body=settings).choices


def test_a_wrong_key(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as raised:
        sdk.with_options(api_key="sk-wrong").chat.completions.create(model=STRONG, messages=MESSAGES)
    assert (raised.value.status_code, raised.value.code) == (401, "invalid_api_key")
    assert raised.value.request_id is not None


def test_an_unknown_model(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        sdk.chat.completions.create(model="gpt-nothing", messages=MESSAGES)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


def test_bad_input_found_by_the_gateway(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.chat.completions.create(model=STRONG, messages=MESSAGES, extra_body={"trilemma": {"polcy": "x"}})
    assert (raised.value.code, raised.value.param) == ("caller_unknown_parameter", "trilemma.polcy")
    with pytest.raises(openai.BadRequestError) as raised:
        sdk.chat.completions.create(model=STRONG, messages=MESSAGES, n=10_000)
    assert (raised.value.code, raised.value.param) == ("caller_invalid_value", "n")


def test_bad_input_found_by_the_engine_is_told_in_its_words(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as raised:
        sdk.chat.completions.create(model=STRONG, messages=[{"role": "user", "content": "hello " * 1500}])
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["type"] == "exceed_context_size_error"
    with pytest.raises(openai.BadRequestError, match="between 1 <= value <= 8"):
        sdk.chat.completions.create(model=STRONG, messages=MESSAGES, max_tokens=1, n=9)  # the engine has 8 slots


def test_a_deadline_passes_and_the_engine_is_free(sdk: openai.OpenAI, stack: Started) -> None:
    engine = stack.engine()
    before = engine.metric("tokens_predicted_total")
    endless = {"ignore_eos": True, "trilemma": {"deadline_ms": 400}}
    with pytest.raises(openai.InternalServerError) as raised:
        sdk.chat.completions.create(model=STRONG, messages=MESSAGES, max_tokens=900, extra_body=endless)
    assert (raised.value.status_code, raised.value.code) == (504, "gateway_deadline")
    assert raised.value.response.headers["x-should-retry"] == "false"
    engine.until_idle()
    assert engine.metric("tokens_predicted_total") - before < 900
    assert stack.backends()["strong"]["in_flight"] == 0


def test_the_client_s_own_time_out_frees_the_engine(sdk: openai.OpenAI, stack: Started) -> None:
    engine = stack.engine()
    before = engine.metric("tokens_predicted_total")
    patient = {"x-stainless-read-timeout": "600"}  # so that the gateway does not give up at the same moment
    with pytest.raises(openai.APITimeoutError):
        sdk.with_options(timeout=0.4).chat.completions.create(
            model=STRONG, messages=MESSAGES, max_tokens=900, extra_body={"ignore_eos": True}, extra_headers=patient
        )
    engine.until_idle()
    assert engine.metric("tokens_predicted_total") - before < 900
    assert stack.backends()["strong"]["in_flight"] == 0
