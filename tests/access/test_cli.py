"""`trilemma keys`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.access.cli import main
from tests.support.stored import Place

KEYS = [{"name": "configured", "sha256": "ab" * 32}]


@pytest.fixture
def config(place: Place, tmp_path: Path) -> Path:
    """A configuration with that database."""
    return written(tmp_path, place.url)


def written(folder: Path, url: str) -> Path:
    file = folder / "trilemma.yaml"
    backends = {"a": {"url": "http://127.0.0.1:9", "models": {"m": "m"}}}
    file.write_text(json.dumps({"version": 1, "backends": backends, "keys": KEYS, "storage": {"url": url}}))
    return file


class Said:
    """What a command came to."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> None:
        self.status = main([str(each) for each in arguments])
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def test_a_fresh_key_and_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = Said(capsys, "--json").json, Said(capsys, "--json").json

    assert one["key"] != other["key"]
    assert len(one["key"]) >= 40
    assert one["sha256"] == hashlib.sha256(one["key"].encode()).hexdigest()
    plain = Said(capsys)
    assert (plain.status, plain.err) == (0, "")
    assert plain.out.startswith("key:    sk-")


def test_a_key_in_the_database_from_beginning_to_end(capsys: pytest.CaptureFixture[str], config: Path, place: Place) -> None:
    options = ("--tenant", "shop", "--model", "m*", "--scope", "inference", "--scope", "metrics", "--tag", "team=red", "--tag", "x=")
    limits = ("--rpm", "5", "--tpm", "100", "--concurrency", "2", "--priority", "batch", "--expires", "2999-12-31")
    found = Said(capsys, "new", "web", "--config", config, "--json", *options, *limits)

    assert found.status == 0
    secret = found.json["key"]
    (row,) = place.rows("keys")
    assert row["sha256"] == hashlib.sha256(secret.encode()).hexdigest()
    assert (row["name"], row["tenant"], row["priority"]) == ("web", "shop", "batch")
    assert (row["rpm"], row["tpm"], row["concurrency"]) == (5, 100, 2)
    assert [json.loads(row[name]) for name in ("scopes", "models", "tags")] == [["inference", "metrics"], ["m*"], {"team": "red", "x": ""}]
    assert secret.encode() not in place.everything()

    plain = Said(capsys, "new", "other", "--config", config)
    assert plain.status == 0 and plain.out.startswith("key: sk-") and "not shown again" in plain.out
    listed = Said(capsys, "list", "--config", config, "--json").json["keys"]
    assert [(key["name"], key["state"]) for key in listed] == [("web", "good until 3000-01-01T00:00:00Z"), ("other", "good")]
    assert "sha256" not in listed[0]

    assert Said(capsys, "revoke", "web", "--config", config).status == 0
    assert Said(capsys, "revoke", listed[1]["id"], "--config", config, "--json").json["state"] == "revoked"
    lines = Said(capsys, "list", "--config", config).out.splitlines()
    assert len(lines) == 2 and all("revoked" in line for line in lines)
    assert "rpm 5, tpm 100, at once 2" in lines[0]
    assert [row["action"] for row in place.rows("audit")] == ["key.new", "key.new", "key.revoke", "key.revoke"]
    assert {row["key_name"] for row in place.rows("audit")} == {"(command line)"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("new", "configured"), 1, "the configuration has a key `configured`"),
        (("new", "web", "--rpm", "0"), 1, "`limits.rpm` should be greater than or equal to 1"),
        (("new", "web", "--expires", "soon"), 1, "should be a time with its zone"),
        (("new", "web", "--tag", "red"), 2, "should be NAME=VALUE"),
        (("new", "a\nb"), 1, "`name` should hold only letters that can be shown"),
        (("revoke", "nobody"), 1, "the database has no key `nobody`"),
    ],
)
def test_what_cannot_be_done_is_told(
    capsys: pytest.CaptureFixture[str], config: Path, place: Place, arguments: tuple[str, ...], status: int, words: str
) -> None:
    found = Said(capsys, *arguments, "--config", config)

    assert (found.status, found.out) == (status, "")
    assert words in found.err
    assert place.rows("keys") == []


def test_a_name_is_given_once(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    assert Said(capsys, "new", "web", "--config", config).status == 0
    again = Said(capsys, "new", "web", "--config", config)
    assert (again.status, again.err) == (1, "trilemma keys: there is a key `web` already, or was one\n")


def test_a_database_without_the_schema_gets_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert Said(capsys, "new", "web", "--config", written(tmp_path, f"sqlite:///{tmp_path}/new.db")).status == 0


def test_without_a_database_there_are_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = Said(capsys, "list", "--config", written(tmp_path, ""))
    assert (found.status, "`storage.url` is empty" in found.err) == (2, True)
    found = Said(capsys, "list", "--config", tmp_path / "missing.yaml")
    assert (found.status, "cannot be read" in found.err) == (2, True)
    found = Said(capsys, "list", "--config", written(tmp_path, f"sqlite:///{tmp_path}/no/folder.db"))
    assert (found.status, "folder" in found.err) == (1, True)


def test_a_database_that_cannot_be_reached_shows_no_password(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = Said(capsys, "list", "--config", written(tmp_path, f"postgresql://u:canary-pw@/db?host={tmp_path}"))
    assert found.status == 1
    assert "canary-pw" not in found.err + found.out
