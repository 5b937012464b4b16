from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.errors import ApiError, Code, envelope, model_not_found, retry_after, sse_event
from tests.wire.whatwg import dispatched


def test_an_error_is_openais_envelope() -> None:
    error = ApiError(400, "caller_invalid_value", "`n`: é\n", param="n", headers=[(b"a", b"b")])

    assert json.loads(error.body()) == {
        "error": {"message": "`n`: é\n", "type": "invalid_request_error", "param": "n", "code": "caller_invalid_value"}
    }
    assert error.headers == ((b"a", b"b"),)
    assert str(error) == "`n`: é\n"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
    ],
)
def test_the_type_follows_from_the_status(status: int, kind: str) -> None:
    assert json.loads(envelope(status, "backend_error", "x"))["error"]["type"] == kind


def test_codes_say_whose_fault_it_is() -> None:
    openais = {"context_length_exceeded", "invalid_api_key", "model_not_found", "rate_limit_exceeded"}

    assert {code for code in get_args(Code) if not code.startswith(("caller_", "policy_", "backend_", "gateway_"))} == openais


@settings(deadline=None)
@given(message=st.text())
def test_an_error_in_a_stream_is_one_event(message: str) -> None:
    event = sse_event(ApiError(502, "backend_stream_broken", message))

    (data,) = dispatched(event)
    assert json.loads(data)["error"] == {"message": message, "type": "server_error", "param": None, "code": "backend_stream_broken"}


@pytest.mark.parametrize(
    ("seconds", "whole", "millis"),
    [(0.0, b"1", b"1"), (0.2, b"1", b"200"), (1.0, b"1", b"1000"), (1.001, b"2", b"1001"), (5.0, b"5", b"5000"), (29.5, b"30", b"29500")],
)
def test_when_to_come_back_is_never_too_early(seconds: float, whole: bytes, millis: bytes) -> None:
    assert retry_after(seconds) == ((b"retry-after", whole), (b"retry-after-ms", millis))


def test_an_unknown_model_is_named_and_nothing_else() -> None:
    error = model_not_found("gpt-typo")

    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert error.message == "The model `gpt-typo` does not exist or this key may not use it."
    assert len(model_not_found("x" * 10**6).body()) < 400
