"""A configuration without its secrets, and the digest that names it on every row.

Two files with the same meaning have one digest: comments, formatting, defaults written out and the folder do not count.
The order of backends, models and plans counts, for it decides ties. A secret counts only by being there: turning a key
over changes no digest.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from gateway.config.schema import Config

_MASK = "**********"
URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")
"""A password in a URL; group 1 is the user."""

SECRET_FLAG = re.compile(r"(-hft|-{1,2}(?:[\w-]*[-_])?(?:keys?|token|secrets?|password))(=.*)?", re.IGNORECASE | re.DOTALL)
"""An engine's flag whose value is a secret; group 2 is that value, if it is in the same argument. (`--max-tokens` is none.)"""


def public(config: Config) -> dict[str, Any]:
    """The configuration as JSON values, defaults included; secrets, database passwords and secret flags masked."""
    values = config.model_dump(mode="json")
    values["storage"]["url"] = URL_PASSWORD.sub(rf"\1:{_MASK}", values["storage"]["url"])
    for backend in values["backends"].values():
        backend["args"] = _masked(backend["args"])
    return values


def digest(config: Config) -> str:
    """SHA-256 of the public form, as 64 hex digits."""
    text = json.dumps(public(config), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _masked(args: list[str]) -> list[str]:
    masked, secret_follows = [], False
    for arg in args:
        flag = SECRET_FLAG.fullmatch(arg)
        if secret_follows and not arg.startswith("--"):
            masked.append(_MASK)
        elif flag is not None and flag[2] is not None:
            masked.append(f"{flag[1]}={_MASK}")
        else:
            masked.append(arg)
        secret_follows = flag is not None and flag[2] is None
    return masked
