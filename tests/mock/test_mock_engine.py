"""The engine behind the mock: tokens, counters, the prefix cache."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mock import Behaviour, MockBackend, cli
from gateway.mock.tokens import Vocabulary, alternatives, logprob, split


@given(st.text())
def test_tokens_join_to_the_text(text: str) -> None:
    vocabulary = Vocabulary()
    assert "".join(map(vocabulary.piece, vocabulary.ids(split(text)))) == text


def test_tokens_are_words_with_their_space() -> None:
    pieces = ["The", " capital", " of", " France", " is", " Paris", ".", " The", " capital", " of", " Italy", " is"]
    assert split("The capital of France is Paris. The capital of Italy is") == pieces


def test_pieces_with_one_checksum_keep_apart() -> None:
    vocabulary = Vocabulary()
    one, two = vocabulary.ids(["plumless", "buckeroo"])  # A known pair of equal CRC-32.
    assert (vocabulary.piece(one), vocabulary.piece(two), one != two) == ("plumless", "buckeroo", True)
    assert vocabulary.ids(["plumless", "buckeroo"]) == [one, two]


def test_alternatives_are_sorted_and_headed_by_the_piece() -> None:
    found = alternatives(" Rome", 3, 4)
    values = [value for _, value in found]
    assert found[0] == (" Rome", logprob(" Rome", 3))
    assert values == sorted(values, reverse=True)
    assert (len(found), alternatives(" Rome", 3, 0)) == (4, [])


async def metrics(client: httpx.AsyncClient) -> dict[str, float]:
    lines = (await client.get("/metrics")).text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


LABELS = 'engine="0",model_name="smollm2-135m"'


async def test_counters_count(client: httpx.AsyncClient) -> None:
    await client.post("/v1/completions", json={"prompt": "a b c", "max_tokens": 5, "n": 2})
    await client.post("/v1/completions", json={"prompt": "a b c", "max_tokens": 4, "stream": True})
    seen = await metrics(client)
    assert seen[f"vllm:prompt_tokens_total{{{LABELS}}}"] == 6
    assert seen[f"vllm:generation_tokens_total{{{LABELS}}}"] == 14
    assert seen['vllm:request_success_total{engine="0",finished_reason="length",model_name="smollm2-135m"}'] == 3


async def test_the_gauge_counts_sequences_until_they_end() -> None:
    async with MockBackend(["smollm2-135m"], max_num_seqs=3) as mock, httpx.AsyncClient(base_url=mock.url) as client:
        mock.script(Behaviour(first_token_delay_s=60))
        call = asyncio.create_task(client.post("/v1/completions", json={"prompt": "a", "n": 4, "max_tokens": 1}))
        await mock.wait_for(lambda m: m.in_flight == 1)
        seen = await metrics(client)
        assert seen[f"vllm:num_requests_running{{{LABELS}}}"] == 3
        assert seen[f"vllm:num_requests_waiting{{{LABELS}}}"] == 1
        assert seen[f"vllm:kv_cache_usage_perc{{{LABELS}}}"] > 0
        call.cancel()
        await mock.wait_for(lambda m: m.aborted == 1)
        seen = await metrics(client)
        assert seen[f"vllm:num_requests_running{{{LABELS}}}"] == 0
        assert seen[f"vllm:kv_cache_usage_perc{{{LABELS}}}"] == 0
        assert seen['vllm:request_success_total{engine="0",finished_reason="abort",model_name="smollm2-135m"}'] == 4


async def test_a_repeated_prefix_is_cached_in_blocks(client: httpx.AsyncClient) -> None:
    prompt = " ".join(["word"] * 70)
    cached = []
    for text in (prompt, prompt, prompt + " more", "other " + prompt):
        answer = await client.post("/v1/completions", json={"prompt": text, "max_tokens": 1})
        cached.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 64, 64, 0]  # Two whole blocks of 32.
    assert (await metrics(client))[f"vllm:prefix_cache_hits_total{{{LABELS}}}"] == 128


async def test_the_cache_has_room_for_so_many_tokens() -> None:
    """Room for 128 tokens, four blocks. Each prompt has three whole blocks and one token more; the usage tells what was cached."""
    a, b, c = (" ".join([word] * 97) for word in ("ant", "bee", "cat"))
    async with MockBackend(kv_tokens=128) as mock, httpx.AsyncClient(base_url=mock.url) as http:
        cached = []
        for text in (a, a, b, b, c, a):
            answer = await http.post("/v1/completions", json={"prompt": text, "max_tokens": 1})
            cached.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        exposed = (await http.get("/metrics")).text
    # b pushes out a's two last blocks; c pushes out what is left of a, and b's two last
    assert cached == [0, 96, 0, 96, 0, 0]
    assert 'num_gpu_blocks="4"' in exposed


async def test_a_cached_prompt_comes_sooner() -> None:
    """Of 33 tokens a block of 32 is cached; the last takes a day where a token does."""
    day = 1 / 86_400
    prompt = " ".join(["word"] * 33)
    async with MockBackend(default=Behaviour(prefill_tokens_per_second=day)) as mock, httpx.AsyncClient(base_url=mock.url) as http:
        mock.script(Behaviour(prefill_tokens_per_second=0), Behaviour(), Behaviour(prefill_tokens_per_second=1_000))
        warm = await http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        slow = asyncio.create_task(http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}))
        await mock.wait_for(lambda m: m.in_flight == 1)
        again = await http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        details = [answer.json()["usage"]["prompt_tokens_details"] for answer in (warm, again)]
        assert [one["cached_tokens"] for one in details] == [0, 32]
        assert mock.in_flight == 1
        slow.cancel()


def test_a_cache_without_a_block_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--kv-tokens", "31"])

    assert ended.value.code == 2
    assert "--kv-tokens: at least one block of 32" in capsys.readouterr().err


async def test_calls_are_counted_apart_from_probes(mock: MockBackend, client: httpx.AsyncClient) -> None:
    await client.get("/health")
    await client.get("/v1/models")
    await client.post("/tokenize", json={"prompt": "x"})
    await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1})

    gauges = (await client.get("/mock/requests")).json()
    assert (gauges["total"], gauges["calls"]) == (4, 1)
    mock.reset()
    assert (await client.get("/mock/requests")).json()["calls"] == 0


async def test_paced_tokens_come_one_by_one() -> None:
    """The pace of the mock's default holds for a scripted answer that names none."""
    async with MockBackend(default=Behaviour(tokens_per_second=100)) as mock, httpx.AsyncClient(base_url=mock.url) as http:
        mock.script(Behaviour(tokens=("a", "b", "c"), end_without_done=True))
        seen: list[int] = []
        call = asyncio.create_task(http.post("/v1/completions", json={"prompt": "x", "stream": True}))
        await mock.wait_for(lambda m: m.total == 1)
        while not seen or seen[-1] < 4:
            await mock.wait_for(lambda m: m.requests[0].events_sent > (seen[-1] if seen else 0))
            seen.append(mock.requests[0].events_sent)
        assert seen == [1, 2, 3, 4]
        await call


async def test_paced_and_unpaced_requests_do_not_wait_for_each_other(mock: MockBackend) -> None:
    mock.script(Behaviour(tokens_per_second=0.01))
    async with httpx.AsyncClient(base_url=mock.url) as http:
        slow = asyncio.create_task(http.post("/v1/completions", json={"prompt": "x", "max_tokens": 3}))
        await mock.wait_for(lambda m: m.in_flight == 1)
        assert (await http.post("/v1/completions", json={"prompt": "x", "max_tokens": 3})).status_code == 200
        assert mock.in_flight == 1
        slow.cancel()
