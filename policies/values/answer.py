"""An answer as signals see it: what one choice of it says, and what had been asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from policies.values.thinking import spoken


class ToolCall(NamedTuple):
    """name: of the tool. arguments: JSON text, as the model wrote it."""

    name: str
    arguments: str


class Said(msgspec.Struct, frozen=True):
    """One choice of an answer. text: with thoughts that the engine left in it. thought: it thought apart from the text. refused: the engine
    itself says that this is a refusal. finish: the reason why it ended; None: the engine did not say."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    thought: bool = False
    refused: bool = False

    @property
    def spoken(self) -> str:
        """The text without its thoughts; empty where they do not come to an end."""
        return spoken(self.text) or ""


class Wanted(msgspec.Struct, frozen=True):
    """What a request asked for. response_format, tools: decoded JSON as it came, whatever it is; None: nothing. limited: it was the caller
    who bounded the length of the answer."""

    response_format: Any = None
    tools: Any = None
    limited: bool = False

    @property
    def schema(self) -> tuple[bool, Any]:
        """Whether JSON was asked for, and the schema that it must fit; None: any object."""
        wanted = self.response_format
        if not isinstance(wanted, Mapping):
            return False, None
        if wanted.get("type") == "json_object":
            return True, None
        described = wanted.get("json_schema")
        if wanted.get("type") != "json_schema" or not isinstance(described, Mapping):
            return False, None
        return True, described.get("schema", {})

    @property
    def parameters(self) -> Mapping[str, Any] | None:
        """The schema of the arguments of each tool that was offered, by its name; None where it takes text. None: there are no tools."""
        if not isinstance(self.tools, list) or not self.tools:
            return None
        found: dict[str, Any] = {}
        for tool in self.tools:
            if not isinstance(tool, Mapping):
                continue
            kind = tool.get("type", "function")
            described = tool.get(kind) if isinstance(kind, str) else None
            if isinstance(described, Mapping) and isinstance(described.get("name"), str):
                found[described["name"]] = described.get("parameters", {}) if kind == "function" else None
        return found
