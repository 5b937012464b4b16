"""LangChain's ChatOpenAI and OpenAIEmbeddings, given only a base URL, a key and a model."""

from __future__ import annotations

from typing import Any, Literal

import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr

from tests.support.engine import STRONG, WEAK, Started

QUESTION = [SystemMessage("You are brief."), HumanMessage("What is the capital of Japan?")]


class Verdict(BaseModel):
    """What a structured answer must look like."""

    colour: Literal["red", "green", "blue"]
    certain: bool


def chat(stack: Started, **settings: Any) -> ChatOpenAI:
    """A model that is greedy and does not retry; settings replace or add."""
    settings = {"model": STRONG, "temperature": 0, "max_completion_tokens": 30, "extra_body": {"cache_prompt": False}} | settings
    return ChatOpenAI(base_url=f"{stack.url}/v1", api_key=SecretStr(stack.key), max_retries=0, timeout=120, **settings)


def usage_adds_up(message: AIMessage) -> bool:
    """Whether tokens in and out are told, and sum to the total."""
    usage = message.usage_metadata
    assert usage is not None
    return (
        usage["input_tokens"] > 0 and usage["output_tokens"] > 0 and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    )


def test_invoke(stack: Started) -> None:
    message = chat(stack).invoke(QUESTION)
    assert isinstance(message, AIMessage)
    assert message.text
    assert message.response_metadata["model_name"] == STRONG
    assert message.response_metadata["finish_reason"] in ("stop", "length")
    assert usage_adds_up(message)


def test_a_cut_answer(stack: Started) -> None:
    message = chat(stack, max_completion_tokens=3).invoke(QUESTION)
    assert message.response_metadata["finish_reason"] == "length"
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == 3


def test_a_stream_adds_up_to_the_message(stack: Started) -> None:
    model = chat(stack, stream_usage=True)
    chunks = list(model.stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    message = model.invoke(QUESTION)
    assert isinstance(whole, AIMessageChunk)
    assert len(chunks) > 2
    assert whole.text == message.text
    assert whole.usage_metadata == message.usage_metadata
    assert whole.response_metadata["finish_reason"] == message.response_metadata["finish_reason"]


async def test_an_async_stream_without_usage(stack: Started) -> None:
    model = chat(stack, stream_usage=False, max_completion_tokens=4)
    chunks = [chunk async for chunk in model.astream(QUESTION)]
    assert "".join(chunk.text for chunk in chunks)
    assert all(chunk.usage_metadata is None for chunk in chunks)


def test_structured_output(stack: Started) -> None:
    model = chat(stack, max_completion_tokens=60).with_structured_output(Verdict, method="json_schema", strict=True)
    assert isinstance(model.invoke("Which colour is grass?"), Verdict)


def test_a_batch_over_the_virtual_model(stack: Started) -> None:
    messages = chat(stack, model="auto", max_completion_tokens=2).batch(["One?", "Two?", "Three?"])
    assert {message.response_metadata["model_name"] for message in messages} <= {STRONG, WEAK}
    assert [message.usage_metadata is not None for message in messages] == [True] * 3


def test_embeddings(stack: Started) -> None:
    # Without the check, which would count tokens as another model does and send token ids.
    settings: dict[str, Any] = {"base_url": f"{stack.url}/v1", "api_key": stack.key, "model": STRONG, "max_retries": 0}
    model = OpenAIEmbeddings(**settings, check_embedding_ctx_length=False)
    vectors = model.embed_documents(["a cat", "a kitten"])
    assert [len(vector) for vector in vectors] == [576, 576]
    assert model.embed_query("a cat") == pytest.approx(vectors[0], abs=1e-3)


def test_an_unknown_model(stack: Started) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        chat(stack, model="nothing").invoke(QUESTION)
