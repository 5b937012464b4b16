"""The configuration as one worker of several is given it: complete, so that it reads no file, and all of them have the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
from pydantic import BaseModel, SecretStr

from gateway.config.changes import AT_ONCE
from gateway.config.load import Loaded
from gateway.config.schema import Config, Model
from gateway.config.tree import Entries, Mark
from gateway.workers.messages import Given

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a configuration goes.

    first: the gateway's at its start, of which a worker that starts later has what no reload changes. secret: in place of `server.secret`
    when there is none, so that digests are the same everywhere. ports: of managed engines. worker: its number, from 1, of so many.
    """

    first: Config
    secret: str
    ports: Mapping[str, int]
    worker: int
    of: int


def given(loaded: Loaded, place: Place) -> Given:
    """What a worker is to run. A queue's bounds are shared out, so that all workers together keep them."""
    config, first = loaded.config, place.first
    own = {"secret": first.server.secret or SecretStr(place.secret), "secret_file": None, "watch": False, "workers": place.of}
    server = first.server.model_copy(update=own | {key: getattr(config.server, key) for key in AT_ONCE})
    backends = {
        name: each if each.launch is None else each.model_copy(update={"port": place.ports[name]}) for name, each in config.backends.items()
    }
    models = {name: _model(each, place.worker, place.of) for name, each in config.models.items()}
    parts = {"server": server, "backends": backends, "models": models, "storage": first.storage}
    config = _without_files(config.model_copy(update=parts))
    text = orjson.dumps(config.model_dump(exclude_unset=True), default=_plain).decode()
    return Given(text, loaded.hash, loaded.source, loaded.text)


def received(carried: Given) -> Loaded:
    """What was given. It knows no files, and no lines."""
    config = Config.model_validate_json(carried.config, strict=True)
    return Loaded(config, carried.hash, carried.source, {}, Entries({}, Mark(1, 1), 1), carried.text)


def share(whole: int, worker: int, of: int) -> int:
    """A worker's part of a whole number: the parts of all are the whole, and differ by 1 at most."""
    return whole // of + (worker <= whole % of)


def _without_files(value: T) -> T:
    """Keys go as they are, and not as the names of files, wherever they stand."""
    if isinstance(value, BaseModel):
        changed = {name: new for name, each in value if (new := None if name == "key_file" else _without_files(each)) is not each}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, dict):
        within = {name: _without_files(each) for name, each in value.items()}
        return cast("T", within) if any(within[name] is not each for name, each in value.items()) else value
    return value


def _model(model: Model, worker: int, of: int) -> Model:
    queue = model.queue
    if queue is None:
        return model
    own = {"slots": max(1, share(queue.slots, worker, of)), "room": share(queue.room, worker, of)}
    return model.model_copy(update={"queue": queue.model_copy(update=own)})


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(type(value).__name__)
