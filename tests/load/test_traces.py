from __future__ import annotations

import re

import pytest

from gateway.load import traces
from gateway.load.traces import TRACES, Row, TraceMissing, digest, folder, read_trace

README = (folder() / "README.md").read_text()


def test_azure_conversations_are_as_published() -> None:
    rows = read_trace("azure_conv")

    assert len(rows) == 19_366
    assert rows[0] == Row(0.0, 374, 44)
    assert rows[1].at == pytest.approx(4.314579)  # 18:15:46.680590 to 18:15:50.995169
    assert (rows[-1].prompt_tokens, rows[-1].output_tokens) == (197, 183)
    assert rows[-1].at == pytest.approx(3_501.721937)


def test_azure_code_is_as_published() -> None:
    rows = read_trace("azure_code")

    assert len(rows) == 8_819
    assert rows[0] == Row(0.0, 4_808, 10)
    assert (rows[-1].prompt_tokens, rows[-1].output_tokens) == (549, 173)


def test_mooncake_tells_which_blocks_are_shared() -> None:
    rows = read_trace("mooncake_conversation")

    assert len(rows) == 12_031
    assert rows[0] == Row(0.0, 6_758, 500, tuple(range(14)))
    assert rows[1].blocks[:2] == (0, 14)
    assert all((len(row.blocks) - 1) * 512 < row.prompt_tokens <= len(row.blocks) * 512 for row in rows)


@pytest.mark.parametrize("name", TRACES)
def test_rows_are_in_order(name: str) -> None:
    times = [row.at for row in read_trace(name)]

    assert times == sorted(times)
    assert times[0] == 0


@pytest.mark.parametrize("name", TRACES)
def test_the_readme_names_every_file_with_its_digest_and_licence(name: str) -> None:
    entry = next(line for line in README.splitlines() if line.startswith(f"| `{TRACES[name]}` |"))

    assert digest(name) in entry
    assert re.search(r"CC-BY-4\.0|Apache-2\.0", entry)
    assert re.search(r"\b[0-9a-f]{40}\b", entry)


def test_a_missing_file_is_named(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "folder", lambda: tmp_path)

    with pytest.raises(TraceMissing, match=r"azure2023_conv\.csv\.gz, which is not part of an installed wheel"):
        read_trace("azure_conv")
