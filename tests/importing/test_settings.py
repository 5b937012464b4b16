"""What holds for all models: which of two sections, in which bounds, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.importing.document import load
from gateway.importing.report import Report
from gateway.importing.settings import Settings, read
from tests.importing.conftest import Result

Write = Callable[[str, str], Path]


@pytest.fixture
def settings(write: Write) -> Callable[[str], tuple[Settings, Report]]:
    def settings(written: str) -> tuple[Settings, Report]:
        report = Report()
        return read(load(write("c.yaml", written)), report), report

    return settings


def test_router_settings_hold_over_litellm_settings(settings: Callable[[str], tuple[Settings, Report]]) -> None:
    found, report = settings(
        "router_settings: {num_retries: 0, allowed_fails: null, timeout: 30}\n"
        "litellm_settings: {num_retries: 5, allowed_fails: 7, request_timeout: 600, fallbacks: [{a: [b]}]}\n"
    )
    assert (found.retries, found.allowed_fails, found.timeout_s) == (0, 7, 30)
    assert found.fallbacks is not None
    assert report.entries == ()


def test_what_says_nothing_is_not_told(settings: Callable[[str], tuple[Settings, Report]]) -> None:
    _, report = settings(
        "litellm_settings: {drop_params: false, cache: no, callbacks: [], cache_params: {}, success_callback: null}\n"
        "general_settings: null\n"
    )
    assert report.entries == ()


def test_numbers_out_of_bounds_and_sections_of_the_wrong_kind(settings: Callable[[str], tuple[Settings, Report]]) -> None:
    found, report = settings("router_settings: {timeout: 1000000, cooldown_time: soon}\nlitellm_settings: [a]\n")
    assert (found.timeout_s, found.cooldown_s) == (86_400, None)
    assert [(entry.kind, entry.setting) for entry in report.entries] == [
        ("lost", "router_settings.cooldown_time"),
        ("lost", "litellm_settings"),
        ("changed", "router_settings.timeout"),
    ]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("least-busy", None),
        ("simple-shuffle", "by lot"),
        ("latency-based-routing", "latencies"),
        ("usage-based-routing", "tokens"),
        ("mine", "share"),
    ],
)
def test_strategies(litellm: Callable[..., Result], strategy: str, words: str | None) -> None:
    result = litellm(
        "model_list: [{model_name: a, litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}}]\n"
        f"router_settings: {{routing_strategy: {strategy}}}\n"
    )
    assert result.says("changed", "router_settings.routing_strategy", words or "") is (words is not None)


def test_server(litellm: Callable[..., Result]) -> None:
    result = litellm(
        "model_list: [{model_name: a, litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}}]\n"
        "general_settings: {master_key: sk-x, max_request_size_mb: 0.5}\nlitellm_settings: {sse_keepalive_ping_interval_seconds: 15}\n"
    )
    assert (result.config.server.max_body_bytes, result.config.server.heartbeat_s) == (524_288, 15)
