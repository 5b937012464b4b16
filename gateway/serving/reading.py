"""What the gateway reads of a request: the fields of a JSON body, else only the model, from a form or from the query.

A backend must not find another model in the same request than was found here, for what a key may use is decided by it. So the model may
be named in several places only if all say the same, and bodies that parsers read in different ways are refused.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from gateway.serving.call import Call
from gateway.wire import headers as wire_headers
from gateway.wire.errors import ApiError
from gateway.wire.multipart import form_field
from gateway.wire.request import Fields, read

Span = tuple[int, int]


def fields_of(call: Call, body: bytes, max_n: int, *, openai: bool) -> tuple[Fields, Span | None]:
    """The fields, `model` among them, and where a form's model stands in the body. Raises ApiError.

    openai: the path is one of those whose body every engine reads as JSON, whatever its content type.
    """
    try:
        fields, span = (read(body, max_n), None) if openai else _anything(call, body, max_n)
    except ApiError:
        coding = wire_headers.first(call.headers, b"content-encoding")
        if coding is not None and coding.strip().lower() != b"identity":
            raise _unsupported("The body of a request must not be compressed: `Content-Encoding` is not supported.") from None
        if openai and _kind(call) == b"multipart/form-data":
            raise _unsupported("This endpoint takes JSON, not a form.") from None
        raise
    if not fields.model:
        raise ApiError(400, "caller_invalid_value", "`model` is missing.", param="model")
    return fields, span


def _anything(call: Call, body: bytes, max_n: int) -> tuple[Fields, Span | None]:
    kind = _kind(call)
    named = _in_query(call.query) if call.query else []
    span = None
    if kind == b"multipart/form-data":
        span = form_field(wire_headers.first(call.headers, b"content-type") or b"", body, b"model")
        fields = Fields(model=_text(body[span[0] : span[1]]) if span else None)
    elif kind == b"application/x-www-form-urlencoded" and body:
        raise _unsupported("Send JSON as application/json, or a form as multipart/form-data.")
    elif not body and (named or call.method != "POST"):
        if not named:
            raise ApiError(404, "caller_not_found", "There is no such endpoint, or it lacks `?model=NAME`.", param="model")
        if sum(part.startswith(b"model=") for part in call.query.split(b"&")) != len(named):
            raise ApiError(400, "caller_invalid_value", "The query must name the model plainly: `model=NAME`.", param="model")
        fields = Fields(model=named[0])
    else:
        fields = read(body, max_n)
    if any(name != fields.model for name in named):
        raise ApiError(400, "caller_invalid_value", "The query and the body, or the query twice, name different models.", param="model")
    return fields, span


def _kind(call: Call) -> bytes:
    """The content type without its parameters. Raises ApiError when there is more than one."""
    given = [value for name, value in call.headers if name == b"content-type"]
    if len(given) > 1:
        raise ApiError(400, "caller_bad_framing", "The request has several content types.")
    return given[0].partition(b";")[0].strip().lower() if given else b""


def _in_query(query: bytes) -> list[str]:
    # Some servers still take a semicolon for an ampersand.
    return parse_qs(query.decode("ascii", "replace").replace(";", "&"), keep_blank_values=True).get("model", [])


def _unsupported(message: str) -> ApiError:
    return ApiError(415, "caller_unsupported_media_type", message)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
