"""`trilemma keys`: a new key, shown once, and its digest for the configuration; or keys kept in the database.

trilemma keys                                a key and its digest
trilemma keys new NAME --config FILE         a key in the database
trilemma keys list --config FILE
trilemma keys revoke NAME --config FILE      by name or id
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gateway.access.fresh import digest, new_key

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from gateway.store.keys import StoredKey
    from gateway.store.urls import Location

T = TypeVar("T")

BY: Final = "(command line)"
"""Who does it, as the audit log tells of it."""


class Failed(Exception):
    """It could not be done. status: of the command."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 it could not be done, 2 the configuration has problems or names no database."""
    args = _parser().parse_args(argv)
    try:
        work: Callable[[argparse.Namespace], None] = args.work
        work(args)
    except Failed as failed:
        print(f"trilemma keys: {failed}", file=sys.stderr)
        return failed.status
    return 0


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="trilemma keys", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(work=_fresh)
    commands = parser.add_subparsers(title="keys in the database", metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration that names the database")
    common.add_argument("--json", action="store_true", help="one JSON object")
    new = commands.add_parser("new", parents=[common], help="make a key; it is shown once")
    new.add_argument("name", help="what rows, logs and metrics call it")
    new.add_argument("--scope", action="append", choices=("inference", "admin", "metrics"), help="what it opens (default: inference)")
    new.add_argument("--tenant", default="default", help="whose key it is")
    new.add_argument("--model", action="append", metavar="PATTERN", help="models that it may ask for (default: all)")
    new.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="a tag for its decisions")
    new.add_argument("--priority", choices=("interactive", "batch"), default="interactive")
    new.add_argument("--expires", metavar="WHEN", help="2026-12-31, or a time with its zone: 2026-12-31T12:00:00Z")
    for name, what in (("rpm", "requests per minute"), ("tpm", "tokens per minute"), ("concurrency", "requests at once")):
        new.add_argument(f"--{name}", type=int, metavar="N", help=what)
    new.set_defaults(work=_new)
    commands.add_parser("list", parents=[common], help="all keys of the database").set_defaults(work=_list)
    revoke = commands.add_parser("revoke", parents=[common], help="revoke a key, for good")
    revoke.add_argument("name", help="its name or id")
    revoke.set_defaults(work=_revoke)
    return parser


def _fresh(args: argparse.Namespace) -> None:
    key = new_key()
    if args.json:
        print(json.dumps({"key": key, "sha256": digest(key)}))
    else:
        print(f"key:    {key}\nsha256: {digest(key)}\n\nThe key is not stored anywhere; the digest goes under `keys` in the configuration.")


def _new(args: argparse.Namespace) -> None:
    from gateway.access import register

    secret = new_key()
    properties = {
        "name": args.name,
        "scopes": args.scope or ["inference"],
        "tenant": args.tenant,
        "models": args.model or ["*"],
        "tags": dict(_tag(tag) for tag in args.tag),
        "priority": args.priority,
        "limits": {"rpm": args.rpm, "tpm": args.tpm, "concurrency": args.concurrency},
        "expires": args.expires,
    }
    location, names = _database(args.config)
    try:
        key = register.asked(properties, time.time(), digest=digest(secret))
        if key.name in names:
            raise register.Taken(f"the configuration has a key `{key.name}`")
        _done(location, lambda connection: register.made(connection, key, BY))
    except (register.Wrong, register.Taken) as error:
        raise Failed(str(error)) from None
    if args.json:
        print(json.dumps({"key": secret, **_properties(key)}))
    else:
        print(f"key: {secret}\n\n{key.name} ({key.id}) is good within two seconds. The key is not stored anywhere, and not shown again.")


def _list(args: argparse.Namespace) -> None:
    from gateway.store.keys import list_keys

    location, _ = _database(args.config)
    keys = _done(location, list_keys)
    if args.json:
        print(json.dumps({"keys": [_properties(key) for key in keys]}))
        return
    for key in keys:
        limits = ", ".join(f"{name} {value}" for name, value in (("rpm", key.rpm), ("tpm", key.tpm), ("at once", key.concurrency)) if value)
        words = (key.name, key.id, key.tenant, " ".join(key.scopes), _state(key), limits)
        print("  ".join(word for word in words if word))


def _revoke(args: argparse.Namespace) -> None:
    from gateway.access import register

    location, _ = _database(args.config)
    now = time.time()

    def work(connection: Connection) -> StoredKey | None:
        known = register.found(connection, args.name)
        return None if known is None else register.revoked(connection, known.id, BY, now)

    key = _done(location, work)
    if key is None:
        raise Failed(f"the database has no key `{args.name}`")
    print(json.dumps(_properties(key)) if args.json else f"{key.name} ({key.id}) is no good any more, within two seconds.")


def _database(config: Path) -> tuple[Location, frozenset[str]]:
    """The database that the configuration names, with the schema, and the names of the configuration's own keys."""
    from gateway.config.load import load
    from gateway.config.problems import ConfigError
    from gateway.store.migrate import MigrationError, migrate
    from gateway.store.urls import located

    try:
        loaded = load(config).config
        location = located(loaded.storage.url)
    except (ConfigError, ValueError) as error:
        raise Failed(str(error), 2) from None
    if location is None:
        raise Failed("there is no database: `storage.url` is empty; a key's digest can stand under `keys` in the configuration", 2)
    try:
        migrate(location)
    except MigrationError as error:
        raise Failed(str(error)) from None
    return location, frozenset(key.name for key in loaded.keys)


def _done(location: Location, work: Callable[[Connection], T]) -> T:
    from gateway.store.database import Database
    from gateway.store.writer import StoreError

    async def done() -> T:
        database = Database(location)
        try:
            return await database.run(work)
        finally:
            await database.close()

    try:
        return asyncio.run(done())
    except StoreError as error:
        raise Failed(str(error)) from None


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Failed(f"--tag {text}: should be NAME=VALUE", 2)
    return name, value


def _properties(key: StoredKey) -> dict[str, Any]:
    import msgspec

    values: dict[str, Any] = msgspec.structs.asdict(key)
    del values["sha256"]
    return values | {"state": _state(key)}


def _state(key: StoredKey) -> str:
    if key.revoked is not None:
        return "revoked"
    if key.expires is None:
        return "good"
    until = datetime.fromtimestamp(key.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"good until {until}" if key.expires > time.time() else "expired"


if __name__ == "__main__":
    sys.exit(main())
