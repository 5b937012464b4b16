"""What a running gateway writes down of its requests: what happened, and no word of what was said."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.keys import Principal
from gateway.mock import Behaviour, MockBackend
from gateway.serving.call import Receipt, UpstreamCall
from gateway.store.columns import COLUMNS
from gateway.store.record import pseudonyms, recording
from gateway.store.writer import Row
from gateway.wire.usage import Rates, Usage
from tests.support.asking import CHAT, MESSAGES, chunks, question
from tests.support.running import DIGEST, KEY, Running, config_for, running
from tests.support.stored import Place, until_stored

UNKNOWN = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd")


async def test_a_chat(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    usage = '{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":900}}'
    mock.script(Behaviour(body=f'{{"choices":[],"usage":{usage}}}'))
    before = time.time()
    answer = await client.post(CHAT, json=question(model="alias"), headers={"x-request-id": "mine-1"})
    elapsed = time.time() - before
    (row,) = await until_stored(place, 1)
    created, first, latency, overhead = row.pop("created"), row.pop("first_s"), row.pop("latency_s"), row.pop("overhead_s")
    assert before - 0.001 <= created <= before + elapsed
    assert 0 < first < latency <= elapsed
    assert 0 < overhead < latency
    assert f"{overhead * 1e3:.2f}" == answer.headers["x-trilemma-overhead-ms"]
    assert row.pop("cost_usd") == pytest.approx((100 * 1.0 + 900 * 0.1 + 10 * 2.0) / 1e6)
    assert row == {
        "id": answer.headers["x-trilemma-decision-id"],
        "request_id": "mine-1",
        "tenant": "default",
        "key_name": "test",
        "requested_model": "alias",
        "served_model": "mock-model",
        "backend": "mock",
        "policy": "none",
        "policy_version": None,
        "plan": None,
        "strategy": "single",
        "propensity": 1.0,
        "explored": False,
        "attempts": 1,
        "status": 200,
        "outcome": "ok",
        "code": None,
        "prompt_tokens": 1000,
        "cached_tokens": 900,
        "completion_tokens": 10,
        "usage_estimated": False,
        "events": 0,
        "session": None,
        "tags": None,
        "learn": True,
        "features": None,
        "feature_version": None,
        "decided": None,
        "snapshot": None,
        "unit": None,
        "first_turn": None,
        "tried": None,
        "config_hash": (await client.get("/admin/config")).json()["hash"],
    }
    (call,) = await until_stored(place, 1, "calls")
    assert 0 < call.pop("start_ms") < call.pop("first_ms") <= call.pop("end_ms") <= latency * 1e3
    assert call.pop("cost_usd") == pytest.approx((100 * 1.0 + 900 * 0.1 + 10 * 2.0) / 1e6)
    assert call == {
        "decision_id": row["id"],
        "n": 0,
        "purpose": "served",
        "backend": "mock",
        "model": "mock-model",
        "status": 200,
        "outcome": "ok",
        "fault": None,
        "prompt_tokens": 1000,
        "cached_tokens": 900,
        "completion_tokens": 10,
        "usage_estimated": False,
    }


async def test_what_a_policy_chose(client: httpx.AsyncClient, place: Place) -> None:
    """3 : 1 by weights, of which a fifth is drawn evenly: 0.8 x 3/4 + 0.1, and 0.8 x 1/4 + 0.1."""
    answers = [await client.post(CHAT, json=question(model="auto")) for _ in range(12)]
    rows = await until_stored(place, 12)
    assert [row["served_model"] for row in rows] == [answer.headers["x-trilemma-model"] for answer in answers]
    assert all(row["propensity"] == pytest.approx({"mock-model": 0.7, "other": 0.3}[row["served_model"]]) for row in rows)
    assert {(row["requested_model"], row["policy"]) for row in rows} == {("auto", "split")}
    assert all(row["plan"] == {"mock-model": "a", "other": "b"}[row["served_model"]] for row in rows)


async def test_a_stream(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    """Recorded when it has ended, with the usage that only the gateway asked for."""
    mock.script(Behaviour(tokens=("a", "b", "c"), tokens_per_second=20))
    answer = await client.post(CHAT, json=question(stream=True))
    assert not any(chunk.get("usage") for chunk in chunks(answer.content))
    (row,) = await until_stored(place, 1)
    assert (row["id"], row["status"], row["outcome"]) == (answer.headers["x-trilemma-decision-id"], 200, "ok")
    assert row["completion_tokens"] == 3
    assert row["cost_usd"] == pytest.approx((row["prompt_tokens"] * 1.0 + 3 * 2.0) / 1e6)
    assert row["latency_s"] > 2 / 20, "three tokens, a twentieth of a second apart"
    assert row["events"] >= 3
    assert f"{row['overhead_s'] * 1e3:.2f}" == answer.headers["x-trilemma-overhead-ms"]


async def test_errors(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    mock.script(Behaviour(status=500, body='{"error":{"message":"out of memory"}}'), Behaviour(reset_after_events=-1, times=2))
    answers = [
        await client.post(CHAT, json=question()),
        await client.post(CHAT, json=question()),
        await client.post(CHAT, json=question(model="nobody")),
        await client.post(CHAT, content=b"{"),
        await client.post("/v1/files", json=question()),
    ]
    rows = await until_stored(place, 5)
    assert [row["id"] for row in rows] == [answer.headers["x-trilemma-decision-id"] for answer in answers]
    assert [row["status"] for row in rows] == [answer.status_code for answer in answers]
    assert [(row["outcome"], row["requested_model"], row["served_model"], row["status"]) for row in rows] == [
        ("backend_error", "mock-model", "mock-model", 500),
        ("backend_error", "mock-model", "mock-model", 502),
        ("caller_error", "nobody", None, 404),
        ("caller_error", None, None, 400),
        ("caller_error", None, None, 404),
    ]
    assert [row["code"] for row in rows] == [None, "backend_error", "model_not_found", "caller_invalid_json", "caller_not_found"]
    assert all(row[name] is None for row in rows for name in (*UNKNOWN, "usage_estimated"))
    assert all(row["overhead_s"] is not None for row in rows)
    calls = await until_stored(place, 2, "calls")
    assert [(call["decision_id"], call["status"], call["outcome"], call["fault"]) for call in calls] == [
        (rows[0]["id"], 500, "backend_error", "status"),
        (rows[1]["id"], None, "backend_error", "reset"),
    ]
    assert all(call[name] is None for call in calls for name in (*UNKNOWN, "usage_estimated"))


async def test_a_stream_that_breaks(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    """What had come of it is counted: three events, and `[{"role": "user", "content": "hi"}]` is 32 bytes or 8 tokens of four."""
    mock.script(Behaviour(reset_after_events=3))
    await client.post(CHAT, json=question(stream=True))
    (row,), (call,) = await until_stored(place, 1), await until_stored(place, 1, "calls")
    assert (row["status"], row["outcome"], call["outcome"], call["fault"]) == (200, "backend_error", "backend_error", "reset")
    for each in (row, call):
        assert (each["prompt_tokens"], each["cached_tokens"], each["completion_tokens"], each["usage_estimated"]) == (8, 0, 3, True)
        assert each["cost_usd"] == pytest.approx((8 * 1.0 + 3 * 2.0) / 1e6)


async def test_callers_that_leave(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    mock.script(Behaviour(tokens=("a",) * 50, stall_after_events=20), Behaviour(never_answer=True))
    async with client.stream("POST", CHAT, json=question(stream=True)) as answer:
        body = b""
        async for data in answer.aiter_bytes():
            body += data
            if body.count(b"data:") == 20:
                break
    (row,) = await until_stored(place, 1)
    assert (row["id"], row["status"], row["outcome"]) == (answer.headers["x-trilemma-decision-id"], 200, "client_closed")
    assert (row["completion_tokens"], row["usage_estimated"]) == (20, True)
    assert row["first_s"] < row["latency_s"]
    asking = asyncio.ensure_future(client.post(CHAT, json=question()))
    await mock.wait_for(lambda m: m.in_flight == 1)
    asking.cancel()
    row = (await until_stored(place, 2))[1]
    assert (row["status"], row["outcome"], row["overhead_s"], row["served_model"]) == (None, "client_closed", None, "mock-model")
    assert [(call["outcome"], call["status"], call["first_ms"]) for call in place.rows("calls")] == [
        ("cancelled", 200, pytest.approx(row_first_ms(place))),
        ("cancelled", None, None),
    ]


def row_first_ms(place: Place) -> float:
    return float(place.rows()[0]["first_s"]) * 1e3


async def test_every_call_that_a_request_took(mock: MockBackend, place: Place, tmp_path: Path) -> None:
    """A replica that breaks, one that is out of order, and another model that stands in: each at its own price."""
    async with MockBackend(["m"]) as second:
        backends = {
            "a": {"url": mock.url, "engine": "vllm", "models": {"m": "mock-model"}},
            "b": {"url": second.url, "engine": "vllm", "models": {"m": "m", "other": "m"}},
        }
        models: dict[str, Any] = {
            "m": {"attempts": 4, "fallbacks": ["other"], "price": {"output": 1.0}},
            "other": {"price": {"output": 5.0}},
        }
        async with running(config_for(backends, models=models, storage={"url": place.url}), tmp_path) as run, run.client() as client:
            mock.script(default=Behaviour(reset_after_events=-1))
            second.script(Behaviour(status=500, body='{"error":{"message":"no"}}'), Behaviour(tokens=("x", "y")))
            answer = await client.post(CHAT, json=question(model="m"))
            assert answer.status_code == 200
            (row,) = await until_stored(place, 1)
            calls = await until_stored(place, int(answer.headers["x-trilemma-attempts"]), "calls")
    assert row["attempts"] == len(calls) == 3
    assert [call["n"] for call in calls] == [0, 1, 2]
    assert sorted((call["backend"], call["model"], call["outcome"], call["cost_usd"]) for call in calls) == [
        ("a", "m", "backend_error", None),
        ("b", "m", "backend_error", None),
        ("b", "other", "ok", pytest.approx(2 * 5.0 / 1e6)),
    ]
    assert row["cost_usd"] == pytest.approx(2 * 5.0 / 1e6)
    assert calls[2]["start_ms"] >= calls[1]["end_ms"] >= calls[0]["end_ms"]
    assert row["first_s"] * 1e3 == pytest.approx(calls[2]["first_ms"])


async def test_sessions_are_hashes_and_tags_are_names(client: httpx.AsyncClient, place: Place) -> None:
    trilemma = {"session_id": "of-alice", "tags": {"team": "search", "note": "what\nalice wrote", "x" * 65: "long"}}
    for extra in ({"trilemma": trilemma}, {"trilemma": {"session_id": "of-bob"}}, {"trilemma": trilemma}):
        await client.post(CHAT, json=question(**extra))
    first, other, again = await until_stored(place, 3)
    assert first["session"] == again["session"] != other["session"]
    assert len(first["session"]) == 32
    assert (json.loads(first["tags"]), other["tags"]) == ({"team": "search"}, None)
    assert not [word for word in (b"of-alice", b"of-bob", b"alice wrote") if word in place.everything()]


async def test_what_no_policy_may_learn_from(client: httpx.AsyncClient, place: Place) -> None:
    for trilemma in ({"learn": False}, {"learn": True}, {}):
        assert (await client.post(CHAT, json=question(trilemma=trilemma))).status_code == 200
    assert [bool(row["learn"]) for row in await until_stored(place, 3)] == [False, True, True]


async def test_ids_are_the_gateway_s_own(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    """A backend's are empty or repeat, a caller's repeats: each request has its row."""
    mock.script(Behaviour(body='{"id":"","choices":[]}', times=2), Behaviour(body='{"id":"chatcmpl-1","choices":[]}', times=2))
    for _ in range(4):
        await client.post(CHAT, json=question(), headers={"x-request-id": "again"})
    rows = await until_stored(place, 4)
    assert len({row["id"] for row in rows}) == 4
    assert {row["request_id"] for row in rows} == {"again"}


async def test_an_answer_without_usage_is_recorded(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    """Whatever stands where it should: a row with less in it, and what can be read of it."""
    odd = ("null", "{}", '"much"', '{"prompt_tokens":"7","completion_tokens":"3"}', "[1]")
    mock.script(Behaviour(body='{"choices":[]}'), *(Behaviour(body=f'{{"choices":[],"usage":{usage}}}') for usage in odd))
    for _ in range(len(odd) + 1):
        assert (await client.post(CHAT, json=question())).status_code == 200
    rows, calls = await until_stored(place, 6), await until_stored(place, 6, "calls")
    for each in (rows, calls):
        assert [row["outcome"] for row in each] == ["ok"] * 6
        assert [(row["prompt_tokens"], row["completion_tokens"]) for row in each] == [*[(None, None)] * 4, (7, 3), (None, None)]


async def test_strangers_leave_no_row(client: httpx.AsyncClient, gateway: Running, place: Place) -> None:
    """Without a key anybody could fill the disk."""
    async with gateway.client("sk-wrong") as stranger:
        assert (await stranger.post(CHAT, json=question())).status_code == 401
    await client.post(CHAT, json=question())
    await until_stored(place, 1)


async def test_no_word_of_prompts_answers_or_keys_is_kept(client: httpx.AsyncClient, place: Place, mock: MockBackend) -> None:
    """Not in the file, and not in its write-ahead log; whatever field a caller puts its text into."""
    mock.script(Behaviour(text="ANSWERCANARY", times=2))
    secret = [{"role": "user", "content": "PROMPTCANARY"}]
    await client.post(CHAT, json=question(messages=secret, user="USERCANARY", metadata={"a": "METACANARY"}))
    await client.post(CHAT, json=question(messages=secret, stream=True))
    await client.post(CHAT, json=question(model="tell me of PROMPTCANARY", messages=MESSAGES))
    await client.post(CHAT, json=question(), headers={"x-request-id": "PROMPTCANARY or not"})
    rows = await until_stored(place, 4)
    assert [row["requested_model"] for row in rows] == ["mock-model", "mock-model", None, "mock-model"]
    kept = place.everything()
    assert rows[0]["id"].encode() in kept
    for word in (b"CANARY", KEY.encode()):
        assert word not in kept
    assert DIGEST not in repr([place.rows(table) for table in COLUMNS])


async def test_rows_tell_the_configuration_they_ran_under(client: httpx.AsyncClient, gateway: Running, place: Place) -> None:
    await client.post(CHAT, json=question())
    gateway.config["models"]["other"]["price"] = {"input": 5.0}
    reloaded = await client.post("/admin/config/reload")
    await client.post(CHAT, json=question())
    first, second = await until_stored(place, 2)
    assert second["config_hash"] == reloaded.json()["hash"] != first["config_hash"]


async def test_a_reload_while_a_request_comes_in(client: httpx.AsyncClient, gateway: Running, place: Place) -> None:
    """The configuration that served it counts, not the one that its head met."""
    body = json.dumps(question()).encode()
    reader, writer = await asyncio.open_connection(*httpx.URL(gateway.url).netloc.decode().split(":"))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode())
    assert b" 100 " in await reader.readline()  # so its head has been read
    gateway.config["models"]["other"]["price"] = {"input": 5.0}
    reloaded = await client.post("/admin/config/reload")
    writer.write(body)
    (row,) = await until_stored(place, 1)
    assert row["config_hash"] == reloaded.json()["hash"]
    writer.close()
    await writer.wait_closed()


async def test_another_database_waits_for_the_next_start(
    client: httpx.AsyncClient, gateway: Running, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.config["storage"]["url"] = f"sqlite:///{tmp_path / 'other.db'}"
    assert (await client.post("/admin/config/reload")).status_code == 200
    assert "changes under `storage` take effect at the next start" in caplog.messages
    await client.post(CHAT, json=question())
    await until_stored(place, 1)
    assert not (tmp_path / "other.db").exists()


async def test_the_newest_come_first_by_time_and_id(client: httpx.AsyncClient, place: Place) -> None:
    """The order in which requests came is the order of (created, id)."""
    ids = [(await client.post(CHAT, json=question())).headers["x-trilemma-decision-id"] for _ in range(5)]
    await until_stored(place, 5)
    assert [row["id"] for row in sorted(place.rows(), key=lambda row: (row["created"], row["id"]))] == ids


def test_pseudonyms() -> None:
    """The same under the same secret, another for each session, tenant and secret, however these two are joined."""
    name = pseudonyms(b"secret")
    assert name("shop", "s1") == pseudonyms(b"secret")("shop", "s1")
    assert len({name("shop", "s1"), name("shop", "s2"), name("bank", "s1"), name("shops", "1"), pseudonyms(b"other")("shop", "s1")}) == 5
    assert pseudonyms(None)("shop", "s1") != pseudonyms(None)("shop", "s1")


def recorded(receipt: Receipt) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    seen: list[Receipt] = []

    def put(table: str, row: Row, text: int = 0) -> None:
        assert text == 0
        rows.setdefault(table, []).append(row)

    recording(put, seen.append, pseudonyms(b""))(receipt)
    assert seen == [receipt]
    return rows


def test_a_row_of_whatever_is_known() -> None:
    """A request of which nothing is known but its ids leaves its row all the same."""
    rows = recorded(Receipt("r", "d", time.perf_counter(), Principal("k", "t", frozenset(), None)))
    assert set(rows) == {"decisions"}
    assert len(rows["decisions"][0]) == len(COLUMNS["decisions"])
    assert recorded(Receipt("r", "d", time.perf_counter())) == {}


def test_the_call_that_served_is_the_one_that_counts() -> None:
    """Of a hedged request: not the last one, which was cancelled."""
    now = time.perf_counter()
    usage, rates = Usage(4, 0, 5), Rates(output=2.0)
    calls = [
        UpstreamCall("a", "m", now + 1, first=now + 2, ended=now + 3, status=200, outcome="ok", usage=usage, rates=rates),
        UpstreamCall("b", "m", now + 1.5, ended=now + 2, outcome="cancelled", usage=Usage(1, 0, 1), estimated=True),
    ]
    principal = Principal("k", "t", frozenset(), None)
    rows = recorded(Receipt("r", "d", now, principal, served_model="m", backend="a", calls=calls, usage=usage, rates=rates))
    row = dict(zip(COLUMNS["decisions"], rows["decisions"][0], strict=True))
    assert (row["first_s"], row["usage_estimated"], row["cost_usd"]) == (pytest.approx(2.0), False, pytest.approx(1e-5))
    told = [dict(zip(COLUMNS["calls"], each, strict=True)) for each in rows["calls"]]
    assert [(call["n"], call["start_ms"], call["first_ms"], call["end_ms"]) for call in told] == [
        (0, pytest.approx(1e3), pytest.approx(2e3), pytest.approx(3e3)),
        (1, pytest.approx(1.5e3), None, pytest.approx(2e3)),
    ]
    assert [(call["usage_estimated"], call["cost_usd"]) for call in told] == [(False, pytest.approx(1e-5)), (True, 0.0)]
