"""`${NAME}` and `${NAME:-default}` in a configuration's values, answered from the environment.

A variable that is unset or empty is answered by the file that `NAME_FILE` names (a mounted secret), else by the
default, else it is an error: an empty value that is meant is written `${NAME:-}`. `$${` stands for a literal `${`.
Values are expanded after YAML is parsed, and once: what the environment holds cannot become configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.config.files import Stamp, read_secret, reason, stamp

_REFERENCE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}"
_WHOLE = re.compile(_REFERENCE)
_TOKEN = re.compile(rf"\$\$\{{|{_REFERENCE}|\$\{{")


class UnansweredError(Exception):
    """A reference without an answer; the message names the variable and never a value."""


class References:
    """Answers references from `env`; `files` holds every file read for one, with its stamp from before the reading."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.files: dict[Path, Stamp | None] = {}

    def expand(self, text: str) -> str:
        """`text` with every reference answered. Raises UnansweredError."""
        return _TOKEN.sub(self._answer, text)

    def _answer(self, match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match[1], match[2]
        if name is None:
            raise UnansweredError("`${` begins no reference: write ${NAME} or ${NAME:-default}, or $${ for the characters themselves")
        value = self._env.get(name) or self._from_file(name) or default
        if value is None:
            state = "is empty" if name in self._env else "is not set"
            raise UnansweredError(f"environment variable {name} {state}, nor is {name}_FILE; a default is written ${{{name}:-default}}")
        if not _encodable(value):
            raise UnansweredError(f"environment variable {name} is not UTF-8 text")
        return value

    def _from_file(self, name: str) -> str | None:
        file = self._env.get(f"{name}_FILE")
        if not file:
            return None
        path = Path(file).absolute()
        self.files[path] = stamp(path)
        try:
            return read_secret(path)
        except OSError as error:
            raise UnansweredError(f"environment variable {name}_FILE names a file that cannot be read: {reason(error)}") from None


def is_whole(text: str) -> bool:
    """Whether `text` is exactly one reference."""
    return _WHOLE.fullmatch(text) is not None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
