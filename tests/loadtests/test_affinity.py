from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gateway.load.traces import Row, read_trace
from gateway.mock.prefix_cache import PrefixCache
from loadtests import affinity
from loadtests.affinity import Engine, Figures, rules, simulate

DATA = Path(affinity.__file__).parent / "data"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_trace(affinity.TRACE)[:3_000]


def figures(rows: list[Row], replicas: int, cache_blocks: int = 10_000) -> dict[str, Figures]:
    return {name: simulate(rows, replicas, cache_blocks, name, rule) for name, rule in rules(0).items()}


def test_the_trace_is_what_its_readme_says() -> None:
    digest = hashlib.sha256((DATA / "mooncake_conversation.jsonl.gz").read_bytes()).hexdigest()

    assert digest in (DATA / "README.md").read_text()


def test_a_replica_prefills_one_prompt_after_another_and_decodes_all_at_once() -> None:
    """10,000 tokens take 1 s, a token of the answer 25 ms; the 5 blocks that the second finds cached are 2,560 tokens."""
    replica = Engine("r", PrefixCache(100))

    assert replica.serve(10.0, Row(0.0, 10_000, 100, tuple(range(20)))) == (0, 0.0, 1.0)
    hits, wait, first = replica.serve(10.5, Row(0.0, 12_560, 40, (*range(5), *range(50, 70))))
    assert (hits, wait, first) == (5, 0.5, pytest.approx(1.5))
    assert replica.in_flight == 2
    replica.settle(13.0)  # the second ends at 12 + 1 s, the first at 11 + 2.5 s
    assert replica.in_flight == 1


def test_of_one_replica_there_is_no_choice(rows: list[Row]) -> None:
    """All rules find what one cache holds; without a bound that is every leading block seen before."""
    seen: set[int] = set()
    known = 0
    for row in rows:
        known += next((place for place, block in enumerate(row.blocks) if block not in seen), len(row.blocks))
        seen.update(row.blocks)

    found = figures(rows, 1, cache_blocks=1_000_000)

    assert {one.hit_rate for one in found.values()} == {known / sum(len(row.blocks) for row in rows)}


def test_affinity_finds_more_than_rules_that_look_at_load_only_and_spreads_as_they_do(rows: list[Row]) -> None:
    found = figures(rows, 4)

    assert found["affinity"].hit_rate > 1.5 * max(found["random"].hit_rate, found["least_loaded"].hit_rate)
    assert found["affinity"].calls_spread < 1.25
    assert found["affinity"].load_spread < found["random"].load_spread
    assert found["affinity"].ttft_p95_s < min(found["random"].ttft_p95_s, found["least_loaded"].ttft_p95_s)


def test_hashing_what_all_share_sends_all_to_one(rows: list[Row]) -> None:
    assert figures(rows, 4)["hash"].calls_spread == 4.0


def test_the_page_tells_what_the_command_finds(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DATA.parents[1] / "docs/load.md").read_text()

    assert affinity.main(["--markdown"]) == 0
    assert capsys.readouterr().out in page


def test_figures_for_machines_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--calls", "200", "--replicas", "2", "--blocks", "500"]

    assert affinity.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert affinity.main(arguments) == 0
    table = capsys.readouterr().out.splitlines()

    assert (report["calls"], report["seed"]) == (200, 0)
    assert [one["rule"] for one in report["figures"]] == ["affinity", "hash", "hash_2", "least_loaded", "random"]
    for one, line in zip(report["figures"], table[1:], strict=False):
        assert line.split()[:4] == ["2", "500", one["rule"], f"{one['hit_rate']:.4f}"]
