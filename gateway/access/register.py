"""The database's keys changed: made, altered, revoked, each with its entry in the audit log, both or neither.

Every function takes a connection that `Database.run` hands it. by: who does it, the name of a key.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from gateway.config.schema import Key, moment
from gateway.store.audit import add_audit
from gateway.store.keys import StoredKey, add_key, change_key, get_key, list_keys, revoke_key

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LIMITS = ("rpm", "tpm", "concurrency")


class Wrong(ValueError):
    """A property that cannot be. where: its name; unknown: there is no such property."""

    def __init__(self, where: str, message: str, *, unknown: bool = False) -> None:
        super().__init__(f"`{where}` {message}")
        self.where = where
        self.unknown = unknown


class Taken(ValueError):
    """There is a key of that name."""


def asked(properties: Mapping[str, Any], now: float, before: StoredKey | None = None, digest: str = "") -> StoredKey:
    """A key as somebody asks for it, with the properties that one has in the configuration, but for `sha256`.

    before: the key until now, whose name stays; what is not named stays, too. digest: of a new one. Raises Wrong.
    """
    given = dict(properties)
    for name in ("sha256", *(() if before is None else ("name",))):
        if name in given:
            raise Wrong(name, "cannot be said", unknown=True)
    expires = _expiry(given.pop("expires", None)) if "expires" in given else None if before is None else before.expires
    if before is not None:
        given = _properties(before) | given
        if isinstance(limits := given["limits"], Mapping):
            given["limits"] = {name: getattr(before, name) for name in _LIMITS} | dict(limits)
    try:
        spec = Key.model_validate(given | {"sha256": digest if before is None else before.sha256}, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        unknown = first["type"] == "extra_forbidden"
        where = ".".join(map(str, first["loc"]))
        message = "is not known" if unknown else first["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("Value error, ")
        raise Wrong(where, message, unknown=unknown) from None
    _check_texts(spec)
    return StoredKey(
        id=f"key-{secrets.token_hex(8)}" if before is None else before.id,
        name=spec.name,
        sha256=spec.sha256,
        created=now if before is None else before.created,
        scopes=tuple(spec.scopes),
        tenant=spec.tenant,
        models=tuple(spec.models),
        tags=spec.tags,
        priority=spec.priority,
        rpm=spec.limits.rpm,
        tpm=spec.limits.tpm,
        concurrency=spec.limits.concurrency,
        expires=expires,
        revoked=None if before is None else before.revoked,
    )


def made(connection: Connection, key: StoredKey, by: str, detail: Mapping[str, Any] | None = None) -> StoredKey:
    """Stores a new key. Raises Taken."""
    if not add_key(connection, key):
        raise Taken(f"there is a key `{key.name}` already, or was one")
    add_audit(connection, key.created, by, "key.new", key.name, after_hash=_hash(key), detail=detail)
    return key


def altered(
    connection: Connection, id_: str, change: Callable[[StoredKey], StoredKey], by: str, now: float, detail: Mapping[str, Any] | None = None
) -> StoredKey | None:
    """The key of that id, as `change` makes it; None: there is none. What `change` raises is raised."""
    before = get_key(connection, id_)
    if before is None:
        return None
    key = change(before)
    if key != before:
        change_key(connection, key)
        add_audit(connection, now, by, "key.change", key.name, before_hash=_hash(before), after_hash=_hash(key), detail=detail)
    return key


def revoked(connection: Connection, id_: str, by: str, now: float, detail: Mapping[str, Any] | None = None) -> StoredKey | None:
    """The key of that id, which is no good from now on, if it ever was; None: there is none."""
    before = get_key(connection, id_)
    if before is None:
        return None
    if revoke_key(connection, id_, now):
        key = msgspec.structs.replace(before, revoked=now)
        add_audit(connection, now, by, "key.revoke", key.name, before_hash=_hash(before), after_hash=_hash(key), detail=detail)
        return key
    return before


def found(connection: Connection, name: str) -> StoredKey | None:
    """The key of that id or name."""
    return get_key(connection, name) or next((key for key in list_keys(connection) if key.name == name), None)


def _properties(key: StoredKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": list(key.scopes),
        "tenant": key.tenant,
        "models": list(key.models),
        "tags": dict(key.tags),
        "priority": key.priority,
        "limits": {name: getattr(key, name) for name in _LIMITS},
    }


def _expiry(given: Any) -> float | None:
    """Seconds since 1970, or as the configuration has it. Raises Wrong."""
    if given is None:
        return None
    if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given) and 0 <= given < 1e11:
        return float(given)
    if not isinstance(given, str):
        raise Wrong("expires", "should be a time, or null: never")
    try:
        return moment(given)
    except ValueError as error:
        raise Wrong("expires", str(error)) from None


def _check_texts(spec: Key) -> None:
    """What cannot be shown, or stored by every database. Raises Wrong."""
    for where, texts in (
        ("name", [spec.name]),
        ("tenant", [spec.tenant]),
        ("models", spec.models),
        ("tags", [*spec.tags, *spec.tags.values()]),
    ):
        if not all(text.isprintable() for text in texts):
            raise Wrong(where, "should hold only letters that can be shown")


def _hash(key: StoredKey) -> str:
    return hashlib.sha256(msgspec.json.encode(key, order="deterministic")).hexdigest()
