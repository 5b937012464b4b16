"""What each request cost, and under which id: known for every answer, whatever the backend leaves out."""

from __future__ import annotations

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.wire.usage import Usage
from tests.support.asking import CHAT, question
from tests.support.running import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ('{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":900,"zz":{}}}', 100 + 900 * 0.1 + 10 * 2.0),
        ('{"prompt_tokens":20,"completion_tokens":424,"total_tokens":1016}', 20 * 1.0 + 996 * 2.0),
        ('{"prompt_tokens":5,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":50}}', 5 * 0.1),
        ('{"prompt_tokens":"7","completion_tokens":"3"}', 7 * 1.0 + 3 * 2.0),
        ('{"prompt_tokens":-5,"completion_tokens":true}', 0.0),
        ('{"prompt_tokens":5,"prompt_tokens_details":null}', 5 * 1.0),
        ("null", 0.0),
        ("{}", 0.0),
        ('"much"', 0.0),
    ],
)  # fmt: skip
async def test_what_an_answer_costs(mock: MockBackend, client: httpx.AsyncClient, gateway: Running, usage: str, cost: float) -> None:
    """USD per million tokens: 1 for prompts, 0.1 where cached (once, not twice), 2 for answers, and for what only the total shows.
    The client sees the usage as the backend told it, and odd usage breaks no answer."""
    body = f'{{"choices":[],"usage":{usage}}}'
    mock.script(Behaviour(body=body))
    answer = await client.post(CHAT, json=question())
    assert answer.text == body
    assert float(answer.headers["x-trilemma-cost"]) == pytest.approx(cost / 1e6)
    await gateway.until_settled(1)
    assert gateway.settled[0].cost == pytest.approx(cost / 1e6)
    assert gateway.settled[0].outcome == "ok"


async def test_ids_are_the_gateway_s_own(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    """Backends repeat ids, or leave them empty: each request has its own all the same, and a caller's own id comes back."""
    mock.script(Behaviour(body='{"id":"","choices":[]}', times=0))
    answers = [await client.post(CHAT, json=question(), headers={"x-request-id": "mine-1"}) for _ in range(3)]
    assert [answer.json()["id"] for answer in answers] == [""] * 3
    assert {answer.headers["x-request-id"] for answer in answers} == {"mine-1"}
    assert len({answer.headers["x-trilemma-decision-id"] for answer in answers}) == 3
    own = [
        await client.post(CHAT, json=question(), headers={"x-request-id": wished} if wished else {}) for wished in ("", "a b", "x" * 200)
    ]
    assert len({answer.headers["x-request-id"] for answer in own}) == 3
    await gateway.until_settled(6)
    assert len({receipt.decision_id for receipt in gateway.settled}) == 6


PROMPT_TOKENS = 8
"""`[{"role":"user","content":"hi"}]` is 32 bytes, four of which count as a token."""


@pytest.mark.parametrize(
    ("behaviour", "outcome", "tokens"),
    [
        (Behaviour(tokens=("a",) * 30, reset_after_events=21), "backend_error", 21),
        (Behaviour(tokens=("a",) * 30, close_after_events=21), "backend_error", 21),
        (Behaviour(tokens=("a", "b", "c"), usage="none"), "ok", 5),  # the role and the finish reason have events of their own
        (Behaviour(events=('{"choices":[{"index":0,"delta":{"content":"a"}}]}', '{"error":{"message":"no"}}')), "backend_error", 1),
    ],
)  # fmt: skip
async def test_a_stream_whose_backend_never_told(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, behaviour: Behaviour, outcome: str, tokens: int
) -> None:
    """Counted from what was passed on, marked as a guess, and paid for."""
    mock.script(behaviour)
    await client.post(CHAT, json=question(stream=True))
    await gateway.until_settled(1)
    (receipt,) = gateway.settled
    (call,) = receipt.calls
    assert receipt.outcome == outcome
    assert call.estimated
    assert receipt.usage == call.usage == Usage(prompt=PROMPT_TOKENS, completion=tokens)
    assert receipt.cost == pytest.approx((PROMPT_TOKENS * 1.0 + tokens * 2.0) / 1e6)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_caller_that_leaves_pays_for_what_it_was_sent(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, path: str
) -> None:
    mock.script(Behaviour(tokens=("a",) * 50, stall_after_events=20))
    body = question(stream=True) if path == CHAT else {"model": "mock-model", "prompt": "hi", "max_tokens": 100, "stream": True}
    async with client.stream("POST", path, json=body) as answer:
        seen = b""
        async for data in answer.aiter_bytes():
            seen += data
            if seen.count(b"data:") == 20:
                break
    await gateway.until_settled(1)
    (call,) = gateway.settled[0].calls
    assert (gateway.settled[0].outcome, call.outcome, call.estimated) == ("client_closed", "cancelled", True)
    assert call.usage == Usage(prompt=PROMPT_TOKENS if path == CHAT else 1, completion=20)


async def test_what_a_backend_told_is_no_guess(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    """Counts in every chunk are known when the stream breaks."""
    mock.script(Behaviour(tokens=("a",) * 30, usage="in_every_chunk", reset_after_events=11), Behaviour(), Behaviour(body='{"choices":[]}'))
    for stream in (True, True, False):
        await client.post(CHAT, json=question(stream=stream))
    await gateway.until_settled(3)
    assert [call.estimated for receipt in gateway.settled for call in receipt.calls] == [False] * 3
    assert gateway.settled[0].usage == Usage(prompt=9, completion=10)
    assert gateway.settled[2].usage is None, "an answer that is no stream is not guessed at"


async def test_events_that_are_no_tokens_are_not_counted(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    """Of speech, say."""
    mock.script(Behaviour(body='data: {"audio":"AAAA"}\n\n', headers={"content-type": "text/event-stream"}))
    await client.post("/v1/audio/speech", json={"model": "mock-model", "input": "hi", "stream_format": "sse"})
    await gateway.until_settled(1)
    assert gateway.settled[0].usage is None


async def test_other_formats_are_counted_as_they_tell(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    sse = {"content-type": "text/event-stream"}
    completed = 'data: {"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":4}}}\n\n'
    messages = (
        'data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
        'data: {"type":"message_delta","delta":{},"usage":{"output_tokens":4}}\n\n'
    )
    mock.script(Behaviour(body=completed, headers=sse), Behaviour(body=messages, headers=sse))
    await client.post("/v1/responses", json={"model": "mock-model", "input": "hi", "stream": True})
    await client.post("/v1/messages", json=question(stream=True, max_tokens=9))
    await gateway.until_settled(2)
    assert [receipt.usage for receipt in gateway.settled] == [Usage(9, 0, 4)] * 2
    assert not any(call.estimated for receipt in gateway.settled for call in receipt.calls)
