"""What passes through the gateway is not written down: neither what callers say nor what engines answer, whatever goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT
from tests.support.running import config_for, running

SECRET = "the patient's name is canary-5e1f"
EVENT = f'{{"choices":[{{"index":0,"delta":{{"content":"{SECRET}"}},"finish_reason":null}}]}}'
FAULTS = {
    "a refusal": Behaviour(status=400, body=f'{{"error":{{"message":"bad: {SECRET}"}}}}'),
    "an error page": Behaviour(status=502, body=f"<html>{SECRET}</html>", headers={"content-type": "text/html"}),
    "an error under 200": Behaviour(body=f'{{"error":{{"message":"{SECRET}"}}}}'),
    "no JSON": Behaviour(body=SECRET),
    "not HTTP": Behaviour(raw=SECRET.encode() + b"\r\n\r\n"),
    "a header that cannot be": Behaviour(raw=b"HTTP/1.1 200 OK\r\n" + SECRET.encode() + b"\r\n\r\n"),
    "an error event": Behaviour(events=(EVENT, f'{{"error":{{"message":"{SECRET}"}}}}')),
    "a stream that breaks": Behaviour(events=(EVENT, EVENT, EVENT), reset_after_events=2, cut_wait_s=0.02),
    "a list of models that is none": Behaviour(path="/v1/models", body=SECRET),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_no_body_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Behaviour) -> None:
    """Not at the most talkative level either, which is the one that is switched on when something goes wrong."""
    for library in ("httpx", "httpcore"):
        caplog.set_level(logging.WARNING, library)  # the test's own client
    caplog.set_level(logging.DEBUG)  # last, for it is the last that counts for what is caught
    async with (
        MockBackend(["m"], script=[fault, fault]) as mock,
        running(config_for({"e": {"url": mock.url, "models": {"m": "m"}}}), tmp_path) as run,
        run.client() as client,
    ):
        for stream in (False, True):
            await client.post(CHAT, json={"model": "m", "messages": [{"role": "user", "content": SECRET}], "stream": stream})
        await client.post(CHAT, content=b'{"model":"m","x":"' + SECRET.encode())
        await run.until_settled(3)
        await mock.wait_for(lambda m: len(m.requests_to(CHAT)) == 2)
    assert "canary-5e1f" not in caplog.text
