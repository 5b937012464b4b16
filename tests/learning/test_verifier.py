"""A service that judges answers, over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import Verifier as Settings
from gateway.learning.findings import Case
from gateway.learning.reviewing import Unjudged
from gateway.learning.verifier import Verifier
from gateway.pool.http1 import Http1Transport
from tests.learning.test_signals import GOOD, ask, engines, learning
from tests.support.asking import MESSAGES
from tests.support.running import running
from tests.support.waiting import until

CASE = Case("d-1", b'[{"role": "user", "content": "hi \\u00e9"}]', "Hello.", "m", {"verifier": 1.0}, 0.0, 1)


@dataclass
class Service:
    """Answers each request with the next of `answers`: a status and a body, or None: nothing, for ever.

    asked: heads and bodies. open: connections."""

    url: str = ""
    answers: list[tuple[int, bytes] | None] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    always: tuple[int, bytes] = (200, b'{"value": 0.75}')
    gone: int = 0
    open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
                self.asked.append((head, json.loads(await reader.readexactly(length))))
                answer = self.answers.pop(0) if self.answers else self.always
                if answer is None:
                    await reader.read()
                    self.gone += 1
                    break
                status, body = answer
                location = f"location: {self.url}/elsewhere\r\n" if status == 307 else ""
                writer.write(f"HTTP/1.1 {status} X\r\n{location}content-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    found = Service()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/check"
    try:
        yield found
    finally:
        server.close()


@asynccontextmanager
async def verifying(**settings: Any) -> AsyncIterator[Verifier]:
    transport = Http1Transport()
    try:
        yield Verifier(transport, lambda: Settings.model_validate(settings))
    finally:
        await transport.close()


async def test_what_it_is_sent_and_what_it_says() -> None:
    async with service() as theirs, verifying(url=theirs.url, key="sk-verifier") as verifier:
        assert await verifier.review(CASE) == 0.75
        theirs.answers = [(200, b'{"value": 1, "why": "so"}'), (200, b'{"value": 0}')]
        assert [await verifier.review(CASE) for _ in range(2)] == [1.0, 0.0]
    head, body = theirs.asked[0]
    assert head.startswith("POST /check HTTP/1.1\r\n")
    assert "authorization: Bearer sk-verifier" in head and "content-type: application/json" in head
    assert body == {"decision_id": "d-1", "messages": [{"role": "user", "content": "hi é"}], "answer": "Hello."}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b'{"value": 1}', "status"),
        (404, b"", "status"),
        (307, b'{"value": 1}', "status"),
        (200, b"yes", "answer"),
        (200, b"{}", "answer"),
        (200, b'{"value": 1.01}', "answer"),
        (200, b'{"value": -1}', "answer"),
        (200, b'{"value": "1"}', "answer"),
        (200, b'{"value": true}', "answer"),
        (200, b'{"value": 1, "pad": "' + b"x" * 70_000 + b'"}', "answer"),
        (200, b'{"value": null}', "silent"),
    ],
)
async def test_what_is_no_verdict(status: int, body: bytes, reason: str) -> None:
    """A redirect is not followed: only the address of the configuration is ever asked."""
    async with service() as theirs, verifying(url=theirs.url) as verifier:
        theirs.answers = [(status, body)]
        with pytest.raises(Unjudged) as unjudged:
            await verifier.review(CASE)
        assert unjudged.value.reason == reason
        assert unjudged.value.weighs is (reason != "silent")
        assert len(theirs.asked) == 1


async def test_one_that_does_not_answer_in_time_is_hung_up_on() -> None:
    async with service() as theirs, verifying(url=theirs.url, timeout_s=0.1) as verifier:
        theirs.answers = [None]
        with pytest.raises(Unjudged, match="timeout"):
            await verifier.review(CASE)
        await until(lambda: theirs.gone == 1)


async def test_one_that_is_not_there() -> None:
    async with service() as theirs:
        pass
    async with verifying(url=theirs.url) as verifier:
        with pytest.raises(Unjudged, match="connection"):
            await verifier.review(CASE)


async def test_its_word_becomes_an_outcome(tmp_path: Path) -> None:
    """Of a share of the decisions, the answer's words as they were said, also of a stream; a failure fails no request."""
    async with service() as theirs, engines() as (good, bad):
        theirs.answers = [(503, b"")]
        settings = {"signals": [], "verifier": {"url": theirs.url, "share": 0.5, "at_once": 1}}
        config = learning(good, bad, tmp_path, {"type": "random"}, **settings)
        async with running(config, tmp_path / "state") as run, run.client("sk-shop") as client:
            ids = [(await ask(client, stream=n % 2 == 1))[0] for n in range(40)]
            sampled = [id_ for id_ in ids if run.gateway.hearing.sampled(id_, "verifier", 0.5)]
            assert 5 < len(sampled) < 35
            await until(lambda: len(theirs.asked) == len(sampled))
            examining = run.app.examining
            assert examining is not None
            await until(lambda: examining.findings.found["verifier"] == len(sampled) - 1)
            assert examining.reviews["verifier"].failures == {"status": 1}
            judged = sampled[-1]
            outcome: list[Any] = []
            async with asyncio.timeout(10):
                while not outcome:
                    outcome = (await client.get(f"/v1/decisions/{judged}")).json().get("outcome", [])
                    await asyncio.sleep(0.01)
    assert outcome == [{"metric": "quality", "value": 0.75, "source": "verifier", "labelling_probability": 0.5}]
    assert {body["decision_id"] for _, body in theirs.asked} == set(sampled)
    assert all(body["messages"] == MESSAGES for _, body in theirs.asked)
    assert {body["answer"] for _, body in theirs.asked} <= {GOOD, "It is Paris."}
