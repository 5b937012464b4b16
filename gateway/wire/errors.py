"""Errors as an OpenAI client expects them: one envelope everywhere, `code` from a closed set.

    ApiError
    |- caller_*    what the caller sent cannot be served               4xx
    |- policy_*    the operator's rules leave nothing to run           4xx, 503
    |- backend_*   an engine failed                                    502, 503, 504
    `- gateway_*   the gateway itself                                  500, 503, 504

beside OpenAI's own codes where clients look for them (`invalid_api_key`, `model_not_found`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import orjson

Header = tuple[bytes, bytes]

Code = Literal[
    "caller_bad_framing",
    "caller_body_too_large",
    "caller_forbidden_model",
    "caller_forbidden_scope",
    "caller_idempotency_conflict",
    "caller_invalid_json",
    "caller_invalid_value",
    "caller_method_not_allowed",
    "caller_not_found",
    "caller_precondition_failed",
    "caller_precondition_required",
    "caller_max_cost",
    "caller_unknown_parameter",
    "caller_unsupported_capability",
    "caller_unsupported_media_type",
    "policy_unavailable",
    "backend_auth",
    "backend_bad_answer",
    "backend_error",
    "backend_stream_broken",
    "backend_timeout",
    "backend_unavailable",
    "backend_unreachable",
    "gateway_deadline",
    "gateway_draining",
    "gateway_internal",
    "gateway_overloaded",
    "gateway_read_only",
    "gateway_reload_failed",
    "gateway_storage_unavailable",
    "invalid_api_key",
    "context_length_exceeded",
    "model_not_found",
    "rate_limit_exceeded",
]

JSON: Header = (b"content-type", b"application/json")
NO_RETRY: Header = (b"x-should-retry", b"false")


class ApiError(Exception):
    """An answer other than success, decided by the gateway. `message` reaches the client: never a secret, a body or an address."""

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code: Code = code
        self.message = message
        self.param = param
        self.headers = tuple(headers)

    def body(self) -> bytes:
        """The envelope: `{"error": {"message", "type", "param", "code"}}`."""
        return envelope(self.status, self.code, self.message, self.param)


def envelope(status: int, code: str, message: str, param: str | None = None) -> bytes:
    """The OpenAI error envelope as JSON bytes; `type` follows from the status."""
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def sse_event(error: ApiError) -> bytes:
    """The event that ends a broken stream; no `[DONE]` follows it."""
    return b"data: " + error.body() + b"\n\n"


def retry_after(seconds: float) -> tuple[Header, Header]:
    """`retry-after` (whole seconds, at least 1) and `retry-after-ms`."""
    whole = max(1, -int(-seconds // 1))
    return (b"retry-after", b"%d" % whole), (b"retry-after-ms", b"%d" % max(1, round(seconds * 1000)))


def model_not_found(name: str) -> ApiError:
    """404 that names only what was asked for."""
    return ApiError(404, "model_not_found", f"The model `{shown(name)}` does not exist or this key may not use it.", param="model")


def shown(name: str) -> str:
    """A caller's word as a message may show it: short, without characters that act on a terminal or turn the text around."""
    short = name if len(name) <= 100 else name[:100] + "..."
    return short if short.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in short)


_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
