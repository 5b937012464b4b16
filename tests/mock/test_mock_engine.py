"""The engine behind the mock: tokens, counters, the prefix cache."""

from __future__ import annotations

import asyncio

import httpx
from hypothesis import given
from hypothesis import strategies as st

from gateway.mock import Behaviour, MockBackend
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
