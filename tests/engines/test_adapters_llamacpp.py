"""The llama.cpp adapter against the real server: started as the gateway starts it, asked as a strategy would."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.engines.base import Call, Json, run
from gateway.engines.registry import adapter
from gateway.engines.spec import EngineSpec, free_port
from gateway.engines.supervisor import Supervisor

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
REFERENCE = json.loads((SAMPLES / "reference_scores.json").read_text())
MODEL, SLOTS = "smollm2-135m", 4
ENGINE = adapter("llama.cpp")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    spec = EngineSpec(
        name="llama",
        kind="llama-server",
        port=free_port(),
        model="smollm2",
        served_names=(MODEL,),
        slots=SLOTS,
        context=1024,
    )
    async with Supervisor(tmp_path_factory.mktemp("state")) as supervisor:
        await supervisor.apply([spec])
        await supervisor.wait_ready(["llama"], timeout=60)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{spec.port}", timeout=60) as connected:
            yield connected


async def ask(client: httpx.AsyncClient, body: Json, expected: int = 200) -> Json:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    answer = await client.post(path, json={"model": MODEL, "temperature": 0, **body})
    assert answer.status_code == expected, answer.text
    parsed: Json = answer.json()
    return parsed


def sender(client: httpx.AsyncClient) -> Any:
    async def send(call: Call) -> Json:
        answer = await client.post(call.path, json=call.body)
        assert answer.status_code == 200, answer.text
        parsed: Json = answer.json()
        return parsed

    return send


@pytest.mark.parametrize("reference", REFERENCE, ids=lambda reference: repr(reference["text"][:20]))
async def test_scores_agree_with_a_float32_reference(client: httpx.AsyncClient, reference: Json) -> None:
    tokens = await run(ENGINE.tokenize(MODEL, reference["text"]), sender(client))
    assert tokens == reference["tokens"]

    scores = await run(ENGINE.score(MODEL, tokens), sender(client))

    assert scores[0] is None
    errors = [abs(got - right) for got, right in zip(scores[1:], reference["logprobs"][1:], strict=True) if got is not None]
    assert len(errors) == len(tokens) - 1
    # Nats. Weights of four bits and activations of eight cost this much; one token out of step costs several.
    assert max(errors) < 0.6
    assert math.fsum(errors) / len(errors) < 0.2


async def test_scoring_from_the_middle_agrees_with_scoring_all(client: httpx.AsyncClient) -> None:
    tokens = REFERENCE[0]["tokens"]
    whole = await run(ENGINE.score(MODEL, tokens), sender(client))
    tail = await run(ENGINE.score(MODEL, tokens, start=10), sender(client))
    assert tail[:10] == [None] * 10
    assert [score for score in tail[10:] if score is not None] == pytest.approx(whole[10:], abs=0.05)


QUESTION = {"messages": [{"role": "user", "content": "What is 7 + 5? Answer with one short sentence."}]}


async def test_continuing_in_two_steps_gives_what_one_step_gives(client: httpx.AsyncClient) -> None:
    whole = await ask(client, {**QUESTION, "max_tokens": 16})
    text = whole["choices"][0]["message"]["content"]
    prefix = text[: len(text) // 2]

    request = ENGINE.continue_final({**QUESTION, "max_tokens": 16}, prefix)
    answer = await ask(client, request)

    assert ENGINE.continued_text(request, answer["choices"][0]["message"]["content"]) == text[len(prefix) :]


@pytest.mark.parametrize("prefix", ["The sum of 7 and 5 is", "x = ", "Step 1:\n\n", ""])
async def test_a_stream_and_a_whole_answer_continue_alike(client: httpx.AsyncClient, prefix: str) -> None:
    request = ENGINE.continue_final({**QUESTION, "max_tokens": 6}, prefix)
    whole = await ask(client, request)
    streamed = await client.post("/v1/chat/completions", json={"model": MODEL, "temperature": 0, "stream": True, **request})
    events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
    joined = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)

    new = ENGINE.continued_text(request, whole["choices"][0]["message"]["content"])

    assert new
    assert ENGINE.continued_text(request, joined, streamed=True) == new


async def test_a_client_s_own_prefix_is_lengthened(client: httpx.AsyncClient) -> None:
    begun = {"messages": [*QUESTION["messages"], {"role": "assistant", "content": "The sum of 7"}], "max_tokens": 8}
    request = ENGINE.continue_final(begun, " and 5 is")
    answer = await ask(client, request)
    assert ENGINE.continued_text(request, answer["choices"][0]["message"]["content"]).startswith(" 12")


async def test_n_is_put_as_the_slots_allow(client: httpx.AsyncClient) -> None:
    body = {**QUESTION, "max_tokens": 4, "temperature": 0.8}
    await ask(client, {**body, "n": SLOTS + 1}, expected=400)

    counts = [len((await ask(client, {**body, "n": n}))["choices"]) for n in ENGINE.split_n(SLOTS + 1, SLOTS)]

    assert sum(counts) == SLOTS + 1


async def test_usage_of_several_choices_is_that_of_one(client: httpx.AsyncClient) -> None:
    answer = await ask(client, {**QUESTION, "max_tokens": 3, "n": 2, "ignore_eos": True})
    assert (answer["usage"]["completion_tokens"], len(answer["choices"])) == (3, 2)
    assert not ENGINE.capabilities.usage_counts_all_choices


async def test_the_tokens_of_a_chat_are_those_the_engine_counts(client: httpx.AsyncClient) -> None:
    for body in (QUESTION, ENGINE.continue_final(QUESTION, "The sum")):
        tokens = await run(ENGINE.tokenize(MODEL, body), sender(client))
        answer = await ask(client, {**body, "max_tokens": 1})
        assert len(tokens) == answer["usage"]["prompt_tokens"]


async def test_logprobs_of_chat_and_completions_are_read_alike(client: httpx.AsyncClient) -> None:
    chat = await ask(client, {**QUESTION, "max_tokens": 4, "logprobs": True, "top_logprobs": 2})
    tokens = await run(ENGINE.tokenize(MODEL, QUESTION), sender(client))
    plain = await ask(client, {"prompt": tokens, "max_tokens": 4, "logprobs": 2})

    of_chat = ENGINE.token_logprobs(chat["choices"][0])
    of_plain = ENGINE.token_logprobs(plain["choices"][0])

    assert of_chat is not None
    assert of_plain is not None
    assert [(one.id, one.token, one.bytes) for one in of_chat] == [(one.id, one.token, one.bytes) for one in of_plain]
    assert [one.logprob for one in of_chat] == pytest.approx([one.logprob for one in of_plain], abs=0.05)
    assert all(one.top[0].id == one.id for one in of_chat)  # greedy


async def test_what_it_tells_of_itself(client: httpx.AsyncClient) -> None:
    (model,) = ENGINE.models((await client.get("/v1/models")).json())
    assert (model.id, model.max_model_len) == (MODEL, 1024)


async def test_its_errors_are_understood(client: httpx.AsyncClient) -> None:
    too_long = await ask(client, {"messages": [{"role": "user", "content": "word " * 1100}]}, expected=400)
    assert ENGINE.is_context_overflow(400, too_long)
    unknown = await client.post("/v1/chat/completions", json={**QUESTION, "model": "nope", "max_tokens": 1})
    assert (unknown.status_code, ENGINE.capabilities.checks_model_name) == (200, False)
