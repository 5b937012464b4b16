from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mock.metrics import Engine
from gateway.pool.metrics import LIMIT, Scraped, scraped

SAMPLES = Path(__file__).parents[1] / "samples"


def test_vllm_under_load() -> None:
    """32 sequences at once in a server with --max-num-seqs 16."""
    text = (SAMPLES / "vllm" / "metrics_under_load.txt").read_bytes()

    assert scraped(text, 7.0) == Scraped(at=7.0, running=16.0, waiting=16.0, kv_usage=0.02268041237113405)


def test_llamacpp() -> None:
    """It no longer says how full its cache is."""
    text = (SAMPLES / "llamacpp" / "metrics.txt").read_bytes()

    assert scraped(text, 0.0) == Scraped(at=0.0, running=0.0, waiting=0.0, kv_usage=None)


def test_the_mock_backend() -> None:
    assert scraped(Engine("m", max_num_seqs=4, kv_tokens=1_024).exposition(), 0.0) == Scraped(0.0, 0.0, 0.0, 0.0)


def test_an_older_llamacpp() -> None:
    text = b"llamacpp:kv_cache_usage_ratio 0.25\nllamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n"

    assert scraped(text, 0.0) == Scraped(0.0, running=3.0, waiting=2.0, kv_usage=0.25)


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm_", "ray_vllm:"])
def test_names_that_were_cleaned_on_the_way(prefix: str) -> None:
    text = f'{prefix}num_requests_running{{engine="0"}} 2\n{prefix}num_requests_waiting 1\n{prefix}gpu_cache_usage_perc 0.5\n'

    assert scraped(text.encode(), 0.0) == Scraped(0.0, 2.0, 1.0, 0.5)


def test_engines_behind_one_address_are_added_up_and_the_fullest_cache_counts() -> None:
    text = "".join(
        f'vllm:{name}{{engine="{engine}"}} {value}\n'
        for engine, values in enumerate([(1, 0, 0.2), (2, 10, 0.4), (3, 20, 0.3)])
        for name, value in zip(("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"), values, strict=True)
    )

    assert scraped(text.encode(), 0.0) == Scraped(0.0, running=6.0, waiting=30.0, kv_usage=0.4)


@pytest.mark.parametrize(
    "line",
    [
        b'vllm:num_requests_waiting{model_name="a b} 7 \\" 8"} 3.0',
        b"vllm:num_requests_waiting 3.0 1796051393000",
        b"vllm:num_requests_waiting\t3e0\r",
        b"vllm:num_requests_waiting{} 3",
    ],
)
def test_forms_of_a_line(line: bytes) -> None:
    assert scraped(line, 0.0).waiting == 3.0
    assert scraped(b"# comment\n" + line + b"\nup 1\n", 0.0).waiting == 3.0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html><body>vllm:num_requests_waiting 5</body></html>",
        b"# HELP vllm:num_requests_waiting 5",
        b"vllm:num_requests_waiting",
        b"vllm:num_requests_waiting NaN\nvllm:num_requests_running +Inf\nvllm:kv_cache_usage_perc -1",
        b"vllm:num_requests_waiting 1_000\nvllm:num_requests_running 0x10\nvllm:kv_cache_usage_perc 97",
        b"vllm:num_requests_waiting 1e999\nvllm:num_requests_running 1-2\nvllm:kv_cache_usage_perc .",
        b"vllm:num_requests_running 1e308\nvllm:num_requests_running 1e308",
        b"vllm:num_requests_waiting_by_reason 5\nvllm:num_requests 5\nxvllm:num_requests_running 5",
        b'vllm:num_requests_waiting{model_name="a" 5',
        b"\x00\xff\xfe" * 100,
    ],
)
def test_what_makes_no_sense_is_unknown(text: bytes) -> None:
    assert scraped(text, 0.0) == Scraped(0.0)


@given(text=st.binary() | st.text(alphabet='vllm:num_requests_waiting{}"\n 0123456789.e+-#,=').map(str.encode))
@settings(deadline=None)
def test_nothing_is_raised_on_garbage(text: bytes) -> None:
    found = scraped(text, 0.0)

    assert all(value is None or 0 <= value < float("inf") for value in (found.running, found.waiting, found.kv_usage))


def test_no_more_than_the_limit_is_read_and_no_number_is_cut() -> None:
    filler = b"x 1\n" * (LIMIT // 4 - 8)
    line = b"vllm:num_requests_waiting 123456\n"  # the limit falls into the number

    assert len(filler) < LIMIT < len(filler + line)
    assert scraped(filler + line, 0.0).waiting is None
    assert scraped(line + filler * 3, 0.0).waiting == 123456.0
    assert scraped(b"x" * (2 * LIMIT), 0.0) == Scraped(0.0)


def test_an_old_queue_counts_for_less() -> None:
    said = Scraped(at=100.0, waiting=8.0)

    assert [said.queued(now, half_life_s=5.0) for now in (100.0, 105.0, 115.0)] == [8.0, 4.0, 1.0]
    assert said.queued(1e9) == 0.0
    assert said.age_s(103.0) == 3.0


def test_an_unknown_queue_counts_for_nothing() -> None:
    assert Scraped(at=100.0).queued(100.0) == 0.0
