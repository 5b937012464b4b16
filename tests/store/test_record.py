"""What a running gateway writes down of its requests: what happened, and no word of what was said."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, MESSAGES, chunks, question
from tests.support.running import DIGEST, KEY, Running
from tests.support.stored import until_stored

UNKNOWN = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd")


async def test_a_chat(client: httpx.AsyncClient, database: Path, mock: MockBackend) -> None:
    usage = '{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":900}}'
    mock.script(Behaviour(body=f'{{"choices":[],"usage":{usage}}}'))
    before = time.time()
    answer = await client.post(CHAT, json=question(model="alias"), headers={"x-request-id": "mine-1"})
    elapsed = time.time() - before
    (row,) = await until_stored(database, 1)
    created, latency, overhead = row.pop("created"), row.pop("latency_s"), row.pop("overhead_s")
    assert before - 0.001 <= created <= before + elapsed
    assert 0 < overhead < latency <= elapsed
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
        "strategy": "single",
        "propensity": 1.0,
        "attempts": 1,
        "status": 200,
        "outcome": "ok",
        "prompt_tokens": 1000,
        "cached_tokens": 900,
        "completion_tokens": 10,
        "events": 0,
        "config_hash": (await client.get("/admin/config")).json()["hash"],
    }


async def test_what_a_policy_chose(client: httpx.AsyncClient, database: Path) -> None:
    """3 : 1 by weights, of which a fifth is drawn evenly: 0.8 x 3/4 + 0.1, and 0.8 x 1/4 + 0.1."""
    answers = [await client.post(CHAT, json=question(model="auto")) for _ in range(12)]
    rows = await until_stored(database, 12)
    assert [row["served_model"] for row in rows] == [answer.headers["x-trilemma-model"] for answer in answers]
    assert all(row["propensity"] == pytest.approx({"mock-model": 0.7, "other": 0.3}[row["served_model"]]) for row in rows)
    assert {(row["requested_model"], row["policy"]) for row in rows} == {("auto", "split")}


async def test_a_stream(client: httpx.AsyncClient, database: Path, mock: MockBackend) -> None:
    """Recorded when it has ended, with the usage that only the gateway asked for."""
    mock.script(Behaviour(tokens=("a", "b", "c"), tokens_per_second=20))
    answer = await client.post(CHAT, json=question(stream=True))
    assert not any(chunk.get("usage") for chunk in chunks(answer.content))
    (row,) = await until_stored(database, 1)
    assert (row["id"], row["status"], row["outcome"]) == (answer.headers["x-trilemma-decision-id"], 200, "ok")
    assert row["completion_tokens"] == 3
    assert row["cost_usd"] == pytest.approx((row["prompt_tokens"] * 1.0 + 3 * 2.0) / 1e6)
    assert row["latency_s"] > 2 / 20, "three tokens, a twentieth of a second apart"
    assert row["events"] >= 3
    assert f"{row['overhead_s'] * 1e3:.2f}" == answer.headers["x-trilemma-overhead-ms"]


async def test_errors(client: httpx.AsyncClient, database: Path, mock: MockBackend) -> None:
    mock.script(Behaviour(status=500, body='{"error":{"message":"out of memory"}}'), Behaviour(reset_after_events=-1, times=2))
    answers = [
        await client.post(CHAT, json=question()),
        await client.post(CHAT, json=question()),
        await client.post(CHAT, json=question(model="nobody")),
        await client.post(CHAT, content=b"{"),
        await client.post("/v1/files", json=question()),
    ]
    rows = await until_stored(database, 5)
    assert [row["id"] for row in rows] == [answer.headers["x-trilemma-decision-id"] for answer in answers]
    assert [row["status"] for row in rows] == [answer.status_code for answer in answers]
    assert [(row["outcome"], row["requested_model"], row["served_model"], row["status"]) for row in rows] == [
        ("backend_error", "mock-model", "mock-model", 500),
        ("backend_error", "mock-model", "mock-model", 502),
        ("caller_error", "nobody", None, 404),
        ("caller_error", None, None, 400),
        ("caller_error", None, None, 404),
    ]
    assert all(row[name] is None for row in rows for name in UNKNOWN)
    assert all(row["overhead_s"] is not None for row in rows)


async def test_a_stream_that_breaks(client: httpx.AsyncClient, database: Path, mock: MockBackend) -> None:
    mock.script(Behaviour(reset_after_events=2))
    await client.post(CHAT, json=question(stream=True))
    (row,) = await until_stored(database, 1)
    assert (row["status"], row["outcome"], row["completion_tokens"]) == (200, "backend_error", None)


async def test_callers_that_leave(client: httpx.AsyncClient, database: Path, mock: MockBackend) -> None:
    mock.script(Behaviour(tokens=("a",) * 50, stall_after_events=2), Behaviour(never_answer=True))
    async with client.stream("POST", CHAT, json=question(stream=True)) as answer:
        await anext(answer.aiter_bytes())
    (row,) = await until_stored(database, 1)
    assert (row["id"], row["status"], row["outcome"]) == (answer.headers["x-trilemma-decision-id"], 200, "client_closed")
    asking = asyncio.ensure_future(client.post(CHAT, json=question()))
    await mock.wait_for(lambda m: m.in_flight == 1)
    asking.cancel()
    row = (await until_stored(database, 2))[1]
    assert (row["status"], row["outcome"], row["overhead_s"], row["served_model"]) == (None, "client_closed", None, "mock-model")


async def test_strangers_leave_no_row(client: httpx.AsyncClient, gateway: Running, database: Path) -> None:
    """Without a key anybody could fill the disk."""
    async with gateway.client("sk-wrong") as stranger:
        assert (await stranger.post(CHAT, json=question())).status_code == 401
    await client.post(CHAT, json=question())
    await until_stored(database, 1)


async def test_no_word_of_prompts_answers_or_keys_is_kept(client: httpx.AsyncClient, database: Path, mock: MockBackend) -> None:
    """Not in the file, and not in its write-ahead log; whatever field a caller puts its text into."""
    mock.script(Behaviour(text="ANSWERCANARY", times=2))
    secret = [{"role": "user", "content": "PROMPTCANARY"}]
    await client.post(CHAT, json=question(messages=secret, user="USERCANARY", metadata={"a": "METACANARY"}))
    await client.post(CHAT, json=question(messages=secret, stream=True))
    await client.post(CHAT, json=question(model="tell me of PROMPTCANARY", messages=MESSAGES))
    await client.post(CHAT, json=question(), headers={"x-request-id": "PROMPTCANARY or not"})
    rows = await until_stored(database, 4)
    assert [row["requested_model"] for row in rows] == ["mock-model", "mock-model", None, "mock-model"]
    kept = b"".join(file.read_bytes() for file in database.parent.iterdir())
    assert rows[0]["id"].encode() in kept
    for word in (b"CANARY", b"sk-test", DIGEST.encode()):
        assert word not in kept


async def test_rows_tell_the_configuration_they_ran_under(client: httpx.AsyncClient, gateway: Running, database: Path) -> None:
    await client.post(CHAT, json=question())
    gateway.config["models"]["other"]["price"] = {"input": 5.0}
    reloaded = await client.post("/admin/config/reload")
    await client.post(CHAT, json=question())
    first, second = await until_stored(database, 2)
    assert second["config_hash"] == reloaded.json()["hash"] != first["config_hash"]


async def test_a_reload_while_a_request_comes_in(client: httpx.AsyncClient, gateway: Running, database: Path) -> None:
    """The configuration that served it counts, not the one that its head met."""
    body = json.dumps(question()).encode()
    reader, writer = await asyncio.open_connection(*httpx.URL(gateway.url).netloc.decode().split(":"))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode())
    assert b" 100 " in await reader.readline()  # so its head has been read
    gateway.config["models"]["other"]["price"] = {"input": 5.0}
    reloaded = await client.post("/admin/config/reload")
    writer.write(body)
    (row,) = await until_stored(database, 1)
    assert row["config_hash"] == reloaded.json()["hash"]
    writer.close()
    await writer.wait_closed()


async def test_another_database_waits_for_the_next_start(
    client: httpx.AsyncClient, gateway: Running, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.config["storage"]["url"] = f"sqlite:///{tmp_path / 'other.db'}"
    assert (await client.post("/admin/config/reload")).status_code == 200
    assert "changes under `storage` take effect at the next start" in caplog.messages
    await client.post(CHAT, json=question())
    await until_stored(database, 1)
    assert not (tmp_path / "other.db").exists()


async def test_the_newest_come_first_by_time_and_id(client: httpx.AsyncClient, database: Path) -> None:
    """The order in which requests came is the order of (created, id)."""
    ids = [(await client.post(CHAT, json=question())).headers["x-trilemma-decision-id"] for _ in range(5)]
    await until_stored(database, 5)
    with sqlite3.connect(database) as connection:
        found = [id_ for (id_,) in connection.execute("SELECT id FROM decisions ORDER BY created DESC, id DESC LIMIT 3")]
    connection.close()
    assert found == ids[::-1][:3]
