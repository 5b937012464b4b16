"""Refusals in the engine's words (recorded from vLLM 0.32.0)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Message(_Open):
    role: str | None = None
    content: str | list[dict[str, Any]] | None = None


class _Function(_Open):
    name: str
    parameters: dict[str, Any] = {}


class _Tool(_Open):
    function: _Function


_Tokens = str | list[str] | list[int] | list[list[int]]


class _Fields(_Open):
    """The types of the fields that the mock reads; all others are let through."""

    model: str | None = None
    messages: list[_Message] | None = None
    prompt: _Tokens = ""
    input: _Tokens = ""
    tokens: list[int] = []
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_logprobs: int | None = None
    logprobs: bool | int | None = None
    prompt_logprobs: int | None = None
    dimensions: int | None = None
    stop: str | list[str] | None = None
    stream_options: dict[str, Any] | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Tool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Refused(Exception):
    """A request the engine answers with an error."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body: bytes = orjson.dumps(body)


def error(status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> Refused:
    """An error as vLLM writes it."""
    return Refused(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


def bad_value(message: str, param: str, value: Any = None) -> Refused:
    """400 about a parameter, with its value if one is given."""
    tail = f", value={value}" if value is not None else ""
    return error(400, f"{message} (parameter={param}{tail})", param=param)


def invalid(*problems: tuple[str, str, str, str]) -> Refused:
    """400 as the engine words a body that does not fit: of each problem type, place, message and the rest."""
    lines = [f"  {{'type': '{kind}', 'loc': '{place}', 'msg': '{text}', {rest}}}" for kind, place, text, rest in problems]
    plural = "s" * (len(lines) > 1)
    return error(400, f"{len(lines)} validation error{plural}:\n" + "\n".join(lines), "Bad Request", problems[0][1])


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body, its known fields of the right types. Raises Refused."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _lenient(body)
    try:
        return _Fields.model_validate(value).model_dump(exclude_unset=True)
    except ValidationError as problem:
        found = problem.errors(include_url=False, include_context=False)
        raise invalid(
            *((one["type"], ".".join(map(str, ("body", *one["loc"]))), one["msg"], f"'input': {one['input']!r}") for one in found)
        ) from None


def _lenient(body: bytes) -> Any:
    try:
        return json.loads(body)  # NaN and the like are let through, as the engine's parser does.
    except (UnicodeDecodeError, RecursionError):
        raise error(400, "There was an error parsing the body", "Bad Request") from None
    except json.JSONDecodeError as problem:
        rest = f"'input': '<dict of 0 items>', 'ctx': {{'error': '{problem.msg.removesuffix(':')}'}}"
        raise invalid(("json_invalid", f"body.{problem.pos}", "JSON decode error", rest)) from None


def unknown_model(name: Any, served: Sequence[str]) -> Refused:
    """404 for a model that is not served."""
    return error(404, f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}.", "NotFoundError", "model")


def too_long(limit: int, prompt: int, output: int | None) -> Refused:
    """400 when prompt and output do not fit into the context."""
    text = f"This model's maximum context length is {limit} tokens. However, "
    if prompt > limit or output is None:
        text += f"your prompt contains at least {limit + 1} input tokens, which exceeds this limit even without any output "
        return bad_value(text + "tokens. Please reduce the length of the input prompt.", "input_tokens", limit + 1)
    text += f"you requested {output} output tokens and your prompt contains at least {prompt} input tokens, for a total of "
    text += f"at least {prompt + output} tokens. Please reduce the length of the input prompt or the number of requested "
    return bad_value(text + "output tokens.", "input_tokens", prompt)
