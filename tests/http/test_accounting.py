"""What each request cost, and under which id: known for every answer, whatever the backend leaves out."""

from __future__ import annotations

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, question
from tests.support.running import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
