"""Callers against a mock that misbehaves, without a gateway between: what they note is what was done to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.load import faults
from gateway.load.arrivals import Ask
from gateway.load.client import Client
from gateway.load.faults import Scripted
from gateway.load.outcome import Record
from gateway.load.prompts import Block
from gateway.load.scenario import Load
from gateway.mock import MockBackend

LOAD = Load(constant=1, model="mock-model")


class Asking:
    """Asks one thing at a time."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, **more: Any) -> Record:
        given: dict[str, Any] = {"number": 0, "at": self.client.clock(), "load": "chat", "tenant": "t", "stream": True, "max_tokens": 6}
        ask = Ask(**(given | {"blocks": (Block("x", 5),)} | more))
        await self.client.ask(ask, self.client.payload(ask, LOAD))
        return self.client.records[-1]


@pytest.fixture
async def asking(mock: MockBackend) -> AsyncIterator[Asking]:
    client = Client(mock.url, {"t": "sk-t"}, patience_s=20)
    client.start(0.0)
    yield Asking(client)
    await client.close()


@pytest.fixture
async def impatient(mock: MockBackend) -> AsyncIterator[Asking]:
    client = Client(mock.url, {}, patience_s=0.4)
    client.start(0.0)
    yield Asking(client)
    await client.close()


async def test_a_stream_is_read_to_its_end(asking: Asking, mock: MockBackend) -> None:
    record = await asking()

    assert record.kind == "complete"
    assert record.events == 7  # the role, then six tokens
    assert record.sent is not None
    assert record.head is not None
    assert record.first is not None
    assert record.last is not None
    assert record.end is not None
    assert record.at <= record.sent <= record.head <= record.first <= record.last <= record.end
    assert len(asking.client.gaps["chat"]) == record.events - 1
    assert mock.requests[0].header("authorization") == "Bearer sk-t"


async def test_a_whole_answer_has_no_first_event(asking: Asking) -> None:
    record = await asking(stream=False)

    assert (record.kind, record.sse, record.first, record.events) == ("complete", False, None, 0)


async def test_a_connection_serves_again_after_a_clean_answer_only(asking: Asking, mock: MockBackend) -> None:
    await asking()
    await asking(stream=False)
    assert mock.opened == 1

    mock.script(faults.Reset(at=0, backend="", for_s=1).script())
    await asking()
    mock.reset()
    await asking()
    assert mock.opened == 2


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (faults.Errors(at=0, backend="", for_s=1, status=500), "failed"),
        (faults.Errors(at=0, backend="", for_s=1, status=503), "shed"),
        (faults.Flap(at=0, backend="", for_s=1), "failed"),
        (faults.Reset(at=0, backend="", for_s=1), "truncated"),
        (faults.Reset(at=0, backend="", for_s=1, after_events=-1), "failed"),
        (faults.Html(at=0, backend="", for_s=1), "garbled"),
        (faults.Html(at=0, backend="", for_s=1, status=502), "failed"),
        (faults.RateLimit(at=0, backend="", for_s=1, retry_after_s=7), "shed"),
        (faults.Flood(at=0, backend="", for_s=1, event_bytes=300_000, events=5), "complete"),
        (faults.SlowFirstToken(at=0, backend="", for_s=1, delay_s=0.05), "complete"),
    ],
)
async def test_what_is_done_to_a_caller(asking: Asking, mock: MockBackend, fault: Scripted, kind: str) -> None:
    mock.script(fault.script())

    record = await asking()

    assert record.kind == kind
    assert record.retry_after == isinstance(fault, faults.RateLimit)
    if isinstance(fault, faults.Flood):
        assert record.events == 5
        assert record.size > 1_500_000
    if isinstance(fault, faults.SlowFirstToken):
        assert record.ttft >= 0.05


@pytest.mark.parametrize(
    "fault",
    [
        faults.NeverAnswer(at=0, backend="", for_s=1),
        faults.Stall(at=0, backend="", for_s=1),
        faults.Stall(at=0, backend="", for_s=1, comments_s=0.05),
    ],
)
async def test_what_never_ends_is_hung_and_given_up(impatient: Asking, mock: MockBackend, fault: Scripted) -> None:
    mock.script(fault.script())

    record = await impatient()

    assert record.kind == "hung"
    assert record.events == (0 if isinstance(fault, faults.NeverAnswer) else 3)
    await mock.wait_for(lambda m: m.aborted == 1)


async def test_nobody_listens(asking: Asking, mock: MockBackend) -> None:
    await mock.aclose()

    record = await asking()

    assert (record.kind, record.trouble) == ("failed", "no connection: ConnectionRefusedError")


async def test_a_caller_leaves_after_so_many_events(asking: Asking, mock: MockBackend) -> None:
    record = await asking(max_tokens=4_000, leave_after_events=3)

    assert record.kind == "left"
    await mock.wait_for(lambda m: m.aborted == 1)


async def test_a_caller_leaves_at_a_moment(asking: Asking, mock: MockBackend) -> None:
    mock.script(faults.NeverAnswer(at=0, backend="", for_s=1).script())

    record = await asking(leave_at=asking.client.clock() + 0.05)

    assert record.kind == "left"
    await mock.wait_for(lambda m: m.aborted == 1)


async def test_a_slow_reader_holds_the_backend_up_and_gets_all(asking: Asking, mock: MockBackend) -> None:
    mock.script(faults.Flood(at=0, backend="", for_s=1, event_bytes=1_000_000, events=20).script())

    record = await asking(bytes_per_s=100_000.0, leave_at=asking.client.clock() + 0.5)
    assert record.kind == "left"
    # 20 MB were there to be taken at once. What one read took goes over the rate; what is on its way waits in the kernel, 6 MB at most.
    assert record.size < 1_000_000
    await mock.wait_for(lambda m: m.aborted == 1)

    mock.reset()
    assert (await asking(bytes_per_s=100_000.0)).kind == "complete"
    assert "chat" not in asking.client.gaps  # their gaps are nobody's fault


async def test_the_latency_counts_from_when_it_was_due(asking: Asking) -> None:
    record = await asking(at=asking.client.clock() - 5)

    assert record.ttft > 5
    assert record.total >= record.ttft


async def test_the_most_in_flight_since_last_asked(asking: Asking) -> None:
    await asking()
    assert asking.client.most_in_flight() == 1
    assert asking.client.most_in_flight() == 0
