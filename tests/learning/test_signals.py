"""What answers' form teaches: from a request over HTTP to what a policy knows."""

from __future__ import annotations

import asyncio
import io
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.keys import Principal
from gateway.config.schema import Learning
from gateway.learning.findings import Findings
from gateway.learning.signals import Signals
from gateway.mock import Behaviour, MockBackend
from gateway.mock.behaviour import ToolCall
from gateway.serving.call import Examined, Receipt, Words
from tests.support.asking import CHAT, question
from tests.support.keeping import ID, key
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("decisions")

JSON = {"type": "json_object"}
TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "required": ["zone"]}}}]
GOOD, BAD = '{"capital": "Paris"}', "It is Paris."
SECRET = "petrichor-canary-51"


def learning(good: MockBackend, bad: MockBackend, folder: Path, policy: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Two plans behind `auto`, each with an engine of its own; the bad one is cheaper."""
    return config_for(
        {"a": {"url": good.url, "models": {"good": "mock-model"}}, "b": {"url": bad.url, "models": {"bad": "mock-model"}}},
        models={"good": {"price": {"input": 2.0, "output": 8.0}}, "bad": {"price": {"input": 1.0, "output": 4.0}}},
        policies={"learn": {"seed": 3, "floor": 0.02, **policy}, "even": {"type": "random"}},
        virtual_models={
            "auto": {"policy": "learn", "plans": {"good": {"model": "good"}, "bad": {"model": "bad"}}},
            "only": {"policy": "fixed", "plans": {"good": {"model": "good"}}},
        },
        keys=[key("shop")],
        server={"secret": "keyed-by-this"},
        storage={"url": f"sqlite:///{folder / 'decisions.db'}"},
        learning={"every_s": 0.02, "signals": ["schema", "tools", "truncation", "refusal"]} | settings,
    )


@asynccontextmanager
async def engines() -> AsyncIterator[tuple[MockBackend, MockBackend]]:
    async with MockBackend(["mock-model"]) as good, MockBackend(["mock-model"]) as bad:
        good.script(default=Behaviour(text=GOOD))
        bad.script(default=Behaviour(text=BAD))
        yield good, bad


async def outcomes(client: httpx.AsyncClient, id_: str, *sources: str) -> dict[str, float]:
    """What the receipt says, by source, once all of these have spoken."""
    found: dict[str, float] = {}
    async with asyncio.timeout(10):
        while not set(sources) <= found.keys():
            answer = await client.get(f"/v1/decisions/{id_}")
            if answer.status_code == 200:
                said = answer.json()["outcome"]
                assert all((each["metric"], each["labelling_probability"]) == ("quality", 1.0) for each in said)
                found = {each["source"]: each["value"] for each in said}
            await asyncio.sleep(0.01)
    return found


async def looked_at_all(run: Running, count: int) -> None:
    """Waits until so many decisions were learnt from, or, as long as only one plan has been tried, passed over."""
    learner = run.app.learner
    assert learner is not None
    await until(lambda: learner.folded + learner.skipped.total() >= count)


def left_in(folder: Path) -> dict[Path, bytes]:
    """All files, with what is in them."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


async def ask(client: httpx.AsyncClient, **extra: Any) -> tuple[str, str]:
    """The decision's id, and who served."""
    answer = await client.post(CHAT, json=question(**({"model": "auto"} | extra)))
    assert answer.status_code == 200, answer.text
    return answer.headers[ID], answer.headers["x-trilemma-model"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_json_that_is_none_is_told_and_learnt(tmp_path: Path, stream: bool) -> None:
    """Nobody gives feedback; still the plan that keeps to the form is chosen in the end, though it costs twice as much."""
    served: list[str] = []
    async with engines() as (good, bad):
        config = learning(good, bad, tmp_path, {"type": "thompson"})
        async with running(config, tmp_path) as run, run.client("sk-shop") as client:
            for start in range(0, 200, 10):
                answers = await asyncio.gather(*(ask(client, stream=stream, response_format=JSON) for _ in range(10)))
                served += [model for _, model in answers]
                await looked_at_all(run, start + 10)
            for id_, model in answers:
                found = await outcomes(client, id_, "schema", "truncation", "refusal")
                assert found == {"schema": float(model == "good"), "truncation": 1.0, "refusal": 1.0}
            examining = run.app.examining
            assert examining is not None
            assert examining.findings.found == {"schema": 200, "truncation": 200, "refusal": 200}
            assert (examining.signals.dropped, examining.signals.unread, examining.signals.waiting) == (0, 0, 0)

    assert Counter(served[-50:])["good"] > 40


async def test_calls_of_tools(tmp_path: Path) -> None:
    async with engines() as (good, bad):
        good.script(default=Behaviour(tool_calls=(ToolCall("now", '{"zone": "UTC"}'),)))
        bad.script(default=Behaviour(tool_calls=(ToolCall("now", '{"hour": 1}'),)))
        async with running(learning(good, bad, tmp_path, {"type": "random"}), tmp_path) as run, run.client("sk-shop") as client:
            for stream in (False, True):
                left = {"good", "bad"}
                async with asyncio.timeout(20):  # chance decides who is asked
                    while left:
                        id_, model = await ask(client, stream=stream, tools=TOOLS)
                        assert await outcomes(client, id_, "tools", "truncation") == {"tools": float(model == "good"), "truncation": 1.0}
                        left.discard(model)


async def test_a_cut_answer_counts_where_the_caller_did_not_ask_for_it(tmp_path: Path) -> None:
    async with engines() as (good, bad):
        for mock in (good, bad):
            mock.script(default=Behaviour(text="It was a dark and", finish_reason="length"))
        config = learning(good, bad, tmp_path, {"type": "random"}, signals=["truncation", "refusal"])
        async with running(config, tmp_path) as run, run.client("sk-shop") as client:
            assert (await outcomes(client, (await ask(client))[0], "truncation", "refusal"))["truncation"] == 0.0
            assert await outcomes(client, (await ask(client, max_tokens=5))[0], "refusal") == {"refusal": 1.0}


async def test_feedback_wins(tmp_path: Path) -> None:
    """A caller who is content with what is no JSON is right; both stand on the receipt."""
    async with engines() as (good, bad):
        good.script(default=Behaviour(text=BAD))
        async with running(learning(good, bad, tmp_path, {"type": "thompson"}), tmp_path) as run, run.client("sk-shop") as client:
            id_, _ = await ask(client, response_format=JSON)
            await outcomes(client, id_, "schema")
            assert (await client.post("/v1/feedback", json={"decision_id": id_, "verdict": "good_fit"})).status_code == 202
            found = await outcomes(client, id_, "schema", "feedback")
            assert (found["schema"], found["feedback"]) == (0.0, 1.0)
            learner = run.app.learner
            assert learner is not None
            await until(lambda: learner.folded == 1)
            rows = await learner.read(lambda session: session.rows("SELECT quality FROM learned"))
    assert rows == [(1.0,)]


async def test_whose_answers_are_not_looked_at(tmp_path: Path) -> None:
    """Of a real model, of who does not want to teach, of calls that failed; and none where the operator did not switch it on."""
    async with engines() as (good, bad):
        config = learning(good, bad, tmp_path, {"type": "random"})
        async with running(config, tmp_path) as run, run.client("sk-shop") as client:
            await ask(client, model="good", response_format=JSON)
            await ask(client, response_format=JSON, trilemma={"learn": False})
            for mock in (good, bad):
                mock.script(default=Behaviour(status=400, body='{"error": {"message": "no"}}'))
            answer = await client.post(CHAT, json=question(model="auto", response_format=JSON))
            assert answer.status_code == 400
            for mock in (good, bad):
                mock.script(default=Behaviour(text=GOOD))
            last, _ = await ask(client, response_format=JSON)
            await outcomes(client, last, "schema")
            examining = run.app.examining
            assert examining is not None
            assert examining.findings.found["schema"] == 1
        run.config["learning"]["signals"] = []
        async with running(config, tmp_path) as run, run.client("sk-shop") as client:
            await ask(client, response_format=JSON)
            await run.until_settled(1)
            assert run.settled[0].words is None


async def test_too_long_an_answer_tells_nothing(tmp_path: Path) -> None:
    async with engines() as (good, bad):
        for mock in (good, bad):
            mock.script(default=Behaviour(text="word " * 1_000))
        config = learning(good, bad, tmp_path, {"type": "random"}, max_answer_bytes=1_024)
        async with running(config, tmp_path) as run, run.client("sk-shop") as client:
            answer = await client.post(CHAT, json=question(model="auto", stream=True))
            assert answer.text.count("word") == 1_000
            await run.until_settled(1)
            examining = run.app.examining
            assert examining is not None
            await until(lambda: examining.signals.unread == 1)
            words = run.settled[0].words
            assert words is not None and words.answer is not None and len(words.answer) == 1_025
            assert not examining.findings.found


async def test_no_word_of_it_is_left_behind(tmp_path: Path) -> None:
    """Not in the database with its journal, and not in the log at its most talkative, also where looking fails."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger("trilemma")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        async with engines() as (good, bad):
            for mock in (good, bad):
                mock.script(default=Behaviour(text=f'{{"answer": "{SECRET}"}}'))
            config = learning(good, bad, tmp_path, {"type": "linucb"})
            async with running(config, tmp_path / "state") as run, run.client("sk-shop") as client:
                asked = {"messages": [{"role": "user", "content": SECRET}], "response_format": {**JSON, "x": SECRET}}
                for stream_ in (False, True):
                    id_, _ = await ask(client, stream=stream_, **asked)
                    await outcomes(client, id_, "schema")
                files = left_in(tmp_path)
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    assert any(b"schema" in data for data in files.values())
    assert [file for file, data in files.items() if SECRET.encode() in data] == []
    assert SECRET not in stream.getvalue()


# -- the queue


def receipt(answer: bytes, id_: str = "d", **examined: Any) -> Receipt:
    found = {"response_format": b'{"type":"json_object"}', "tools": b"", "limited": False, "judges": {}, "most": 1_000} | examined
    words = Words(1_000, b"", bytearray(answer), None, Examined(**found))
    return Receipt("req", id_, 0.0, Principal("k", "t", frozenset(), None), outcome="ok", words=words)


def chat(text: str) -> bytes:
    return httpx.Response(200, json={"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).content


async def looked(signals: Signals, condition: Any) -> None:
    task = asyncio.create_task(signals.run())
    await until(condition)
    task.cancel()
    await asyncio.wait((task,))


async def test_more_than_there_is_room_for_is_dropped_and_counted() -> None:
    rows: list[Any] = []
    findings = Findings(lambda _table, row: rows.append(row), lambda: 5.0)
    settings = Learning(signals=["schema"])
    signals = Signals(findings, lambda: settings, {}, most=3, room=10_000)
    for n in range(5):
        signals.ended(receipt(chat("{}"), f"d{n}"))
    assert (signals.waiting, signals.dropped) == (3, 2)
    await looked(signals, lambda: len(rows) == 3)
    assert rows == [(f"d{n}", "quality", "schema", 1.0, 1.0, 5.0) for n in range(3)]
    signals.ended(receipt(b"x" * 9_990))
    assert (signals.waiting, signals.dropped) == (0, 3), "bytes count, too"


async def test_what_waits_at_the_end_is_looked_at_before_it() -> None:
    rows: list[Any] = []
    settings = Learning(signals=["schema"])
    signals = Signals(Findings(lambda _table, row: rows.append(row)), lambda: settings, {})
    task = asyncio.create_task(signals.run())
    await asyncio.sleep(0)
    for n in range(50):
        signals.ended(receipt(chat("{}"), f"d{n}"))
    task.cancel()
    await asyncio.wait((task,))
    assert [row[0] for row in rows] == [f"d{n}" for n in range(50)]


async def test_what_cannot_be_looked_at_keeps_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    rows: list[Any] = []
    settings = Learning(signals=["schema"])
    signals = Signals(Findings(lambda _table, row: rows.append(row)), lambda: settings, {})
    signals.ended(receipt(b"not an answer", "none"))
    signals.ended(receipt(chat("{}"), "broken", response_format=b'{"' + SECRET.encode()))
    signals.ended(receipt(chat("[]"), "good"))
    await looked(signals, lambda: len(rows) == 1)
    assert (rows[0][0], rows[0][3], signals.unread) == ("good", 0.0, 2)
    assert SECRET not in caplog.text
    assert "DecodeError" in caplog.text
