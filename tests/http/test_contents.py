"""Prompts and answers are kept where the operator wants it, and nowhere else."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT
from tests.support.databases import decisions, migrated
from tests.support.running import config_for, running

__all__ = ["decisions", "migrated"]
pytestmark = pytest.mark.usefixtures("decisions")

SECRET = "the word is petrichor"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": SECRET}]}


def rows(file: Path) -> list[tuple[Any, ...]]:
    if not file.exists():
        return []
    with sqlite3.connect(file) as connection:
        try:
            return connection.execute("SELECT prompt, answer, truncated FROM contents").fetchall()
        except sqlite3.OperationalError:  # the tables are not there yet
            return []


def everything(folder: Path) -> bytes:
    """The database's bytes, with those of its log."""
    return b"".join(file.read_bytes() for file in folder.glob("decisions.db*"))


async def kept(tmp_path: Path, contents: dict[str, Any] | None, *asks: dict[str, Any], text: str = "damp earth") -> list[tuple[Any, ...]]:
    """What is in the table once all rows are stored; answers are `text`, a word an event."""
    file = tmp_path / "decisions.db"
    async with MockBackend(["m"]) as mock:
        mock.script(default=Behaviour(text=text))
        storage = {"url": f"sqlite:///{file}"} | ({} if contents is None else {"contents": contents})
        config = config_for({"mock": {"url": mock.url, "models": {"m": "m"}}}, storage=storage)
        async with running(config, tmp_path / "state") as run, run.client() as client:
            for ask in asks:
                assert (await client.post(CHAT, json=ask)).status_code == 200
            await run.until_settled(len(asks))
    return rows(file)


async def test_by_default_no_word_is_kept(tmp_path: Path) -> None:
    assert await kept(tmp_path, None, ASK, ASK | {"stream": True}) == []
    assert SECRET.encode() not in everything(tmp_path)


async def test_a_whole_answer(tmp_path: Path) -> None:
    ((prompt, answer, truncated),) = await kept(tmp_path, {"enabled": True}, ASK)
    assert json.loads(prompt) == ASK["messages"]
    assert json.loads(answer)["choices"][0]["message"]["content"] == "damp earth"
    assert not truncated


async def test_a_stream_as_the_caller_saw_it(tmp_path: Path) -> None:
    ((prompt, answer, truncated),) = await kept(tmp_path, {"enabled": True}, ASK | {"stream": True})
    assert json.loads(prompt) == ASK["messages"]
    events = [json.loads(line[6:]) for line in answer.split("\n\n") if line and "[DONE]" not in line]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == "damp earth"
    assert answer.endswith("data: [DONE]\n\n")
    assert not truncated


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_no_more_than_so_many_bytes_of_each(tmp_path: Path, stream: bool) -> None:
    ((prompt, answer, truncated),) = await kept(tmp_path, {"enabled": True, "max_bytes": 20}, ASK | {"stream": stream})
    assert prompt == json.dumps(ASK["messages"], separators=(",", ":"))[:20]
    assert len(answer) == 20
    assert truncated
