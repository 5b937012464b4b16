from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config.load import Loaded
from gateway.config.problems import ConfigError
from gateway.config.proposal import difference, proposed

Load = Callable[..., Loaded]


@pytest.fixture
def before(loaded: Load) -> Loaded:
    """What runs."""
    text = (
        "version: 1\nbackends:\n  a: {url: http://a, key: s3cr3t-0123456789, models: {m: m}}\nkeys: [{name: k, sha256: "
        + "ab" * 32
        + "}]\n"
    )
    return loaded(text)


def test_a_good_text(before: Loaded) -> None:
    proposal = proposed(before.text.replace("http://a", "http://b"), before, {})

    assert proposal.loaded.config.backends["a"].url == "http://b"
    assert proposal.loaded.hash != before.hash
    assert [str(each) for each in proposal.warnings] == [
        "3:55: warning: backends.a.models.m: model `m` has no price: its tokens count as free"
    ]
    assert proposal.diff.splitlines()[:2] == ["--- running", "+++ proposed"]
    assert [line for line in proposal.diff.splitlines() if line.startswith(("-  ", "+  "))] == [
        '-  a: {url: http://a, key: "***", models: {m: m}}',
        '+  a: {url: http://b, key: "***", models: {m: m}}',
    ]


def test_the_same_text_differs_in_nothing(before: Loaded) -> None:
    proposal = proposed(before.text, before, {})

    assert proposal.diff == ""
    assert proposal.loaded == before


def test_paths_start_where_the_file_is(before: Loaded, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    (tmp_path / "key").chmod(0o600)

    proposal = proposed(before.text.replace("key: s3cr3t-0123456789", "key_file: key"), before, {})

    assert proposal.loaded.config.backends["a"].key_file == tmp_path / "key"


def test_all_problems_are_told_at_once(before: Loaded) -> None:
    text = before.text.replace("s3cr3t-0123456789", "another-s3cr3t").replace("http://a", "ftp://a") + "sever: {}\n"

    with pytest.raises(ConfigError) as caught:
        proposed(text, before, {})

    assert [(each.line, each.path) for each in caught.value.problems] == [(3, "backends.a.url"), (3, "backends.a.key"), (5, "sever")]
    assert "s3cr3t" not in str(caught.value)


def test_what_cannot_work_is_a_problem(before: Loaded) -> None:
    with pytest.raises(ConfigError) as caught:
        proposed(before.text + "virtual_models: {v: {policy: none, plans: {p: {model: m}}}}\n", before, {})

    assert [each.path for each in caught.value.problems] == ["virtual_models.v.policy"]


@pytest.mark.parametrize("text", ["", "a: [", "\0", "- 1\n", "1", "\ud800"])
def test_what_is_no_configuration(before: Loaded, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        proposed(text, before, {})

    assert caught.value.problems


def test_a_difference() -> None:
    assert difference("a\nb\n", "a\nc\n", ("one", "two")) == "--- one\n+++ two\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
