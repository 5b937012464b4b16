from __future__ import annotations

import logging

import pytest

from gateway.telemetry import access_log
from gateway.telemetry.logs import FIELDS
from gateway.wire.usage import Rates, Usage
from tests.telemetry.receipts import CHAT, receipt, upstream


def line(caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    (record,) = caplog.records
    return {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None} | {"message": record.getMessage()}


def test_ids_names_and_numbers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    access_log.told(receipt(upstream(usage=Usage(100, 60, 10)), usage=Usage(100, 60, 10), rates=Rates(1, 0.5, 2), overhead=0.0015))
    found = line(caplog)
    assert isinstance(found.pop("duration_ms"), float)
    assert found == {
        "message": f"POST {CHAT} 200",
        "request_id": "req-1",
        "decision_id": "0190-decision",
        "key": "web",
        "tenant": "shop",
        "method": "POST",
        "route": CHAT,
        "model": "m",
        "served_model": "m",
        "backend": "a",
        "status": 200,
        "outcome": "ok",
        "attempts": 1,
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "completion_tokens": 10,
        "cost_usd": pytest.approx((40 + 30 + 20) / 1e6),
        "overhead_ms": 1.5,
    }


def test_nothing_that_a_caller_made_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    access_log.told(receipt(requested_model="made up", path="/v1/made/up", status=404, outcome="caller_error", code="model_not_found"))
    found = line(caplog)
    assert "made" not in str(found)
    assert (found["route"], found["code"], found["message"]) == ("other", "model_not_found", "POST other 404")


def test_unheard_it_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    access_log.told(receipt(upstream()))
    assert caplog.records == []
