"""A model that grades answers of others: its calls, its verdicts, and who pays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.learning.examining import Examining
from gateway.mock import Behaviour, MockBackend
from tests.learning.test_signals import ask, engines, learning, left_in
from tests.support.running import Running, running
from tests.support.scraping import scrape
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("decisions")

WORSE = "Verdict: 2"
ASKED = "When was Ada Lovelace born?"


@asynccontextmanager
async def judged(folder: Path, *verdicts: Behaviour, **settings: Any) -> AsyncIterator[tuple[Running, httpx.AsyncClient, MockBackend]]:
    """A gateway whose judge has an engine of its own, and grades everything."""
    async with engines() as (good, bad), MockBackend(["mock-model"]) as court:
        court.script(*verdicts, default=Behaviour(text="It is right.\nVerdict: 5"))
        judge = {"model": "judge", "share": 1.0} | settings
        config = learning(good, bad, folder, {"type": "random"}, signals=[], judge=judge)
        config["backends"]["c"] = {"url": court.url, "models": {"judge": "mock-model"}}
        config["models"]["judge"] = {"price": {"input": 100.0, "output": 200.0}}
        config["keys"][0]["scopes"] = ["inference", "admin"]
        async with running(config, folder / "state") as run, run.client("sk-shop") as client:
            yield run, client, court


def examining(run: Running) -> Examining:
    assert run.app.examining is not None
    return run.app.examining


async def receipt(client: httpx.AsyncClient, id_: str, calls: int) -> dict[str, Any]:
    """The decision, once so many calls are stored with it."""
    async with asyncio.timeout(10):
        while True:
            answer = await client.get(f"/v1/decisions/{id_}")
            if answer.status_code == 200 and len(answer.json()["calls"]) >= calls:
                found: dict[str, Any] = answer.json()
                return found
            await asyncio.sleep(0.01)


async def question(client: httpx.AsyncClient, **extra: Any) -> str:
    id_, _ = await ask(client, messages=[{"role": "user", "content": ASKED}], **extra)
    return id_


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_grade_is_an_outcome_and_its_cost_stands_with_the_decision(tmp_path: Path, stream: bool) -> None:
    async with judged(tmp_path, Behaviour(text=WORSE)) as (run, client, court):
        id_ = await question(client, stream=stream)
        found = await receipt(client, id_, 2)
        await until(lambda: examining(run).findings.found == {"judge": 1})
        async with asyncio.timeout(10):
            while not found["outcome"]:
                found = await receipt(client, id_, 2)
        counted = await scrape(client)
        (sent,) = court.requests_to("/v1/chat/completions")

    assert found["outcome"] == [{"metric": "quality", "value": 0.25, "source": "judge", "labelling_probability": 1.0}]
    served, grading = found["calls"]
    assert (served["purpose"], grading["purpose"], grading["model"], grading["status"]) == ("served", "judge", "judge", 200)
    assert grading["start_ms"] >= served["end_ms"]
    assert grading["cost"] == pytest.approx((grading["prompt_tokens"] * 100 + grading["completion_tokens"] * 200) / 1e6)
    assert found["cost"] == pytest.approx(served["cost"]), "what the caller's answer cost"
    assert counted.of("trilemma_upstream_requests_total", purpose="judge") == 1
    assert counted.of("trilemma_requests_total") == 1, "it is no request of anybody's"
    body = json.loads(sent.body)
    assert (body["max_tokens"], len(body["messages"])) == (512, 1)
    assert ASKED in body["messages"][0]["content"]


async def test_where_there_is_no_verdict_it_is_asked_once_more(tmp_path: Path) -> None:
    async with judged(tmp_path, Behaviour(text="Hard to say."), Behaviour(text="Verdict: 3")) as (run, client, court):
        found = await receipt(client, await question(client), 3)
        await until(lambda: examining(run).findings.found["judge"] == 1)
        first, second = (json.loads(each.body)["messages"][0]["content"] for each in court.requests_to("/v1/chat/completions"))
    assert second.startswith(first) and len(second) > len(first)
    assert [each["purpose"] for each in found["calls"]] == ["served", "judge", "judge"]


async def test_a_judge_that_cannot_judge_fails_nobody(tmp_path: Path) -> None:
    behaviours = (Behaviour(text="7", times=2), Behaviour(status=400, body='{"error": {"message": "too long"}}'), Behaviour(text=""))
    async with judged(tmp_path, *behaviours) as (run, client, _):
        for _ in range(2):
            await question(client)
        review = examining(run).reviews["judge"]
        await until(lambda: review.failures.total() == 2)
        assert review.failures == {"verdict": 1, "answer": 1}
        assert examining(run).findings.found == {}


async def test_it_does_not_grade_its_own_answers(tmp_path: Path) -> None:
    async with engines() as (good, bad):
        good.script(default=Behaviour(text="Verdict: 5"))
        config = learning(good, bad, tmp_path, {"type": "random"}, signals=[], judge={"model": "good", "share": 1.0})
        async with running(config, tmp_path / "state") as run, run.client("sk-shop") as client:
            served = [(await ask(client))[1] for _ in range(30)]
            assert set(served) == {"good", "bad"}
            review = examining(run).reviews["judge"]
            await until(lambda: examining(run).findings.found["judge"] + review.failures.total() == 30)
    assert review.failures == {"its_own": served.count("good")}
    assert examining(run).findings.found == {"judge": served.count("bad")}


async def test_nobody_waits_for_it_and_the_end_ends_it(tmp_path: Path) -> None:
    async with judged(tmp_path, Behaviour(never_answer=True, times=0), at_once=2) as (run, client, court):
        for _ in range(5):
            await question(client)
        await until(lambda: court.in_flight == 2)
        assert run.in_flight() == 2
    assert court.in_flight == 0


async def test_its_words_and_those_it_reads_are_kept_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with judged(tmp_path, Behaviour(text="My reasons: saffron-canary.\nVerdict: 4")) as (run, client, _):
        await receipt(client, await question(client), 2)
        await until(lambda: examining(run).findings.found["judge"] == 1)
    files = left_in(tmp_path)
    assert any(b"judge" in data for data in files.values())
    for word in (b"saffron-canary", ASKED.encode()):
        assert [file for file, data in files.items() if word in data] == []
    assert "saffron-canary" not in caplog.text


async def test_by_default_it_grades_nothing(tmp_path: Path) -> None:
    async with judged(tmp_path, share=0.0) as (run, client, court):
        await question(client)
        await run.until_settled(1)
        assert run.settled[0].words is None
        assert court.requests_to("/v1/chat/completions") == []
