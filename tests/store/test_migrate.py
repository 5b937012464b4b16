"""`trilemma migrate`: the schema comes up once, whoever asks and however often."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from gateway.store import revisions
from gateway.store.migrate import MigrationError, main, migrate
from gateway.store.tables import metadata

HEAD = "0001_decisions"


def tables(file: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def revise(file: Path, revision: str) -> None:
    """As if another version of Trilemma had migrated it."""
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_an_empty_database_comes_to_what_the_tables_say(tmp_path: Path) -> None:
    done = migrate(tmp_path / "d.db")
    assert (done.before, done.after) == (None, HEAD)
    engine = create_engine(f"sqlite:///{tmp_path / 'd.db'}")
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()


def test_a_second_time_nothing_happens(database: Path) -> None:
    before = database.read_bytes()
    assert str(migrate(database)) == f"at {HEAD} already"
    assert database.read_bytes() == before


def test_alembic_and_the_gateway_agree_on_the_versions() -> None:
    """The gateway knows them by their files' names, in one line."""
    config = Config()
    config.set_main_option("script_location", str(revisions.folder()))
    script = ScriptDirectory.from_config(config)
    line = [each.revision for each in script.walk_revisions()][::-1]
    assert list(revisions.known()) == line
    assert script.get_current_head() == line[-1]
    assert all(len(revision) <= 32 for revision in line)


def test_two_at_once_take_turns(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "gateway.store.migrate", "--url", f"sqlite:///{tmp_path / 'd.db'}", "--json"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in "ab"]
    told = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    befores = [json.loads(out)["before"] for out, _ in told]
    assert sorted(befores, key=str) == [HEAD, None], "exactly one of them did it"


def test_nobody_else_writes_between_looking_and_migrating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revision is read under the write lock; else two would find an empty database, and one of them fail."""
    look = MigrationContext.get_current_revision
    tried: list[str] = []

    def look_and_try(context: MigrationContext) -> str | None:
        with contextlib.closing(sqlite3.connect(tmp_path / "d.db", timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                tried.append(str(error))
        return look(context)

    monkeypatch.setattr(MigrationContext, "get_current_revision", look_and_try)
    migrate(tmp_path / "d.db")
    assert tried == ["database is locked"]


def test_all_or_nothing(tmp_path: Path) -> None:
    """A database in which the migration fails half-way is left as it was."""
    file = tmp_path / "d.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE other (decisions_by_model)")
        connection.execute("CREATE INDEX decisions_by_model ON other (decisions_by_model)")
    with pytest.raises(MigrationError, match="decisions_by_model already exists"):
        migrate(file)
    assert tables(file) == {"other"}


def test_a_newer_schema_is_left_alone(database: Path) -> None:
    """An update rolls out: whoever is older must neither fail on what the newer made, nor touch it."""
    revise(database, "0999_later")
    before = database.read_bytes()
    assert "newer than this version" in str(migrate(database))
    assert database.read_bytes() == before


def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "d.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num)")
        connection.execute("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
    with pytest.raises(MigrationError, match="belongs to another program"):
        migrate(file)
    assert tables(file) == {"alembic_version"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "trilemma.yaml"
    config.write_text('version: 1\nbackends: {a: {url: "http://a", models: {m: m}}}\nstorage: {url: "sqlite:///d.db"}\n')
    assert main(["--config", str(config)]) == 0
    assert capsys.readouterr() == (f"from nothing to {HEAD}\n", "")
    assert main(["--url", f"sqlite:///{tmp_path / 'd.db'}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "before": HEAD, "after": HEAD}


@pytest.mark.parametrize(
    ("url", "status", "said"),
    [
        ("sqlite:///{}/nowhere/d.db", 1, "the folder of the database is not there"),
        ("sqlite:///{}/text", 1, "file is not a database"),
        ("postgresql://db/trilemma", 2, "today only sqlite:///FILE works"),
        ("", 2, "there is no database"),
    ],
)
def test_what_cannot_be_done_is_said(url: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("not a database, but longer than an empty file")
    assert main(["--url", url.format(tmp_path)]) == status
    assert said in capsys.readouterr().err
    assert main(["--url", url.format(tmp_path), "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert said in told["error"]


def test_a_configuration_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
