"""From LiteLLM's files to an answer: the written configuration is served, and keys of the dump open what they did."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
import yaml

from gateway.importing.cli import main
from gateway.mock import Behaviour, MockBackend
from gateway.mock.recorder import Received
from tests.importing.conftest import DUMPS
from tests.support.running import Running, running

CONFIG = """\
model_list:
  - model_name: chat-small
    litellm_params: {{model: hosted_vllm/small-it, api_base: "{small}/v1", api_key: none}}
    model_info: {{access_groups: [chat], input_cost_per_token: 1e-6, output_cost_per_token: 2e-6}}
  - model_name: chat-large
    litellm_params: {{model: hosted_vllm/large-it, api_base: "{large}/v1", api_key: sk-engine}}
    model_info: {{access_groups: [chat]}}
  - model_name: code
    litellm_params: {{model: hosted_vllm/small-it, api_base: "{small}/v1", api_key: none}}
router_settings:
  num_retries: 0
  model_group_alias: {{gpt-3.5-turbo: chat-small}}
  fallbacks: [{{chat-large: [chat-small]}}]
general_settings: {{master_key: sk-the-master}}
"""


@pytest.fixture
async def engines() -> AsyncIterator[tuple[MockBackend, MockBackend]]:
    async with MockBackend(["small-it"]) as small, MockBackend(["large-it"]) as large:
        yield small, large


@pytest.fixture
async def gateway(
    engines: tuple[MockBackend, MockBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Running]:
    """Trilemma over what `trilemma import litellm` wrote."""
    source, out = tmp_path / "litellm.yaml", tmp_path / "trilemma.yaml"
    source.write_text(CONFIG.format(small=engines[0].url, large=engines[1].url))
    assert main(["litellm", str(source), "--keys", str(DUMPS / "copy.sql"), "--out", str(out)], {}) == 1
    written = yaml.safe_load(out.read_text().replace("${CHAT_LARGE_KEY}", "sk-engine"))
    written["server"] = {"port": 0, "grace_s": 1}
    async with running(written, tmp_path / "state") as run:
        yield run


def client(gateway: Running, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


async def ask(gateway: Running, key: str, model: str) -> openai.types.chat.ChatCompletion:
    async with client(gateway, key) as sdk:
        return await sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])


def asked(engine: MockBackend) -> list[Received]:
    """The calls that an engine got, without probes."""
    return [request for request in engine.requests if request.call]


async def test_a_key_of_the_dump_gets_its_answer(gateway: Running, engines: tuple[MockBackend, MockBackend]) -> None:
    answer = await ask(gateway, "sk-web-7f3e", "gpt-3.5-turbo")
    assert answer.choices[0].message.content
    (request,) = asked(engines[0])
    assert json.loads(request.body)["model"] == "small-it"
    assert request.header("authorization") is None
    await gateway.until_settled(1)
    principal = gateway.settled[0].principal
    assert principal is not None
    assert (principal.key, principal.tenant) == ("web-frontend", "team-search")


async def test_keys_open_what_they_did_and_no_more(gateway: Running) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        await ask(gateway, "sk-web-7f3e", "chat-large")  # its team may not
    assert (await ask(gateway, "sk-dev-44", "chat-large")).choices
    for key in ("sk-leaver-77", "sk-contractor-55", "sk-oldteam-aa", "sk-session-88", "sk-injected", "sk-deleted", "sk-unheard-of"):
        with pytest.raises(openai.AuthenticationError):
            await ask(gateway, key, "chat-small")
    async with client(gateway, "sk-the-master") as sdk:
        assert {model.id async for model in sdk.models.list()} >= {"chat-small", "chat-large", "code", "gpt-3.5-turbo"}


async def test_limits_of_the_dump_are_counted(gateway: Running) -> None:
    async with client(gateway, "sk-nightly-11") as sdk:
        raw = await sdk.chat.completions.with_raw_response.create(model="code", messages=[{"role": "user", "content": "hi"}])
        assert (raw.headers["x-ratelimit-limit-requests"], raw.headers["x-ratelimit-remaining-requests"]) == ("600", "599")
        assert raw.headers["x-ratelimit-limit-tokens"] == "100000"


async def test_a_fallback_answers(gateway: Running, engines: tuple[MockBackend, MockBackend]) -> None:
    small, large = engines
    large.script(default=Behaviour(status=500))
    answer = await ask(gateway, "sk-dev-44", "chat-large")
    assert answer.choices[0].message.content
    assert [request.header("authorization") for request in asked(large)] == ["Bearer sk-engine"]
    assert [json.loads(request.body)["model"] for request in asked(small)] == ["small-it"]
